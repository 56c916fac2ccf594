"""The server: TLS and probes, and how it starts, drains and stops."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from typing import Any

import aiohttp
import orjson
import pytest
from slow import SlowCatalog
from structlog.testing import capture_logs

from certs import SelfSigned, utc_now
from webhooks import make_app
from webhooks.app import TRANSPORT
from webhooks.server import Listen, Server
from webhooks.testing import InMemoryCatalog, Reply, review


def vmi(reference: str) -> dict[str, Any]:
    labels = {"gpu.cozystack.io/device-reference": reference}
    metadata = {"name": "vm", "namespace": "tenant-a", "labels": labels}
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": metadata, "spec": {}}


@pytest.fixture
def gpu_catalog(gpu_catalog: InMemoryCatalog) -> SlowCatalog:
    return SlowCatalog.of(gpu_catalog)


@pytest.fixture(scope="module")
def certificates() -> SelfSigned:
    return SelfSigned(names=["localhost", "127.0.0.1"])


@pytest.fixture
def log_lines() -> Iterator[list[MutableMapping[str, Any]]]:
    with capture_logs() as lines:
        yield lines


class Running:
    """A server that runs, and clients that verify its certificate."""

    def __init__(self, server: Server, certificates: SelfSigned) -> None:
        self.server = server
        self.tls = ssl.create_default_context(cadata=certificates.ca_pem.decode())
        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self.tls))

    async def probe(self, path: str) -> tuple[int, str]:
        async with self.session.get(f"http://127.0.0.1:{self.server.plain_port}{path}") as response:
            return response.status, await response.text()

    async def post(self, manifest: dict[str, Any], *, path: str = "/mutate") -> tuple[Reply, str]:
        """The reply, and the Connection header."""
        url = f"https://127.0.0.1:{self.server.port}{path}"
        async with self.session.post(url, json=review(manifest, uid="u-1")) as response:
            assert response.status == 200
            return Reply.of(await response.read(), uid="u-1"), response.headers.get("Connection", "")


@asynccontextmanager
async def serving(catalog: InMemoryCatalog, certificates: SelfSigned, **listen: Any) -> AsyncIterator[Running]:
    options = {"port": 0, "plain_port": 0, "quiet": 0.05, "longest_drain": 5.0, **listen}
    server = Server(make_app(catalog=catalog)[TRANSPORT], tls=certificates.serving.context, listen=Listen(**options))
    await server.start()
    running = Running(server, certificates)
    try:
        yield running
    finally:
        await running.session.close()
        await server.stop()


@pytest.fixture
async def running(gpu_catalog: SlowCatalog, certificates: SelfSigned) -> AsyncIterator[Running]:
    async with serving(gpu_catalog, certificates) as running:
        yield running


def is_listening(port: int) -> bool:
    with closing(socket.socket()) as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)


async def test_reviews_are_answered_over_tls_that_a_client_verifies(running: Running, gpu_catalog: SlowCatalog) -> None:
    gpu_catalog.go.set()

    let_in, _ = await running.post(vmi("my-gpu"))
    refused, _ = await running.post(vmi("desk-gpu"), path="/validate")

    assert let_in.allowed
    assert let_in.patch
    assert refused.code == 409


async def test_a_client_that_trusts_another_authority_does_not_connect(running: Running) -> None:
    stranger = SelfSigned(names=["localhost", "127.0.0.1"])
    tls = ssl.create_default_context(cadata=stranger.ca_pem.decode())

    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await running.session.post(f"https://127.0.0.1:{running.server.port}/mutate", json={}, ssl=tls)


async def test_the_probes_and_metrics_are_on_the_plain_port_only(running: Running) -> None:
    health, ready, metrics = [await running.probe(path) for path in ("/healthz", "/readyz", "/metrics")]
    async with running.session.get(f"https://127.0.0.1:{running.server.port}/metrics") as response:
        over_tls = response.status
    posted = await running.session.post(f"http://127.0.0.1:{running.server.plain_port}/mutate", json={})

    assert (health, ready) == ((200, "ok\n"), (200, "ok\n"))
    assert metrics[0] == 200
    assert "# TYPE gpu_webhooks_requests_total counter" in metrics[1]
    assert (over_tls, posted.status) == (404, 404)


async def test_it_is_not_ready_but_healthy_until_the_catalog_is_filled(
    running: Running, gpu_catalog: SlowCatalog
) -> None:
    gpu_catalog.filled = False

    health, ready = await running.probe("/healthz"), await running.probe("/readyz")

    assert health[0] == 200
    assert ready == (503, "the catalog is not filled yet\n")


async def test_a_replica_that_cannot_judge_ends_each_connection_so_that_the_next_call_goes_to_another(
    running: Running, gpu_catalog: SlowCatalog
) -> None:
    _, kept = await running.post(vmi("my-gpu"))
    gpu_catalog.filled = False

    refused, closed = await running.post(vmi("my-gpu"))

    assert kept.lower() != "close"
    assert (refused.code, closed) == (503, "close")


async def test_a_new_leaf_is_served_while_a_kept_alive_connection_goes_on(
    running: Running, certificates: SelfSigned
) -> None:
    def serial(connection: asyncio.StreamWriter) -> str:
        return str(connection.get_extra_info("peercert")["serialNumber"])

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", running.server.port, ssl=running.tls)

    async def call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        body = orjson.dumps(review(vmi("my-gpu")))
        head = "POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answered = await reader.readuntil(b"\r\n\r\n")
        length = int(answered.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        return answered.split(b"\r\n")[0]

    reader, writer = await connect()
    before = await call(reader, writer)
    leaf = certificates.authority.issue(names=["127.0.0.1"], now=utc_now(), lifetime=timedelta(days=1))

    certificates.serving.swap(leaf)
    after = await call(reader, writer)
    other_reader, other = await connect()
    answer = await call(other_reader, other)

    assert [before, after, answer] == [b"HTTP/1.1 200 OK"] * 3
    assert int(serial(other), 16) == leaf.serial != int(serial(writer), 16)
    for open_writer in (writer, other):
        open_writer.close()
        await open_writer.wait_closed()


async def test_a_stop_makes_not_ready_at_once_finishes_what_is_in_flight_and_closes_the_ports(
    running: Running, gpu_catalog: SlowCatalog, log_lines: list[MutableMapping[str, Any]]
) -> None:
    in_flight = asyncio.create_task(running.post(vmi("none")))
    await gpu_catalog.reached.wait()

    stopping = asyncio.create_task(running.server.stop())
    await asyncio.sleep(0)
    ready = await running.probe("/readyz")
    during, connection = await running.post(vmi("my-gpu"))
    await asyncio.sleep(0.2)
    still_draining = not stopping.done()
    gpu_catalog.go.set()
    finished, closed = await in_flight
    await stopping

    assert ready == (503, "shutting down\n")
    assert during.allowed
    assert still_draining
    assert finished.code == 422
    assert connection == closed == "close"
    assert not is_listening(running.server.port)
    assert not is_listening(running.server.plain_port)
    events = [line["event"] for line in log_lines]
    assert events == ["draining", "refused", "stopped"]


async def test_before_a_stop_connections_are_kept(running: Running) -> None:
    _, connection = await running.post(vmi("my-gpu"))

    assert connection.lower() != "close"


async def test_a_stop_goes_on_listening_for_as_long_as_others_may_not_know_of_it(
    gpu_catalog: SlowCatalog, certificates: SelfSigned
) -> None:
    async with serving(gpu_catalog, certificates, least_drain=0.4) as running:
        stopping = asyncio.create_task(running.server.stop())
        # Nothing has come in for much longer than a silence that ends a drain.
        await asyncio.sleep(0.25)
        reply, connection = await running.post(vmi("my-gpu"))
        await stopping

        assert reply.allowed
        assert connection == "close"
        assert not is_listening(running.server.port)


async def test_a_call_that_never_ends_does_not_hold_up_a_stop_for_ever(
    gpu_catalog: SlowCatalog, certificates: SelfSigned
) -> None:
    async with serving(gpu_catalog, certificates, longest_drain=0.2) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.server.port, ssl=running.tls)
        writer.write(
            b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
        )
        await until(lambda: not running.server._transport.is_quiet(0))

        async with asyncio.timeout(8):
            await running.server.stop()

        assert not is_listening(running.server.port)
        writer.close()
        await reader.read()


@pytest.mark.parametrize("taken", ["port", "plain_port"])
async def test_a_port_in_use_is_an_error_and_nothing_is_left_listening(
    gpu_catalog: SlowCatalog, certificates: SelfSigned, taken: str
) -> None:
    with socket.socket() as holder, socket.socket() as free:
        for held in (holder, free):
            held.bind(("127.0.0.1", 0))
        holder.listen()
        other = free.getsockname()[1]
        free.close()
        ports = {"port": other, "plain_port": other, taken: holder.getsockname()[1]}
        app = make_app(catalog=gpu_catalog)
        server = Server(app[TRANSPORT], tls=certificates.serving.context, listen=Listen(**ports))

        with pytest.raises(OSError, match="address already in use"):
            await server.start()

        assert not is_listening(other)
        assert app[TRANSPORT].is_quiet(0)
