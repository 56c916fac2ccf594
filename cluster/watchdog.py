"""Whether a process still does its work: that its event loop turns, and that what it has to do gets on."""

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

BLOCKED: Final = 10.0
"""Seconds without a turn of the event loop after which it counts as blocked: then no call is answered either."""

_EVERY: Final = 0.5
_FRAMES: Final = 12


class Pulse:
    """Beats within ``async with`` as long as the event loop turns; to be asked from another thread."""

    def __init__(self, *, blocked: float = BLOCKED, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._blocked = blocked
        self._monotonic = monotonic
        self._last = monotonic()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._beat(), name="pulse")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _beat(self) -> None:
        while True:
            self._last = self._monotonic()
            await asyncio.sleep(min(_EVERY, self._blocked / 4))

    def problem(self) -> str:
        """What is wrong with the event loop; empty where nothing is."""
        silent = self._monotonic() - self._last
        return f"the event loop has been blocked for {silent:.0f} s" if silent > self._blocked else ""


class Progress:
    """Work that has to get on while there is some: each ``step`` says that it does, ``rest`` that there is none."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._since: float | None = None

    def step(self) -> None:
        """Work has come, or something of it is done."""
        self._since = self._monotonic()

    def rest(self) -> None:
        """There is nothing to do until something happens."""
        self._since = None

    @property
    def stuck(self) -> float:
        """For how many seconds nothing has been done though there is work; 0 where there is none."""
        since = self._since
        return 0.0 if since is None else self._monotonic() - since


def stacks() -> str:
    """Where every other thread is now, for whoever looks into why nothing gets on."""
    threads = {thread.ident: thread.name for thread in threading.enumerate()}
    here = threading.get_ident()
    parts = (
        f"{threads.get(ident, ident)}:\n{''.join(traceback.format_stack(frame)[-_FRAMES:])}"
        for ident, frame in sys._current_frames().items()
        if ident != here
    )
    return "\n".join(parts)
