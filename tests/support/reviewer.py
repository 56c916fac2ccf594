"""A webhook of a test's own: an HTTPS server that lets everything in and counts, and a caller that never stops."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from controlplane.client import Client
from controlplane.errors import APIError


class Reviewer:
    """Answers every review, and closes each connection, so that every call is a handshake."""

    def __init__(self) -> None:
        self.port = 0
        self.calls = 0

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}/review"

    async def _answer(self, request: web.Request) -> web.Response:
        self.calls += 1
        review = await request.json()
        response = {"uid": review["request"]["uid"], "allowed": True}
        answer = web.json_response({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response})
        answer.force_close()
        return answer

    @asynccontextmanager
    async def serving(self, context: ssl.SSLContext) -> AsyncIterator["Reviewer"]:
        app = web.Application()
        app.router.add_post("/review", self._answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port, ssl_context=context)
        await site.start()
        self.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            await runner.cleanup()


class Caller:
    """Creates ConfigMaps on a dry run, one after the other, and keeps each refusal with when its call began."""

    def __init__(self, kube: Client, namespace: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self.calls = 0
        self._enough = False
        self.refusals: list[tuple[float, str]] = []

    async def call(self) -> None:
        """One create. Raises APIError where it is refused."""
        name = f"call-{self.calls}"
        self.calls += 1
        metadata = {"name": name, "namespace": self._namespace}
        await self._kube.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}, dry_run=True)

    async def let_in(self, *, seconds: float = 10) -> None:
        """Call until one is let in."""
        async with asyncio.timeout(seconds):
            while True:
                try:
                    await self.call()
                except APIError:
                    await asyncio.sleep(0.02)
                else:
                    return

    async def _call_on(self) -> None:
        while not self._enough:
            began = time.monotonic()
            try:
                await self.call()
            except APIError as error:
                self.refusals.append((began, error.message))
            await asyncio.sleep(0.005)

    @asynccontextmanager
    async def calling(self) -> AsyncIterator["Caller"]:
        self._enough = False
        task = asyncio.create_task(self._call_on())
        try:
            yield self
        finally:
            # A call that is cut off would leave its webhook in the middle of a handshake.
            self._enough = True
            await task

    async def more(self, calls: int) -> None:
        """Wait until so many more have been made."""
        aim = self.calls + calls
        async with asyncio.timeout(30):
            while self.calls < aim:  # noqa: ASYNC110 - no event counts
                await asyncio.sleep(0.01)
