"""An API server that answers byte by byte what a test tells it to: for what real ones do rarely."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson
from aiohttp import web
from kubernetes_asyncio.client import Configuration

from cluster.api import Api

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Script:
    """Answers calls in order; when there are no more, watches stay silent and other calls fail with 500.

    ``asked`` has each call's method and query, ``headers`` its headers.
    """

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.headers: list[Mapping[str, str]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.method, dict(request.query)))
        self.headers.append(request.headers)
        if self.answers:
            return await self.answers.pop(0)(request)
        if "watch" in request.query:
            return await watched(then="silence")(request)
        return web.Response(status=500)

    @property
    def lists(self) -> int:
        """How many lists were asked for."""
        return sum(method == "GET" and "watch" not in query for method, query in self.asked)

    @property
    def watched_from(self) -> list[str]:
        """The resource versions that watches were asked to go on from."""
        return [query["resourceVersion"] for _, query in self.asked if "watch" in query]


@asynccontextmanager
async def serving(script: Script) -> AsyncIterator[Api]:
    """An Api that calls it."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", script.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    api = Api(Configuration(host=f"http://127.0.0.1:{port}"))
    try:
        yield api
    finally:
        await api.close()
        await runner.cleanup()


def thing(name: str, version: int, **more: Any) -> dict[str, Any]:
    """An object of the kind that is watched."""
    return {"metadata": {"namespace": "a", "name": name, "resourceVersion": str(version)}, **more}


def listed(*items: Mapping[str, Any], version: int, more: str = "") -> Answer:
    """A page of a list; ``more`` is its continue token."""
    body = {"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(items)}
    return _answer(200, orjson.dumps(body))


def status(code: int, message: str = "no", *, headers: Mapping[str, str] | None = None) -> Answer:
    """A refusal."""
    return _answer(code, orjson.dumps({"kind": "Status", "code": code, "message": message}), headers)


def raw(code: int, body: bytes) -> Answer:
    """Any answer."""
    return _answer(code, body)


def event(kind: str, obj: Mapping[str, Any]) -> bytes:
    """A line of a watch."""
    return orjson.dumps({"type": kind, "object": obj}) + b"\n"


def bookmark(version: int) -> bytes:
    """A line that says how far a watch is."""
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


def watched(*chunks: bytes, then: str = "silence") -> Answer:
    """A watch that sends these chunks and then ends (``end``), breaks off (``cut``) or says nothing more."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0.01)
        if then == "silence":
            await asyncio.sleep(60)
        if then == "cut" and request.transport:
            request.transport.abort()
        return response

    return answer


def _answer(code: int, body: bytes, headers: Mapping[str, str] | None = None) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=code, body=body, content_type="application/json", headers=headers)

    return answer
