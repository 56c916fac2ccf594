"""Two replicas of the controller: one writes, and the other takes over when that one dies or is held up."""

import asyncio
from collections.abc import Sequence

import pytest
from controlled import Controller
from controlplane.client import Client
from gpukinds import API_VERSION
from pooled import Pool
from waiting import eventually

# A takeover waits for a whole Lease, and whoever comes first sets the cluster up.
pytestmark = pytest.mark.timeout(240)

TAKEN_OVER = 40.0
"""Seconds within which another leads: 6 of the Lease, 1 until it looks, and what a busy machine adds."""


async def the_leader(controllers: Sequence[Controller]) -> Controller:
    async def leading() -> Controller | None:
        found = [one for one in controllers if one.program is not None and one.leads]
        return found[0] if len(found) == 1 else None

    found = await eventually(leading, seconds=TAKEN_OVER)
    assert found is not None
    return found


async def held(kube: Client, pool: Pool, count: int) -> bool:
    devices = await kube.list(API_VERSION, "GPUDevice", pool.namespace)
    phases = [(one.get("status") or {}).get("phase") for one in devices]
    return phases.count("Held") == count


async def never_over_held(kube: Client, pool: Pool, gpus: int) -> None:
    """Counted on the API objects: no node has more held than it has GPUs."""
    held_on: dict[str, int] = {}
    for one in await kube.list(API_VERSION, "GPUDevice", pool.namespace):
        if node := (one.get("status") or {}).get("nodeName"):
            held_on[node] = held_on.get(node, 0) + one["spec"]["count"]
    assert all(count <= gpus for count in held_on.values()), held_on


async def test_when_the_leader_is_killed_the_other_holds_on(
    kube: Client, pool: Pool, both: Sequence[Controller]
) -> None:
    await pool.order("before")
    await pool.becomes("before", phase="Held")
    leader = await the_leader(both)
    await asyncio.gather(*(pool.order(f"meanwhile-{number}") for number in range(3)))

    await asyncio.to_thread(leader.kill)
    await pool.node("b", gpus=1)
    await pool.order("after")

    await eventually(lambda: held(kube, pool, 2), seconds=TAKEN_OVER)
    assert await the_leader(both) is not leader
    await never_over_held(kube, pool, 1)
    await pool.becomes("before", phase="Held")


async def test_a_leader_that_was_held_up_past_its_lease_never_writes_beside_the_next(
    kube: Client, pool: Pool, both: Sequence[Controller]
) -> None:
    leader = await the_leader(both)
    other = next(one for one in both if one is not leader)
    # It is stopped in the middle of holding these.
    orders = asyncio.gather(*(pool.order(f"gpu-{number}") for number in range(20)))
    await asyncio.sleep(0.1)
    await asyncio.to_thread(leader.pause)
    await orders
    await pool.node("b", gpus=8)

    assert await the_leader([other]) is other
    await pool.node("c", gpus=4)

    await eventually(lambda: held(kube, pool, 13), seconds=TAKEN_OVER)
    wrote = writes(leader)
    await asyncio.to_thread(leader.resume)
    await pool.node("d", gpus=2)

    async def knows() -> bool:
        return any(line["event"] == "not leading any more" for line in leader.lines()) and not leader.leads

    await eventually(knows)
    await eventually(lambda: held(kube, pool, 15))
    assert writes(leader) == wrote
    assert other.leads
    await never_over_held(kube, pool, 8)


def writes(controller: Controller) -> int:
    return sum(line["event"] == "written" for line in controller.lines())


async def test_a_leader_that_is_asked_to_end_hands_over_within_seconds(pool: Pool, both: Sequence[Controller]) -> None:
    leader = await the_leader(both)

    await asyncio.to_thread(leader.terminate)
    await pool.order()

    await pool.becomes(phase="Held", seconds=8)
    assert [line["level"] for line in leader.lines() if line["level"] == "error"] == []
