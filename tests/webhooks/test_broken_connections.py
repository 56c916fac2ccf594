"""Peers that break off, or that speak no TLS or no HTTP: the service goes on serving, and logs one line at most."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator, MutableMapping
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from certs import SelfSigned
from webhooks import make_app
from webhooks.app import TRANSPORT
from webhooks.server import Listen, Server
from webhooks.testing import InMemoryCatalog, review
from webhooks.transport import Transport

HEAD = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
VMI = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "metadata": {"name": "vm", "namespace": "tenant-a", "labels": {"gpu.cozystack.io/device-reference": "my-gpu"}},
    "spec": {},
}


@pytest.fixture
def log_lines() -> Iterator[list[MutableMapping[str, Any]]]:
    with capture_logs() as lines:
        yield lines


class Peer:
    """A server, and connections to it."""

    def __init__(self, server: Server, transport: Transport, tls: ssl.SSLContext) -> None:
        self.server = server
        self.transport = transport
        self.tls = tls

    async def connect(self, *, tls: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.server.port, ssl=self.tls if tls else None)

    async def send(self, data: bytes, *, tls: bool) -> bytes:
        """What is answered to raw bytes, up to the end of the connection."""
        reader, writer = await self.connect(tls=tls)
        try:
            writer.write(data)
            async with asyncio.timeout(5):
                return await reader.read()
        except (ConnectionError, ssl.SSLError):
            return b""
        finally:
            writer.transport.abort()

    async def judges(self) -> bool:
        body = orjson.dumps(review(VMI))
        close = b"Connection: close\r\n"
        answered = await self.send(HEAD + close + f"Content-Length: {len(body)}\r\n\r\n".encode() + body, tls=True)
        return answered.startswith(b"HTTP/1.1 200 OK") and b'"allowed":true' in answered

    async def until(self, *, quiet: bool) -> None:
        async with asyncio.timeout(5):
            while self.transport.is_quiet(0) is not quiet:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)


@pytest.fixture
async def peer(
    gpu_catalog: InMemoryCatalog, log_lines: list[MutableMapping[str, Any]], caplog: pytest.LogCaptureFixture
) -> AsyncIterator[Peer]:
    """A running server, of which is asserted in the end that it still serves and that no traceback was logged."""
    certificates = SelfSigned(names=["127.0.0.1"])
    app = make_app(catalog=gpu_catalog)
    listen = Listen(port=0, plain_port=0, quiet=0.0, longest_drain=1.0)
    server = Server(app[TRANSPORT], tls=certificates.serving.context, listen=listen)
    await server.start()
    peer = Peer(server, app[TRANSPORT], ssl.create_default_context(cadata=certificates.ca_pem.decode()))
    try:
        yield peer
        assert await peer.judges()
        assert not [line for line in log_lines if line.get("exc_info")]
        assert not [record for record in caplog.records if record.name != "aiohttp.server"]
    finally:
        await server.stop()


async def test_a_body_that_stops_halfway_is_counted_as_lost(
    peer: Peer, log_lines: list[MutableMapping[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    _, writer = await peer.connect(tls=True)
    writer.write(HEAD + b'Content-Length: 1000\r\n\r\n{"request":')
    await peer.until(quiet=False)

    writer.transport.abort()
    await peer.until(quiet=True)

    assert [(line["event"], line["cause"]) for line in log_lines] == [("no verdict", "lost")]
    assert not caplog.records


async def test_a_clean_end_of_the_connection_in_a_body_is_counted_as_lost(
    peer: Peer, log_lines: list[MutableMapping[str, Any]]
) -> None:
    _, writer = await peer.connect(tls=True)
    writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{")
    await peer.until(quiet=False)

    writer.close()
    await writer.wait_closed()
    await peer.until(quiet=True)

    assert [(line["event"], line["cause"]) for line in log_lines] == [("no verdict", "lost")]


async def test_a_broken_chunk_in_a_body_is_waited_for_no_longer_than_the_deadline(
    peer: Peer, log_lines: list[MutableMapping[str, Any]]
) -> None:
    reader, writer = await peer.connect(tls=True)
    writer.write(HEAD.replace(b"/mutate", b"/mutate?timeout=1s") + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")
    await peer.until(quiet=False)

    writer.write(b"zz\r\n")
    async with asyncio.timeout(5):
        answered = await reader.readuntil(b"\r\n")

    assert answered.startswith(b"HTTP/1.1 408")
    assert [(line["event"], line["cause"]) for line in log_lines] == [("no verdict", "slow body")]
    writer.transport.abort()


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "snappy"])
async def test_a_compressed_body_is_answered_with_415_unread(
    peer: Peer, log_lines: list[MutableMapping[str, Any]], caplog: pytest.LogCaptureFixture, encoding: str
) -> None:
    head = HEAD + f"Connection: close\r\nContent-Encoding: {encoding}\r\nContent-Length: 8\r\n\r\n".encode()

    answered = await peer.send(head + b"no gzip!", tls=True)

    assert answered.startswith(b"HTTP/1.1 415")
    assert [line["cause"] for line in log_lines] == ["content type"]
    assert not caplog.records


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x00" * 4096, id="zeros"),
        pytest.param(b"\x16\x03\x01\x00\x05hello", id="half a handshake"),
        pytest.param(HEAD + b"Content-Length: 2\r\n\r\n{}", id="plain HTTP"),
        pytest.param(b"SSH-2.0-OpenSSH_9.9\r\n", id="SSH"),
    ],
)
async def test_a_peer_that_speaks_no_tls_is_hung_up_on(
    peer: Peer, log_lines: list[MutableMapping[str, Any]], caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    reader, writer = await peer.connect(tls=False)
    writer.write(data)
    writer.write_eof()

    async with asyncio.timeout(5):
        answered = await reader.read()

    assert b"HTTP" not in answered
    assert not log_lines
    assert not caplog.records
    writer.transport.abort()


NO_HTTP = {
    "garbage": b"\x00\x01garbage\r\n\r\n",
    "negative length": HEAD + b"Content-Length: -5\r\n\r\n{}",
    "length and chunks": HEAD + b"Content-Length: 100\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "broken chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}",
    "endless header": b"POST /mutate HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}
no_http = pytest.mark.parametrize("data", NO_HTTP.values(), ids=NO_HTTP.keys())


@no_http
async def test_a_peer_that_speaks_no_http_is_answered_with_400(peer: Peer, data: bytes) -> None:
    answered = await peer.send(data, tls=True)

    assert answered.startswith(b"HTTP/1.") or not answered
    assert b" 400 " in answered.split(b"\r\n")[0] or not answered


@pytest.mark.parametrize("tls", [True, False], ids=["after the handshake", "before it"])
async def test_fifty_connections_opened_and_closed_at_once_leave_nothing_behind(
    peer: Peer, log_lines: list[MutableMapping[str, Any]], caplog: pytest.LogCaptureFixture, *, tls: bool
) -> None:
    connections = await asyncio.gather(*(peer.connect(tls=tls) for _ in range(50)))

    for _, writer in connections:
        writer.transport.abort()
    await asyncio.sleep(0.1)

    assert peer.transport.is_quiet(0)
    assert not log_lines
    assert not caplog.records
