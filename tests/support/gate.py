"""An HTTP proxy in front of the API server that holds back the calls that a test names, for the order of two writes, or
has something happen at one."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Self

import aiohttp
import orjson
from aiohttp import web
from controlplane.plane import ControlPlane
from controlplane.process import free_port
from yarl import URL

_OURS: Final = frozenset({"host", "connection", "keep-alive", "transfer-encoding", "content-length", "te", "upgrade"})
"""Headers that are about one connection, and not passed on."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call as it came: ``body`` is what it says, None where that is no JSON."""

    method: str
    path: str
    body: Any


@dataclass(slots=True)
class Held:
    """The first call that matches; it is held back when it comes, until it is told to go on. Others are not."""

    matches: Callable[[Call], bool]
    came: asyncio.Event = field(default_factory=asyncio.Event)
    let: asyncio.Event = field(default_factory=asyncio.Event)
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    code: int = 0

    async def comes(self, *, seconds: float = 20) -> None:
        """Wait until it is there, and held back."""
        await asyncio.wait_for(self.came.wait(), seconds)

    async def goes_on(self, *, seconds: float = 20) -> int:
        """Pass it on; the code of its answer."""
        self.let.set()
        await asyncio.wait_for(self.answered.wait(), seconds)
        return self.code


class Gate:
    """Takes calls in clear text at ``url``, and passes them on to a control plane."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._port = free_port()
        self._held: list[Held] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def hold(self, matches: Callable[[Call], bool]) -> Held:
        """Hold back the first call from now on that matches."""
        held = Held(matches)
        self._held.append(held)
        return held

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._plane.tls, limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for held in self._held:
            held.let.set()
        await self._runner.cleanup()
        await self._session.close()

    async def comes(self, call: Call) -> None:
        """A call is here and not passed on yet: nor is it at all where this raises one of aiohttp's HTTP exceptions."""

    async def is_answered(self, call: Call, code: int) -> None:
        """The API server has answered a call; who called does not know yet."""

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        call = Call(request.method, request.path, _json(body))
        held = self._match(call)
        if held:
            held.came.set()
            await held.let.wait()
        await self.comes(call)
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in _OURS]
        url = URL(self._plane.url + request.raw_path, encoded=True)
        async with self._session.request(request.method, url, data=body or None, headers=headers) as answer:
            await self.is_answered(call, answer.status)
            passed = [(name, value) for name, value in answer.headers.items() if name.lower() not in _OURS]
            response = web.StreamResponse(status=answer.status)
            response.headers.extend(passed)
            # Who called may be gone.
            with suppress(ConnectionResetError):
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
        if held:
            held.code = answer.status
            held.answered.set()
        return response

    def _match(self, call: Call) -> Held | None:
        return next((held for held in self._held if not held.came.is_set() and held.matches(call)), None)


def _json(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
