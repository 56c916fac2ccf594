"""Those who call a server over TLS, byte by byte, and the servers that they call."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import orjson
from slow import SlowCatalog

from certs import SelfSigned
from webhooks import make_app
from webhooks.app import TRANSPORT
from webhooks.clients import Clients
from webhooks.server import Listen, Server
from webhooks.settings import Settings
from webhooks.testing import review
from webhooks.transport import Transport

JSON = "Host: x\r\nContent-Type: application/json\r\n"
CHUNKED = f"POST /mutate HTTP/1.1\r\n{JSON}Transfer-Encoding: chunked\r\n\r\n".encode()


def vmi(reference: str) -> dict[str, Any]:
    labels = {"gpu.cozystack.io/device-reference": reference}
    metadata = {"name": "vm", "namespace": "tenant-a", "labels": labels}
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": metadata, "spec": {}}


BODY = orjson.dumps(review(vmi("my-gpu"), uid="u-1"))
WAITS = orjson.dumps(review(vmi("none"), uid="u-2"))
"""What a fresh read is made for."""


def call(body: bytes = BODY, *, path: str = "/mutate", headers: str = "", length: int | None = None) -> bytes:
    """A whole call, or the first part of one whose length says more."""
    size = len(body) if length is None else length
    return f"POST {path} HTTP/1.1\r\n{JSON}{headers}Content-Length: {size}\r\n\r\n".encode() + body


class Answer(NamedTuple):
    code: int
    headers: dict[str, str]
    body: bytes

    @property
    def closes(self) -> bool:
        return self.headers.get("connection") == "close"

    @property
    def verdict(self) -> tuple[bool, int]:
        response = orjson.loads(self.body)["response"]
        return response["allowed"], response.get("status", {}).get("code", 200)


class Caller:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def answer(self, *, to_head: bool = False) -> Answer:
        async with asyncio.timeout(10):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
            size = 0 if to_head else int(headers.get("content-length", 0))
            return Answer(int(head[0].split()[1]), headers, await self._reader.readexactly(size))

    async def raw(self) -> bytes:
        """An answer as it came."""
        async with asyncio.timeout(10):
            head = await self._reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
            return head + await self._reader.readexactly(size)

    async def post(self, body: bytes = BODY, **options: Any) -> Answer:
        self.send(call(body, **options))
        return await self.answer()

    async def is_cut_off(self, *, within: float = 5.0) -> bool:
        """Whether the connection ends; what still comes in on it is passed over."""
        try:
            async with asyncio.timeout(within):
                while await self._reader.read(65536):
                    pass
        except TimeoutError:
            return False
        except (ConnectionError, ssl.SSLError):
            return True
        return True

    def abort(self) -> None:
        self._writer.transport.abort()


class Served:
    """A server that runs, and those who call it."""

    def __init__(self, server: Server, transport: Transport, catalog: SlowCatalog, tls: ssl.SSLContext) -> None:
        self.server = server
        self.transport = transport
        self.catalog = catalog
        self._tls = tls
        self._callers: list[Caller] = []

    async def caller(self, *, tls: bool = True, host: str = "127.0.0.1", by: ssl.SSLContext | None = None) -> Caller:
        """Who connects, ``by`` another context than all others."""
        opened = await asyncio.open_connection(host, self.server.port, ssl=(by or self._tls) if tls else None)
        caller = Caller(*opened)
        self._callers.append(caller)
        return caller

    async def post(self, body: bytes = BODY, **options: Any) -> Answer:
        """The answer on a connection of its own."""
        caller = await self.caller()
        try:
            return await caller.post(body, **options)
        finally:
            caller.abort()

    async def bodies_held(self, size: int) -> None:
        await until(lambda: self.transport._bodies._held == size)

    def hang_up(self) -> None:
        for caller in self._callers:
            caller.abort()


@asynccontextmanager
async def serving(
    catalog: SlowCatalog,
    certificates: SelfSigned,
    *,
    listen: dict[str, Any],
    clients: Clients | None = None,
    **settings: Any,
) -> AsyncIterator[Served]:
    options = {"port": 0, "plain_port": 0, "quiet": 0.05, "longest_drain": 1.0, **listen}
    transport = make_app(catalog=catalog, settings=Settings(**settings))[TRANSPORT]
    server = Server(transport, tls=certificates.serving.context, listen=Listen(**options), clients=clients)
    await server.start()
    served = Served(server, transport, catalog, ssl.create_default_context(cadata=certificates.ca_pem.decode()))
    try:
        yield served
    finally:
        catalog.go.set()
        served.hang_up()
        await server.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
