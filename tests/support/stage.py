"""A corner in which a controller has everything to do at once, and what it looks like afterwards."""

import asyncio
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from actors import owner_reference
from controlplane.client import Client, Object, ref
from corner import LABEL
from gpukinds import API_VERSION, gpu_class
from machines import DEVICE_REFERENCE, vm
from waiting import eventually

RESOURCE: Final = "nvidia.com/GPU"
_FINALIZER: Final = "gpu.cozystack.io/device"
_CLASS_FINALIZER: Final = "gpu.cozystack.io/class-protection"
_KUBEVIRT: Final = "kubevirt.io/v1"
_READY: Final = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
_LOOKED_AT: Final = (
    (API_VERSION, "GPUDevice"),
    (_KUBEVIRT, "VirtualMachineInstance"),
    ("v1", "Pod"),
    ("cozystack.io/v1alpha1", "Workload"),
    ("cozystack.io/v1alpha1", "WorkloadMonitor"),
)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_FLEETING: Final = frozenset(
    {"resourceVersion", "uid", "creationTimestamp", "managedFields", "generation", "heldAt", "lastTransitionTime"}
)


class Stage:
    """Sets it up as the platform, tenants and KubeVirt would. No two orders could be held on the same node.

    ``fresh`` is a class that nobody has seen yet, with an order of a VM and a plain one; of ``settled``, a device is
    held on a cordoned node, one is used by a VM that migrates, one by a VM whose launcher has no room; ``gone`` is
    deleted, of a VM that is not there any more, and so is the class ``retired``.
    """

    def __init__(self, kube: Client, corner: str) -> None:
        self.kube, self.corner = kube, corner

    async def set(self) -> None:
        """Set everything up."""
        await self.namespace()
        # One for all: without an owner that is there they would be collected as garbage.
        owner = await self.kube.create(vm(self.corner, "owner"))
        await asyncio.gather(
            *(self.gpu_class(name, guarded=name != "fresh") for name in ("fresh", "settled", "retired")),
            *(self.node(name, of, gpus) for of, nodes in _NODES.items() for name, gpus in nodes.items()),
            self.order("new", "fresh", 1),
            self.order("plain", "fresh", 2),
            self._held("gone", "fresh", 4, on="z", bound={"name": "long-gone", "uid": "long-gone"}),
            self._held("lost", "settled", 3, on="c"),
            self._machine("new", owner),
        )
        moving, stuck = await asyncio.gather(self._machine("moving", owner, runs_on="f"), self._machine("stuck", owner))
        await asyncio.gather(self._uses(moving, 2, on="f"), self._uses(stuck, 1, on="h"))
        metadata = {"name": "move", "namespace": self.corner}
        move = {"apiVersion": _KUBEVIRT, "kind": "VirtualMachineInstanceMigration", "metadata": metadata}
        await asyncio.gather(
            self.kube.create({**move, "spec": {"vmiName": "moving"}}),
            self.kube.delete(ref(API_VERSION, "GPUDevice", "gone", self.corner)),
            self.kube.delete(ref(API_VERSION, "GPUClass", f"{self.corner}-retired")),
        )

    async def namespace(self) -> None:
        """Begin, with a namespace in which pods can be made."""
        await self.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.corner}})
        await eventually(lambda: self.kube.get(ref("v1", "ServiceAccount", "default", self.corner)))

    async def gpu_class(self, name: str, *, guarded: bool) -> None:
        source = {"devicePlugin": {"resourceName": RESOURCE, "nodeSelector": {LABEL: self.corner, "of": name}}}
        made = gpu_class(f"{self.corner}-{name}", source=source)
        made["metadata"] |= {"labels": {LABEL: self.corner}, "finalizers": [_CLASS_FINALIZER] if guarded else []}
        await self.kube.create(made)

    async def node(self, name: str, of: str, gpus: int) -> None:
        metadata = {"name": f"{self.corner}-{name}", "labels": {LABEL: self.corner, "of": of}}
        status = {"allocatable": {RESOURCE: str(gpus)}, "conditions": [_READY]}
        spec = {"unschedulable": True} if name == "c" else {}
        await self.kube.create(
            {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status}
        )

    async def order(self, name: str, of: str, count: int, **metadata: Any) -> Object:
        marks = {"name": name, "namespace": self.corner, **metadata}
        spec = {"className": f"{self.corner}-{of}", "count": count}
        return await self.kube.create({"apiVersion": API_VERSION, "kind": "GPUDevice", "metadata": marks, "spec": spec})

    async def _held(self, name: str, of: str, count: int, *, on: str, bound: Mapping[str, str] | None = None) -> None:
        made = await self.order(name, of, count, finalizers=[_FINALIZER])
        status: dict[str, Any] = {"phase": "InUse" if bound else "Held", "resourceName": RESOURCE}
        status |= {"nodeName": f"{self.corner}-{on}", "heldAt": _stamp()}
        await self.kube.patch(
            made, {"status": {**status, **({"binding": bound} if bound else {})}}, subresource="status"
        )

    async def _machine(self, name: str, owner: Object, *, runs_on: str = "") -> Object:
        metadata = {
            "name": name,
            "namespace": self.corner,
            "labels": {DEVICE_REFERENCE: name},
            "ownerReferences": [owner_reference(owner)],
        }
        status = {"phase": "Running", "nodeName": f"{self.corner}-{runs_on}"} if runs_on else {"phase": "Scheduling"}
        made = {"apiVersion": _KUBEVIRT, "kind": "VirtualMachineInstance", "metadata": metadata}
        return await self.kube.create({**made, "spec": {"domain": {"devices": {}}}, "status": status})

    async def _uses(self, machine: Object, count: int, *, on: str) -> None:
        """A VM has its device and its launcher; where it does not run, the launcher has waited too long."""
        name, uid = machine["metadata"]["name"], machine["metadata"]["uid"]
        node, runs = f"{self.corner}-{on}", "nodeName" in machine["status"]
        await self._held(name, "settled", count, on=on, bound={"name": name, "uid": uid})
        amounts = {RESOURCE: str(count)}
        container = {"name": "compute", "image": "example.org/launcher", "resources": {"limits": amounts}}
        fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
        terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
        spec: dict[str, Any] = {
            "automountServiceAccountToken": False,
            "containers": [container],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
            **({"nodeName": node} if runs else {}),
        }
        metadata: dict[str, Any] = {"name": f"virt-launcher-{name}", "namespace": self.corner}
        metadata["ownerReferences"] = [owner_reference(machine)]
        pod = await self.kube.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        since = (datetime.now(UTC) - timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
        waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": since}
        status: dict[str, Any] = {"phase": "Running"} if runs else {"conditions": [waits]}
        await self.kube.patch(pod, {"status": status}, subresource="status")

    async def seen(self) -> dict[str, Any]:
        """All that there is, without what is another each time: two corners that look the same are equal."""
        lists = await asyncio.gather(
            self.kube.list(API_VERSION, "GPUClass", labelSelector=f"{LABEL}={self.corner}"),
            *(self.kube.list(version, kind, self.corner) for version, kind in _LOOKED_AT),
        )
        settings = await self.kube.get(ref("v1", "ConfigMap", "gpu-settings", self.corner))
        lease = await self.kube.get(ref("coordination.k8s.io/v1", "Lease", "gpu-controller", self.corner))
        told: dict[str, Any] = {"settings": settings["data"], "names": lease["metadata"].get("annotations")}
        uids = {obj["metadata"]["uid"]: f"uid of {obj['metadata']['name']}" for objs in lists for obj in objs}
        for kind, objects in zip(("GPUClass", *(kind for _, kind in _LOOKED_AT)), lists, strict=True):
            told |= {f"{kind} {obj['metadata']['name']}": self._plain(obj, uids) for obj in objects}
        return {self._renamed(key): self._renamed(value) for key, value in told.items()}

    def _plain(self, value: Any, uids: Mapping[str, str]) -> Any:
        if isinstance(value, dict):
            return {
                key: self._plain(item, uids)
                for key, item in value.items()
                if key not in _FLEETING or (key == "uid" and item in uids)
            }
        if isinstance(value, list):
            return [self._plain(item, uids) for item in value]
        return _TIME.sub("a time", uids.get(value, value)) if isinstance(value, str) else value

    def _renamed(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self._renamed(key): self._renamed(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._renamed(item) for item in value]
        return value.replace(self.corner, "corner") if isinstance(value, str) else value


_NODES: Final[Mapping[str, Mapping[str, int]]] = {
    "fresh": {"a": 1, "b": 2, "z": 4},
    "settled": {"c": 3, "e": 3, "f": 2, "g": 2, "h": 1, "i": 1},
}
"""By class, how many GPUs each node has: as many as one of the devices orders, and so no other can be held there."""


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
