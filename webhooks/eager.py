"""Tasks that begin before they are scheduled."""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any


def eager(work: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> "asyncio.Task[None]":
    """A task, begun at once where Python can."""
    if sys.version_info >= (3, 12):
        return asyncio.Task(work, loop=loop, eager_start=True)
    return loop.create_task(work)
