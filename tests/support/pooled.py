"""A class of GPUs with nodes of its own, so that tests on one cluster keep out of each other's way."""

import itertools
from collections.abc import Mapping
from typing import Any, Final

from actors import VIRT_CONTROLLER, Tenant, bind_pod, make_node
from controlplane.client import Answer, Client, Object, ref
from gpukinds import API_VERSION, gpu_class
from machines import device, launcher, vmi
from waiting import eventually

POOL: Final = "example.com/pool"
_numbers = itertools.count(1)


class Pool:
    """A class, its nodes, and what a tenant and KubeVirt do with them."""

    def __init__(self, kube: Client, tenant: Tenant) -> None:
        number = next(_numbers)
        self.kube, self.tenant, self.namespace = kube, tenant, tenant.namespace
        self.virt_controller = kube.as_(VIRT_CONTROLLER)
        self.name = f"class-{number}"
        self.resource = f"nvidia.com/GPU-{number}"

    async def offer(self, **spec: Any) -> Object:
        """Make the class."""
        source = {"devicePlugin": {"resourceName": self.resource, "nodeSelector": {POOL: self.name}}}
        return await self.kube.create(gpu_class(self.name, **{"source": source, **spec}))

    def node_name(self, name: str) -> str:
        return f"{self.name}-{name}"

    async def node(self, name: str = "a", gpus: int = 1) -> str:
        """Make a node with so many GPUs; its name."""
        found = self.node_name(name)
        await make_node(self.kube, found, allocatable={self.resource: str(gpus)}, labels={POOL: self.name})
        return found

    async def order(self, name: str = "my-gpu", count: int = 1) -> Object:
        """The tenant orders a device."""
        return await self.tenant.kube.create(device(self.namespace, name, of=self.name, count=count))

    def device(self, name: str = "my-gpu") -> Object:
        return ref(API_VERSION, "GPUDevice", name, self.namespace)

    async def machine(self, name: str = "desk", **options: Any) -> Answer:
        """virt-controller makes a VMI."""
        return await self.virt_controller.create(vmi(self.namespace, name, **options))

    async def status(self, name: str = "my-gpu") -> Mapping[str, Any]:
        found: Mapping[str, Any] = (await self.kube.get(self.device(name))).get("status") or {}
        return found

    async def becomes(self, name: str = "my-gpu", *, seconds: float = 10, **wanted: Any) -> Mapping[str, Any]:
        """Wait until a device's status says so; the status. ``vm`` is the uid that it is bound to, ``reason`` why it
        waits; None is what is not there."""

        async def look() -> Mapping[str, Any]:
            status = await self.status(name)
            told = {**status, "vm": (status.get("binding") or {}).get("uid"), "reason": reason(status)}
            found = {key: told.get(key) for key in wanted}
            assert found == wanted, f"{name} has {found}, not {wanted}: {status}"
            return status

        return await eventually(look, seconds=seconds, every=0.02)

    async def runs(self, machine: Object, *, migration: str = "", node: str = "") -> Object:
        """virt-controller makes the launcher as soon as it is let in, and the scheduler puts it where it has to be."""

        async def let_in() -> Object:
            return await self.virt_controller.create(launcher(machine, migration=migration))

        pod = await eventually(let_in, seconds=20)
        await bind_pod(self.kube, pod, node or pinned(pod))
        return pod


def pinned(pod: Object) -> str:
    """The node that a pod is pinned to."""
    affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    [term] = affinity["nodeSelectorTerms"]
    return str(term["matchFields"][0]["values"][0])


def reason(status: Mapping[str, Any]) -> str | None:
    """Why a device is not held."""
    held = next((one for one in status.get("conditions") or () if one["type"] == "Held"), None)
    return str(held["reason"]) if held and held["status"] == "False" else None
