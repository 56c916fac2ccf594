"""What must never happen, checked on the API objects at every write of the controller, by counting anew."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuworld import World
from memoryapi import Obj
from spoiled import is_spoiled

from cluster import kinds
from cluster.kinds import Kind


class Watcher:
    """Looks at every write while ``acting``; a write that breaks a promise is an AssertionError."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.acting = False
        self.holds = 0
        world.api.watchers.append(self._see)

    def _see(self, kind: Kind, old: Obj | None, new: Obj | None) -> None:
        if not self.acting or kind != kinds.GPU_DEVICES or old is None:
            return
        if new is None:
            assert not self.in_use(old), "a device went while it was used"
            return
        self._no_more_than_is_free(old, new)
        self._within_the_quota(old, new)
        self._bound_once(old, new)
        self._kept(old, new)

    def _no_more_than_is_free(self, old: Obj, new: Obj) -> None:
        resource = new.get("status", {}).get("resourceName")
        before = places(old) if old.get("status", {}).get("resourceName") == resource else set()
        for node in places(new) - before:
            self.holds += 1
            count = new["spec"]["count"]
            free = self.free(node, resource, but=new["metadata"]["uid"])
            assert count <= free, f"{count} held on {node}, where {free} of {resource} were free"

    def free(self, node: str, resource: str, *, but: str = "") -> int:
        """GPUs of a node that nobody holds, has reserved or has in a pod beyond that."""
        found = self.world.api.get(kinds.NODES, node)
        free = int(found["status"]["allocatable"].get(resource, 0)) if found else 0
        cover: dict[str, int] = {}
        for device in self.world.api.every(kinds.GPU_DEVICES):
            status = device.get("status", {})
            if device["metadata"]["uid"] != but and status.get("resourceName") == resource and node in places(device):
                free -= device["spec"]["count"]
                uid = status.get("binding", {}).get("uid", "")
                cover[uid] = cover.get(uid, 0) + device["spec"]["count"]
        asked: dict[str, int] = {}
        for pod in self.pods():
            if pod["spec"].get("nodeName") == node:
                uid = owner(pod)
                asked[uid] = asked.get(uid, 0) + amount(pod, resource)
        return free - sum(max(0, count - (cover.get(uid, 0) if uid else 0)) for uid, count in asked.items())

    def _within_the_quota(self, old: Obj, new: Obj) -> None:
        """A namespace gets no GPU beyond ``maxPerNamespace``; what it has when that is lowered it keeps."""
        of_class, namespace = new["spec"]["className"], new["metadata"]["namespace"]
        gpu_class = self.world.api.get(kinds.GPU_CLASSES, of_class)
        most = gpu_class["spec"].get("maxPerNamespace") if gpu_class else None
        if most is None or places(old) or not places(new):
            return
        others = (
            device["spec"]["count"]
            for device in self.world.api.every(kinds.GPU_DEVICES)
            if places(device) and device["metadata"]["uid"] != new["metadata"]["uid"]
            and (device["metadata"]["namespace"], device["spec"]["className"]) == (namespace, of_class)
        )  # fmt: skip
        assert sum(others) + new["spec"]["count"] <= most, f"{namespace} has more than {most} of {of_class}"

    def _bound_once(self, old: Obj, new: Obj) -> None:
        before, after = old.get("status", {}).get("binding"), new.get("status", {}).get("binding")
        if before and after != before:
            assert not self.in_use(old), "bound to another while it was used"
        if after and after != before:
            vmi = self.world.api.get(kinds.VMIS, after["name"], new["metadata"]["namespace"])
            if vmi is not None and vmi["metadata"]["uid"] == after["uid"]:
                reference = vmi["metadata"]["labels"]["gpu.cozystack.io/device-reference"]
                assert reference == new["metadata"]["name"], "bound to a VMI that does not refer to it"

    def at_rest(self) -> None:
        """What holds when the controller has nothing more to write: what is deleted and not used is gone."""
        for device in self.world.api.every(kinds.GPU_DEVICES):
            if device["metadata"].get("deletionTimestamp") and not is_spoiled(kinds.GPU_DEVICES, device):
                assert self.in_use(device), f"deleted, not used, and still there: {device}"

    def _kept(self, old: Obj, new: Obj) -> None:
        """What was held stays held where it is, but for a reason of its own."""
        before, after = old.get("status", {}), new.get("status", {})
        grants = ("nodeName", "resourceName")
        if not before.get("nodeName") or all(before[key] == after.get(key) for key in grants):
            return
        reasons = [*self._reasons(old, before["nodeName"])]
        if after.get("nodeName") and after["nodeName"] == self._guest(old):
            reasons.append("the VM was moved there")
        assert reasons, f"taken from {before['nodeName']}: {before} -> {after}"

    def _guest(self, device: Obj) -> str:
        binding = device["status"].get("binding") or {}
        vmi = self.world.api.get(kinds.VMIS, binding.get("name", ""), device["metadata"]["namespace"])
        return str(vmi["status"].get("nodeName", "")) if vmi and vmi["metadata"]["uid"] == binding.get("uid") else ""

    def _reasons(self, device: Obj, at: str) -> Iterator[str]:
        node = self.world.api.get(kinds.NODES, at)
        pods = [pod for pod in self.pods() if owner(pod) == (device["status"].get("binding") or {}).get("uid", "-")]
        if any(not pod["spec"].get("nodeName") and pod["status"].get("conditions") for pod in pods):
            yield "its launcher can't be scheduled"
        if pods:
            return
        if node is None:
            yield "its node is gone"
            return
        if node["spec"].get("unschedulable") or node["status"]["conditions"][0]["status"] != "True":
            yield "its node is cordoned or not ready"
        gpu_class = self.world.api.get(kinds.GPU_CLASSES, device["spec"]["className"])
        plugin = gpu_class["spec"]["source"]["devicePlugin"] if gpu_class else {}
        labels: Mapping[str, str] = node["metadata"]["labels"]
        if any(labels.get(key) != value for key, value in plugin.get("nodeSelector", {}).items()):
            yield "its node is not the class's"
        referrers = [
            vmi
            for vmi in self.world.api.every(kinds.VMIS)
            if vmi["metadata"]["labels"]["gpu.cozystack.io/device-reference"] == device["metadata"]["name"]
            and vmi["metadata"]["namespace"] == device["metadata"]["namespace"]
        ]
        if plugin.get("resourceName") != device["status"]["resourceName"] and not referrers:
            yield "its class sells another resource"
        for vmi in referrers:
            if any(labels.get(key) != value for key, value in vmi["spec"].get("nodeSelector", {}).items()):
                yield "it does not suit the VMI"

    def in_use(self, device: Obj) -> bool:
        binding = device.get("status", {}).get("binding")
        if not binding:
            return False
        vmi = self.world.api.get(kinds.VMIS, binding["name"], device["metadata"]["namespace"])
        if vmi is not None and vmi["metadata"]["uid"] == binding["uid"]:
            return True
        return any(owner(pod) == binding["uid"] for pod in self.pods())

    def pods(self) -> list[Obj]:
        """Those that are not finished."""
        return [
            pod for pod in self.world.api.every(kinds.PODS) if pod["status"].get("phase") not in {"Succeeded", "Failed"}
        ]


def places(device: Mapping[str, Any]) -> set[str]:
    """The nodes on which it has GPUs."""
    status = device.get("status") or {}
    if not status.get("nodeName"):
        return set()
    return {status["nodeName"], *filter(None, [(status.get("migration") or {}).get("nodeName")])}


def owner(pod: Obj) -> str:
    """The uid of its VMI."""
    return next((str(found["uid"]) for found in pod["metadata"].get("ownerReferences", ())), "")


def amount(pod: Obj, resource: str) -> int:
    """What it asks for."""
    return sum(int(one["resources"]["requests"].get(resource, 0)) for one in pod["spec"]["containers"])
