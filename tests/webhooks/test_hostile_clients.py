"""Slow and hostile clients: others are served meanwhile, memory stays bounded, and the slow ones are cut off."""

import asyncio
import resource
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from time import perf_counter

import orjson
import pytest
from identities import Issuer, showing
from processes import Process, serve

from webhooks.testing import review

CATALOG = Path(__file__).parent.parent.parent / "examples" / "catalog"
HEAD = b"POST /mutate?timeout=2s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
VMI = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "metadata": {"name": "vm", "namespace": "tenant-a", "labels": {"gpu.cozystack.io/device-reference": "my-gpu"}},
    "spec": {},
}
IDLE = 1000
MOST_MIB = 80 + 2 * 64
"""What a quiet process takes at most, and twice what bodies may take: they are copied once, when they are whole."""


class Service:
    """A ``serve`` process, and connections to it."""

    def __init__(self, process: Process, tls: ssl.SSLContext) -> None:
        self.process = process
        self.tls = tls

    async def connect(self, *, tls: bool = True) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.process.port, ssl=self.tls if tls else None)

    async def judged(self) -> float:
        """The seconds that a review takes on a connection of its own; asserts that it is let in."""
        body = orjson.dumps(review(VMI))
        start = perf_counter()
        reader, writer = await self.connect()
        writer.write(HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        answered = await reader.read()
        writer.transport.abort()
        assert answered.startswith(b"HTTP/1.1 200")
        assert b'"allowed":true' in answered
        return perf_counter() - start


@pytest.fixture
def many_open_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


OPTIONS = ("--catalog", str(CATALOG), "--port", "0", "--plain-port", "0", "--head-timeout", "2")


@pytest.fixture
async def service(tmp_path: Path, many_open_files: None) -> AsyncIterator[Service]:  # noqa: ARG001 - it has to be first
    ca_file = tmp_path / "ca.crt"
    async with serve(*OPTIONS, "--ca-file", str(ca_file)) as process:
        yield Service(process, ssl.create_default_context(cafile=ca_file))


async def until_cut_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes, pause: float) -> float:
    """Send the same again and again; the seconds after which the other side had enough."""
    start = perf_counter()
    with suppress(ConnectionError, ssl.SSLError):
        while not reader.at_eof():
            writer.write(data)
            await writer.drain()
            await asyncio.sleep(pause)
    writer.transport.abort()
    return perf_counter() - start


async def trickle_a_head(service: Service) -> float:
    reader, writer = await service.connect()
    writer.write(HEAD + b"X-Slow: ")
    return await until_cut_off(reader, writer, b"x", 0.3)


async def send_a_body_that_never_ends(service: Service) -> float:
    reader, writer = await service.connect()
    writer.write(HEAD + b"Content-Length: 1000000\r\n\r\n{")
    return await until_cut_off(reader, writer, b" ", 0.3)


async def send_chunks_above_the_cap(service: Service) -> float:
    reader, writer = await service.connect()
    writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    return await until_cut_off(reader, writer, b"10000\r\n" + b" " * 0x10000 + b"\r\n", 0.02)


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(trickle_a_head, id="a header byte now and then"),
        pytest.param(send_a_body_that_never_ends, id="bodies that never end"),
        pytest.param(send_chunks_above_the_cap, id="chunks above the cap"),
    ],
)
async def test_a_slow_or_endless_call_is_cut_off_while_others_are_served(service: Service, hostile: object) -> None:
    assert callable(hostile)
    attack = [asyncio.create_task(hostile(service)) for _ in range(30)]
    await asyncio.sleep(0.5)

    times = [await service.judged() for _ in range(40)]
    most = service.process.resident
    async with asyncio.timeout(30):
        lasted = await asyncio.gather(*attack)

    assert max(times) < 2
    assert max(lasted) < 15
    assert max(most, service.process.resident) < MOST_MIB


async def test_a_thousand_idle_connections_keep_nobody_from_being_served(service: Service) -> None:
    silent = [await service.connect(tls=index % 2 == 0) for index in range(IDLE)]

    times = [await service.judged() for _ in range(40)]

    assert max(times) < 2
    assert service.process.resident < MOST_MIB
    for _, writer in silent:
        writer.transport.abort()


@pytest.mark.usefixtures("many_open_files")
async def test_a_thousand_who_show_no_certificate_hold_up_nobody_who_does(tmp_path: Path) -> None:
    ca_file, client_ca, issuer = tmp_path / "ca.crt", tmp_path / "clients.crt", Issuer()
    client_ca.write_bytes(issuer.pem)
    body = orjson.dumps(review(VMI))
    whole = HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    answers: Counter[bytes] = Counter()

    async with serve(*OPTIONS, "--ca-file", str(ca_file), "--client-ca-file", str(client_ca)) as process:
        trusts = ca_file.read_bytes()
        known = Service(process, showing(issuer.identity(), trusts=trusts))
        strangers = Service(process, showing(None, trusts=trusts))
        await known.judged()

        async def knock(times: int) -> None:
            for at in range(times):
                reader, writer = await strangers.connect()
                # Of every other one nothing is heard after its handshake.
                if at % 2:
                    writer.write(whole)
                    answers[(await reader.read())[:12]] += 1
                    writer.transport.abort()
                else:
                    held.append(writer)

        held: list[asyncio.StreamWriter] = []
        knocking = [asyncio.create_task(knock(IDLE // 20)) for _ in range(20)]
        times = [await known.judged() for _ in range(20)]
        await asyncio.gather(*knocking)
        times += [await known.judged() for _ in range(20)]
        most = process.resident
        for writer in held:
            writer.transport.abort()
        code, lines = await process.stop()

    assert answers == {b"HTTP/1.1 403": IDLE // 2}
    assert max(times) < 2
    assert most < MOST_MIB
    assert code == 0
    refused = [line for line in lines if line["event"] == "client refused"]
    assert 1 <= len(refused) < 5
    assert not [line for line in lines if line["level"] == "error"]


async def test_calls_that_are_no_http_leave_no_memory_taken(service: Service) -> None:
    async def speak() -> None:
        reader, writer = await service.connect()
        writer.write(b"\x00garbage\r\n\r\n")
        assert b" 400 Bad Request" in await reader.read()
        writer.transport.abort()

    for _ in range(100):
        await speak()
    before = service.process.resident
    for _ in range(300):
        await speak()

    assert service.process.resident < before + 10
