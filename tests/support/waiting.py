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
MOST: Final = 10
"""Attempts at what is to be quick."""


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


async def takes_less_than(seconds: float, attempt: Callable[[int], Awaitable[float]], *, least: int = 3) -> None:
    """Of ``least`` attempts or more, each of which gives the seconds that it took, one takes less.

    Others use the machine too: only what takes long by itself takes long each of ten times.
    """
    took: list[float] = []
    while len(took) < least or min(took) >= seconds:
        assert len(took) < MOST, f"never in less than {seconds} s: {took}"
        took.append(await attempt(len(took)))
