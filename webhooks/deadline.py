"""Work that has to be done in time."""

import asyncio
from collections.abc import Coroutine, Generator
from functools import partial
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def in_time(work: Coroutine[Any, Any, T], until: float | None) -> T:
    """What ``work`` returns. Raises TimeoutError at ``until``, in seconds of the running loop's clock; None is never.

    Work that is late before it begins is not begun, and what it waits for is of no use to it once it is late. Work that
    never waits, as most decisions don't, costs no timer.
    """
    if until is not None and asyncio.get_running_loop().time() >= until:
        work.close()
        raise TimeoutError
    try:
        awaited = work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    async with asyncio.timeout_at(until) as limit:
        return await _resumed(work, awaited, limit)


@coroutine
def _resumed(work: Coroutine[Any, Any, T], awaited: Any, limit: asyncio.Timeout) -> Generator[Any, Any, T]:
    """Go on with work that waits for ``awaited``."""
    while True:
        try:
            sent = yield awaited
        except GeneratorExit:
            work.close()
            raise
        except BaseException as error:  # noqa: BLE001 - it is the work's: a cancellation above all
            step = partial(work.throw, error)
        else:
            step = partial(work.send, sent)
        if _is_due(limit):
            awaited = None
            continue
        try:
            awaited = step()
        except StopIteration as done:
            result: T = done.value
            return result


def _is_due(limit: asyncio.Timeout) -> bool:
    """Whether the limit is about to cancel, and the loop only has not come to it."""
    until = limit.when()
    return until is not None and not limit.expired() and asyncio.get_running_loop().time() >= until
