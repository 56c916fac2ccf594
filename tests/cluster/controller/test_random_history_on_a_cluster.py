"""A random history on a real control plane, with the controller killed in the middle: judged by all that was stored."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from actors import bind_pod
from controlled import Controller
from controlplane.client import Client, Object, ref
from controlplane.errors import APIError
from gpukinds import API_VERSION
from history import History
from installed import Installed
from machines import launcher, migration
from pooled import POOL, Pool, pinned
from waiting import eventually

pytestmark = pytest.mark.timeout(180)

STEPS = 110
KILLS = (30, 75)
"""After which steps the leader is killed."""
NODES = {"a": 1, "b": 3, "c": 4}
DEVICES = [f"gpu-{number}" for number in range(8)]


class Cluster:
    """Everybody but the controller, one step after the other."""

    def __init__(self, pool: Pool, seed: int) -> None:
        self.pool, self.kube, self.chance = pool, pool.kube, Random(seed)  # noqa: S311 - a history, no secret
        self.steps: Sequence[Callable[[], Awaitable[None]]] = (
            *(self.order, self.order, self.start, self.start, self.launch, self.launch, self.launch),
            *(self.give_up, self.stop, self.kubelet, self.migrate, self.migrate, self.a_node, self.a_node),
            *(self.resell, self.let_go, self.let_go, self.let_go),
        )

    def device(self) -> str:
        return self.chance.choice(DEVICES)

    async def step(self) -> None:
        with suppress(APIError):
            await self.chance.choice(self.steps)()

    async def order(self) -> None:
        await self.pool.order(self.device(), self.chance.choice((1, 1, 2)))

    async def give_up(self) -> None:
        await self.pool.tenant.kube.delete(self.pool.device(self.device()))

    async def let_go(self) -> None:
        """All of a device at once, in an order that leaves the controller no time."""
        name = self.device()
        for machine in await self.machines():
            if machine["metadata"]["name"].startswith(name):
                await self.pool.virt_controller.delete(machine, propagation="Background")
        await self.pool.tenant.kube.delete(self.pool.device(name))
        await self.kubelet()

    async def start(self) -> None:
        name = self.device()
        await self.pool.machine(f"{name}-{self.chance.choice('xy')}", refers_to=name)

    async def machines(self) -> list[dict[str, Any]]:
        found = await self.kube.list("kubevirt.io/v1", "VirtualMachineInstance", self.pool.namespace)
        self.chance.shuffle(found)
        return found

    async def pods(self) -> list[dict[str, Any]]:
        return await self.kube.list("v1", "Pod", self.pool.namespace)

    async def stop(self) -> None:
        for machine in (await self.machines())[:1]:
            await self.pool.virt_controller.delete(machine, propagation="Background")

    async def launch(self) -> None:
        """Whatever is let in runs where it is pinned to."""
        for machine in await self.machines():
            with suppress(APIError):
                await self.runs(machine, await self.pool.virt_controller.create(launcher(machine)))

    async def runs(self, machine: Object, pod: Object) -> None:
        await bind_pod(self.kube, pod, pinned(pod))
        await self.kube.patch(machine, {"status": {"phase": "Running", "nodeName": pinned(pod)}})

    async def kubelet(self) -> None:
        """Pods of VMIs that are gone end."""
        alive = {machine["metadata"]["uid"] for machine in await self.machines()}
        for pod in await self.pods():
            if pod["metadata"]["ownerReferences"][0]["uid"] not in alive:
                await self.ends(pod)

    async def ends(self, pod: Object) -> None:
        await self.kube.delete(ref("v1", "Pod", pod["metadata"]["name"], self.pool.namespace), grace=0)

    async def migrate(self) -> None:
        """To its end, or given up on the way."""
        for machine in [one for one in await self.machines() if "nodeName" in one.get("status", {})][:1]:
            sources = [pod for pod in await self.pods() if _owner(pod) == machine["metadata"]["uid"]]
            move = await self.pool.virt_controller.create(migration(machine, machine["metadata"]["name"]))
            await asyncio.sleep(0.2)
            if self.chance.random() < 0.7:
                with suppress(APIError):
                    pod = launcher(machine, migration=move["metadata"]["uid"])
                    await self.runs(machine, await self.pool.virt_controller.create(pod))
                    for source in sources:
                        await self.ends(source)
            await self.kube.delete(move)

    async def a_node(self) -> None:
        name = self.chance.choice(sorted(NODES))
        node = ref("v1", "Node", self.pool.node_name(name))
        match self.chance.choice(("cordon", "uncordon", "uncordon", "remove", "come back", "come back")):
            case "remove":
                await self.kube.delete(node)
            case "come back":
                await self.pool.node(name, NODES[name])
            case what:
                await self.kube.patch(node, {"spec": {"unschedulable": what == "cordon"}})

    async def resell(self) -> None:
        """For a moment, the class sells what no node has."""
        for resource in ("nvidia.com/OTHER", self.pool.resource):
            await self.kube.patch(self.offer, {"spec": {"source": {"devicePlugin": {"resourceName": resource}}}})
            await asyncio.sleep(0.15)

    @property
    def offer(self) -> dict[str, Any]:
        return ref(API_VERSION, "GPUClass", self.pool.name)

    async def everything_ends(self) -> None:
        for machine in await self.machines():
            await self.pool.virt_controller.delete(machine, propagation="Background")
        await self.kubelet()
        for device in await self.kube.list(API_VERSION, "GPUDevice", self.pool.namespace):
            await self.pool.tenant.kube.delete(device)


def _owner(pod: Object) -> str:
    return str(pod["metadata"]["ownerReferences"][0]["uid"])


async def kill_the_leader(kube: Client, home: Installed, both: Sequence[Controller]) -> None:
    """As a node that is lost does, with the Lease let go so that the other need not wait for its end."""
    leader = await eventually(lambda: _leading(both), seconds=30)
    await asyncio.to_thread(leader.kill)
    lease = ref("coordination.k8s.io/v1", "Lease", "gpu-controller", home.namespace)
    await kube.patch(lease, {"spec": {"holderIdentity": ""}})
    await asyncio.to_thread(leader.start, ready=False)


async def _leading(both: Sequence[Controller]) -> Controller:
    found = [one for one in both if one.program is not None and one.leads]
    assert found, "nobody leads"
    return found[0]


async def test_whatever_happens_nothing_is_held_twice_taken_back_or_left_behind(
    kube: Client, home: Installed, pool: Pool, both: Sequence[Controller]
) -> None:
    cluster, history = Cluster(pool, seed=7), History()
    async with history.recorded(kube, pool.namespace, nodes=f"{POOL}={pool.name}"):
        for name in ("b", "c"):
            await pool.node(name, NODES[name])
        for step in range(STEPS):
            await cluster.step()
            await asyncio.sleep(cluster.chance.random() * 0.06)
            if step in KILLS:
                # In the middle of holding these.
                orders = [pool.order(f"meanwhile-{step}-{number}") for number in range(5)]
                await asyncio.gather(*orders, kill_the_leader(kube, home, both))
        await cluster.everything_ends()

        async def all_is_free() -> bool:
            left = await kube.list(API_VERSION, "GPUDevice", pool.namespace)
            assert not left, f"left behind: {left}"
            status = (await kube.get(cluster.offer))["status"]
            assert status["held"] == 0
            return True

        await eventually(all_is_free, seconds=30)

    history.judge()
    assert history.holds > 10, "a history in which hardly anything is held shows nothing"
