"""A task that keeps something right for as long as it is needed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import NoReturn, Self


class Keeping:
    """`async with` it, or `start` and `stop` it; in between `keep` runs in a task of its own."""

    _task: asyncio.Task[NoReturn] | None = None

    async def keep(self) -> NoReturn:
        """Keep it right, until cancelled."""
        raise NotImplementedError

    async def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self.keep())

    async def stop(self) -> None:
        """End that task. What was kept stays as it is."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
