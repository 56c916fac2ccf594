"""A watch over the event loop: how late it gets to its work, and what it is at when it does not get there at all."""

import asyncio
import sys
import threading
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import clock_gettime, perf_counter, pthread_getcpuclockid, thread_time
from types import FrameType
from typing import Final

import structlog
from prometheus_client import Histogram

_INTERVAL: Final = 0.25
_STUCK: Final = 1.0
_MOST_FRAMES: Final = 12

_log = structlog.get_logger("gpu-webhooks")


@asynccontextmanager
async def lag_watched(lag: Histogram, *, interval: float = _INTERVAL, stuck: float = _STUCK) -> AsyncIterator[None]:
    """While the context lasts, observe the loop's lag each ``interval`` seconds, and log where it is ``stuck``.

    The log is written by a thread, while the loop is at it; ``cpu`` in it is for how much of the time the loop's thread
    had a processor: with none it waits for something, or others have them all. A probe that comes meanwhile has no
    answer, and that tells a kubelet what it has to know.
    """
    watch = _Watch(lag, interval=interval, stuck=stuck)
    beating = asyncio.create_task(watch.beat())
    thread = threading.Thread(target=watch.look, args=(threading.get_ident(),), name="loop-lag", daemon=True)
    thread.start()
    try:
        yield
    finally:
        watch.over.set()
        beating.cancel()
        thread.join()


class _Watch:
    def __init__(self, lag: Histogram, *, interval: float, stuck: float) -> None:
        self.over = threading.Event()
        self._lag = lag
        self._interval = interval
        self._stuck = stuck
        self._due = perf_counter() + interval
        self._used = thread_time()

    async def beat(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            now = perf_counter()
            self._lag.observe(max(0.0, now - self._due))
            self._due = now + self._interval
            self._used = thread_time()

    def look(self, loops_thread: int) -> None:
        """Of the thread: tell of each time that the loop is stuck, once."""
        looked, told = perf_counter(), 0.0
        used = pthread_getcpuclockid(loops_thread)
        while not self.over.wait(self._interval):
            before, looked = looked, perf_counter()
            due = self._due
            # Where this thread is late itself the whole process was stopped, and the loop is at nothing.
            if due == told or looked - due < self._stuck or looked - before > self._interval + self._stuck / 2:
                continue
            told = due
            if frame := sys._current_frames().get(loops_thread):
                cpu = round(clock_gettime(used) - self._used, 2)
                _log.error("the event loop is stuck", seconds=round(looked - due, 2), cpu=cpu, at=_where(frame))


def _where(frame: FrameType) -> list[str]:
    """The functions that run, the innermost first, without any values."""
    found = traceback.extract_stack(frame)
    return [f"{Path(at.filename).name}:{at.lineno} {at.name}" for at in reversed(found[-_MOST_FRAMES:])]
