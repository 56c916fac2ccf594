"""Connections that have grown old end with an answer, so that those who call spread over all replicas again."""

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest
from slow import SlowCatalog
from wire import WAITS, Served, call, serving

from certs import SelfSigned
from webhooks.shortcut import Shortcuts
from webhooks.testing import InMemoryCatalog


def grow_old(served: Served) -> None:
    """Have all connections be so old that they should end."""
    for shortcut in served.server.shortcuts._connections.values():
        shortcut._old_at = 0.0


@pytest.fixture
def gpu_catalog(gpu_catalog: InMemoryCatalog) -> SlowCatalog:
    return SlowCatalog.of(gpu_catalog)


@pytest.fixture
async def served(gpu_catalog: SlowCatalog) -> AsyncIterator[Served]:
    async with serving(gpu_catalog, SelfSigned(names=["127.0.0.1"]), listen={}) as served:
        yield served


@pytest.mark.parametrize("way", ["long", "short"])
async def test_an_old_connection_ends_with_its_next_answer_and_not_before(served: Served, way: str) -> None:
    numbers = itertools.count()
    caller = await served.caller()

    async def post() -> tuple[int, bool]:
        answer = await caller.post(headers=f"X: {next(numbers)}\r\n" if way == "long" else "")
        return answer.code, answer.closes

    young = [await post() for _ in range(2)]
    grow_old(served)
    assert not await caller.is_cut_off(within=0.1)
    old = await post()

    assert (young, old) == ([(200, False)] * 2, (200, True))
    assert await caller.is_cut_off()
    assert served.server.shortcuts.taken == (2 if way == "short" else 0)


async def test_what_was_sent_behind_a_call_is_answered_before_an_old_connection_ends(
    served: Served, gpu_catalog: SlowCatalog
) -> None:
    caller = await served.caller()
    await caller.post()
    caller.send(call(WAITS))
    await gpu_catalog.reached.wait()
    caller.send(call())
    await asyncio.sleep(0.01)
    grow_old(served)

    gpu_catalog.go.set()
    answers = [await caller.answer() for _ in range(2)]

    assert [answer.code for answer in answers] == [200, 200]
    assert [answer.closes for answer in answers] == [False, True]
    assert await caller.is_cut_off()


async def test_connections_that_are_made_together_do_not_end_together(served: Served) -> None:
    shortcuts = Shortcuts(served.transport, age=300)

    lives = sorted(shortcuts.life() for _ in range(1000))

    assert 150 <= lives[0] < 160
    assert 290 < lives[-1] <= 300
    assert 200 < lives[500] < 250


@pytest.mark.parametrize(("age", "closes"), [(0.0, [False, False]), (1e-6, [True])], ids=["kept", "old at once"])
async def test_the_age_is_what_is_set_and_0_keeps_connections(
    gpu_catalog: SlowCatalog, age: float, closes: list[bool]
) -> None:
    async with serving(gpu_catalog, SelfSigned(names=["127.0.0.1"]), listen={"connection_age": age}) as served:
        caller = await served.caller()

        answers = [await caller.post() for _ in closes]

    assert [answer.closes for answer in answers] == closes
