"""HTTP served by a thread and an event loop of its own, so that it is answered while the main loop can't."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

_CUT_OFF: Final = 1.0
"""Seconds that calls have to end in when it stops."""


@asynccontextmanager
async def served_aside(make_app: Callable[[], web.Application], *, host: str, port: int) -> AsyncIterator[int]:
    """Serve within; gives the port. Raises OSError where a port can't be had.

    ``make_app`` is called in the thread, and so is everything that the application does: it may read what the main loop
    keeps, not write it.
    """
    thread = _Thread(make_app, host, port)
    found = await asyncio.to_thread(thread.begin)
    try:
        yield found
    finally:
        await asyncio.to_thread(thread.end)


class _Thread:
    def __init__(self, make_app: Callable[[], web.Application], host: str, port: int) -> None:
        self._make_app = make_app
        self._where = host, port
        self._begun = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._failed: OSError | None = None
        self._port = 0
        # A daemon: it never keeps a process from ending.
        self._thread = threading.Thread(target=self._main, name="probes", daemon=True)

    def begin(self) -> int:
        self._thread.start()
        self._begun.wait()
        if self._failed:
            raise self._failed
        return self._port

    def end(self) -> None:
        if self._loop and self._stop:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            self._begun.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        runner = web.AppRunner(self._make_app(), access_log=None, shutdown_timeout=_CUT_OFF)
        await runner.setup()
        try:
            await web.TCPSite(runner, *self._where).start()
            self._port = runner.addresses[0][1]
            self._begun.set()
            await self._stop.wait()
        except OSError as error:
            self._failed = error
        finally:
            await runner.cleanup()
