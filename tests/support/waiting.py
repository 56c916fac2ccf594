"""Waiting for what others bring about."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from controlplane.client import Client, Object
from controlplane.errors import APIError

T = TypeVar("T")
FIRST: Final = 0.05
LAST: Final = 0.3
"""Seconds between two looks, at first and in the end: a long wait isn't to cost what is waited for its processor."""
MOST: Final = 6
"""Measures of what is to take less than a second."""


async def eventually(look: Callable[[], Awaitable[T]], *, seconds: float = 30, every: float | None = None) -> T:
    """Look until something true comes back, and give it. What keeps it from that in the end is raised: the API server's
    refusal, a failed assertion, or an AssertionError that names ``look``.

    ``every`` are the seconds between two looks; where none is said, they are more the longer it takes.
    """
    deadline = time.monotonic() + seconds
    pause = FIRST if every is None else every
    while True:
        try:
            if found := await look():
                return found
            problem: Exception = AssertionError(f"{look} gives {found!r}, after {seconds} s still")
        except (APIError, AssertionError) as error:
            problem = error
        if time.monotonic() > deadline:
            raise problem
        await asyncio.sleep(pause)
        pause = min(pause * 1.1, LAST) if every is None else every


async def exists(kube: Client, obj: Object) -> bool:
    """Whether the object that ``obj`` names is there."""
    try:
        await kube.get(obj)
    except APIError as error:
        if error.code == 404:
            return False
        raise
    return True


async def gone(kube: Client, obj: Object, *, seconds: float = 40) -> None:
    """Wait until it is not there any more."""

    async def is_gone() -> bool:
        return not await exists(kube, obj)

    await eventually(is_gone, seconds=seconds)


async def best_of_six(measure: Callable[[], Awaitable[float]], *, least: int = 1) -> float:
    """Seconds, the fewest of measures made until one is below one, ``least`` to six.

    Others use the machine too, some for seconds on end: after a slow one there is a pause, which grows.
    """
    took: list[float] = []
    while len(took) < least or (len(took) < MOST and min(took) >= 1):
        took.append(await measure())
        if min(took) >= 1 and len(took) < MOST:
            await asyncio.sleep(2 * len(took))
    return min(took)
