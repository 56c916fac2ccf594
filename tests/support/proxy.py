"""A TCP proxy between the service and the API server that can be shut, as a network that breaks would."""

import asyncio
import itertools
from contextlib import suppress
from typing import Self

_CHUNK = 65536
_MOMENT = 0.05


class Proxy:
    """Passes bytes on to a port of the loopback address; ``opened`` counts the connections so far.

    Of several ports each connection goes to the next, as a Service would have it.
    """

    def __init__(self, *ports: int) -> None:
        self.opened = 0
        self._targets = itertools.cycle(ports)
        self._server: asyncio.Server | None = None
        self._port = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._frozen: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shut()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    async def open(self) -> None:
        """Take connections, on the same port each time."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def shut(self) -> None:
        """Break every connection, and refuse new ones until it is opened again."""
        if self._server:
            self._server.close()
        # One that is being made can't be broken yet.
        while self._serving:
            self.cut()
            await asyncio.wait(self._serving, timeout=_MOMENT)

    def cut(self) -> None:
        """Break every connection that there is now."""
        for writer in self._open:
            writer.transport.abort()

    def freeze(self) -> None:
        """Pass nothing more on over the connections that there are now, and keep them open."""
        self._frozen |= self._open

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)
        await serving

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", next(self._targets))
        except OSError:
            writer.transport.abort()
            return
        self.opened += 1
        self._open |= {writer, back}
        ways = {asyncio.create_task(self._pass_on(reader, back)), asyncio.create_task(self._pass_on(there, writer))}
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for end in (writer, back):
            end.transport.abort()
        await asyncio.wait(ways)
        self._open -= {writer, back}
        self._frozen -= {writer, back}

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(_CHUNK):
                if writer in self._frozen:
                    continue
                writer.write(chunk)
                await writer.drain()
