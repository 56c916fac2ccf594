"""Two VMIs that race for one device, past two replicas of the webhooks: one is bound, the other told whose it is."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest
from controlplane.client import Answer, Client
from controlplane.errors import APIError
from gpukinds import API_VERSION
from installed import Installed
from machines import launcher, vmi
from pooled import Pool
from refusals import answered, refused
from rerouted import served_by
from waiting import eventually

# Whoever comes first sets the cluster up; and what is broken off here would leave the webhooks to be called elsewhere.
pytestmark = pytest.mark.timeout(300)

RACES, ROUNDS = 40, 5


async def test_of_two_that_race_for_a_device_one_is_bound_and_the_other_told_whose_it_is(
    kube: Client, pool: Pool, home: Installed
) -> None:
    await pool.node("b", gpus=RACES * ROUNDS)
    replicas = [home, Installed(home.plane)]
    orders = {"className": pool.name, "count": 1}
    stored: Counter[int] = Counter()
    async with served_by(
        kube,
        home,
        replicas,
        attempt=lambda: pool.virt_controller.create(vmi(pool.namespace, "try", orders=orders), dry_run=True),
    ):
        before = [answered(replica) for replica in replicas]
        for number in range(ROUNDS):
            stored += await a_round(kube, pool, number)
        shares = [(answered(replica) - old).total() for replica, old in zip(replicas, before, strict=True)]

    bound = [one["status"]["binding"]["uid"] for one in await kube.list(API_VERSION, "GPUDevice", pool.namespace)]
    assert (len(bound), len(set(bound))) == (RACES * ROUNDS, RACES * ROUNDS)
    # Most were races: both VMIs came past the webhooks, before either was bound. And both replicas were asked.
    assert stored[2] > RACES, stored
    assert min(shares) > sum(shares) / 10, shares


async def a_round(kube: Client, pool: Pool, number: int) -> Counter[int]:
    """So many races at once; how many VMIs were stored in each, counted."""
    devices = [f"gpu-{number}-{one}" for one in range(RACES)]
    await asyncio.gather(*(pool.order(name) for name in devices))
    rivals = dict(zip(devices, await asyncio.gather(*(race(pool, name) for name in devices)), strict=True))

    async def bound() -> dict[str, dict[str, str]]:
        found = {one["metadata"]["name"]: one for one in await kube.list(API_VERSION, "GPUDevice", pool.namespace)}
        bindings = {name: (found[name].get("status") or {}).get("binding") for name in devices}
        assert all(bindings.values()), bindings
        return {name: binding for name, binding in bindings.items() if binding}

    bindings = await eventually(bound, every=0.2)
    await asyncio.gather(*(judged(pool, rivals[name], bindings[name]) for name in devices))
    assert await bound() == bindings
    return Counter(map(len, rivals.values()))


async def race(pool: Pool, device: str) -> Sequence[Answer]:
    """Two VMIs at once for a device; those that were stored."""
    tries = (pool.machine(f"{who}-{device}", refers_to=device) for who in ("left", "right"))
    answers = await asyncio.gather(*tries, return_exceptions=True)
    for late in (one for one in answers if isinstance(one, BaseException)):
        # The webhooks knew already that the other has it.
        assert isinstance(late, APIError)
        assert late.code == 409
    return [one for one in answers if not isinstance(one, BaseException)]


async def judged(pool: Pool, machines: Sequence[Answer], binding: dict[str, str]) -> None:
    """The launcher of the one that is bound is let in, and that of the other is told which VMI has the device."""
    assert binding["uid"] in [machine["metadata"]["uid"] for machine in machines]
    for machine in machines:
        if machine["metadata"]["uid"] == binding["uid"]:
            await pool.virt_controller.create(launcher(machine))
        else:
            refusal = await refused(pool.virt_controller.create(launcher(machine)))
            assert repr(binding["name"]) in refusal.said
