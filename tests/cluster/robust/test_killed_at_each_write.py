"""The controller on a real control plane, killed at each of its writes in turn: the next one comes to the same end."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from controlplane.client import Client, ref
from controlplane.errors import APIError
from controlplane.plane import ControlPlane
from corner import Cornered, Fate, controlled, cornered, new_corner
from stage import Stage
from waiting import eventually

# Whoever comes first sets the cluster up.
pytestmark = pytest.mark.timeout(240)

AT_ONCE = 4
"""Controllers that run at the same time: more would only wait for each other."""

NODES = {"new": "corner-a", "plain": "corner-b", "lost": "corner-e", "moving": "corner-f", "stuck": "corner-i"}
"""Where each device is held in the end."""

REST = 1.0
"""Seconds without a write after which one is at rest: a plan takes a few hundredths of one."""

SETTLED = 0.4
"""Seconds that it takes at least until all is written: before, looking costs more than it tells."""

ENOUGH = 15.0
"""Seconds within which even a busy machine makes all writes."""


async def at_rest(api: Cornered) -> None:
    """Wait until it writes nothing more."""

    async def resting() -> bool:
        before = api.writes.count
        await asyncio.sleep(REST)
        return 0 < before == api.writes.count

    await eventually(resting, every=0)


async def run_to_the_end(plane: ControlPlane, kube: Client) -> tuple[dict[str, Any], int]:
    """What comes of it when nobody is killed, and after how many writes."""
    stage = Stage(kube, new_corner())
    await stage.set()
    async with cornered(plane, stage.corner) as api, controlled(api):
        await at_rest(api)
    return await stage.seen(), api.writes.count


async def run_with(plane: ControlPlane, kube: Client, fate: Fate, expected: dict[str, Any]) -> bool:
    """The same with something happening to one write; whether that write came."""
    stage = Stage(kube, new_corner())
    await stage.set()
    async with cornered(plane, stage.corner, fate) as first, controlled(first):
        if fate.killed:
            await dead(first)
        if not first.writes.dead.is_set():
            await looks_like(stage, expected, fate)
    if first.writes.dead.is_set():
        # As if the time of the dead one's Lease was up.
        lease = ref("coordination.k8s.io/v1", "Lease", "gpu-controller", stage.corner)
        await kube.patch(lease, {"spec": {"holderIdentity": ""}})
        async with cornered(plane, stage.corner) as second, controlled(second):
            await looks_like(stage, expected, fate)
    return first.writes.count >= fate.write


async def dead(api: Cornered) -> None:
    """Wait until it is killed, or has had the time for all it writes: a run may do with fewer writes than another."""
    with suppress(TimeoutError):
        await asyncio.wait_for(api.writes.dead.wait(), ENOUGH)


async def looks_like(stage: Stage, expected: dict[str, Any], fate: Fate) -> None:
    async def equal() -> bool:
        try:
            found = await stage.seen()
        except APIError as error:
            raise AssertionError(str(error)) from error
        differ = {key: (found.get(key), expected.get(key)) for key in found.keys() | expected.keys()}
        assert found == expected, {key: both for key, both in differ.items() if both[0] != both[1]}
        return True

    await asyncio.sleep(SETTLED)
    try:
        await eventually(equal, seconds=60, every=0.6)
    except AssertionError as error:
        raise AssertionError(f"{fate}: {error}") from error


async def test_killed_at_each_write_in_turn_the_next_one_comes_to_the_same_end(
    plane: ControlPlane, kube: Client
) -> None:
    """Killed when the API server has taken a write, which nobody hears of, and, at the first, before: before any other
    is as after the one before. And one whose answer is lost to a controller that lives on."""
    expected, writes = await run_to_the_end(plane, kube)
    assert {name: expected[f"GPUDevice {name}"]["status"]["nodeName"] for name in NODES} == NODES
    assert {"GPUDevice gone", "GPUClass corner-retired", "Pod virt-launcher-stuck"}.isdisjoint(expected)
    assert expected["GPUDevice moving"]["status"]["migration"]["nodeName"] == "corner-g"
    assert writes > 25
    fates = [Fate(write=1, taken=False)]
    fates += [Fate(write=number) for number in range(1, writes + 1)]
    fates.append(Fate(write=writes // 2, killed=False))
    room = asyncio.Semaphore(AT_ONCE)

    async def one(fate: Fate) -> bool:
        async with room:
            return await run_with(plane, kube, fate, expected)

    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(one(fate)) for fate in fates]

    came = sum(run.result() for run in runs)
    assert came >= 0.9 * len(fates), f"of {len(fates)} writes that something was to happen to {came} came"
