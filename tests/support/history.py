"""What became of devices on a cluster, version by version as watches told it, judged by counting anew."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from controlplane.client import Client
from gpukinds import API_VERSION
from gpuwatch import amount, owner, places

_VMI: Final = "VirtualMachineInstance"
Obj = dict[str, Any]


class History:
    """Every version of the devices, VMIs and pods of a namespace, and of the nodes of a label, in the order in which
    they were stored: versions of all kinds are one count, etcd's."""

    def __init__(self) -> None:
        self.told: list[tuple[int, str, str, Obj]] = []
        self.holds = 0
        self._now: defaultdict[str, dict[str, Obj]] = defaultdict(dict)
        self._nodes: dict[str, Obj] = {}

    @asynccontextmanager
    async def recorded(self, kube: Client, namespace: str, *, nodes: str) -> AsyncIterator[None]:
        """Within, everything is recorded; at the end it is waited until all of it was told."""
        watches = [
            (API_VERSION, "GPUDevice", namespace, ""),
            ("kubevirt.io/v1", _VMI, namespace, ""),
            ("v1", "Pod", namespace, ""),
            ("v1", "Node", None, nodes),
        ]
        tasks = [asyncio.create_task(self._record(kube, *watch)) for watch in watches]
        try:
            yield
            await asyncio.sleep(0.5)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _record(self, kube: Client, version: str, kind: str, namespace: str | None, labels: str) -> None:
        async for verb, obj in kube.watch(version, kind, namespace, **({"labelSelector": labels} if labels else {})):
            self.told.append((int(obj["metadata"]["resourceVersion"]), kind, verb, obj))

    def judge(self) -> None:
        """Go through all of it. Raises AssertionError at the first version that should not have been stored."""
        for _, kind, verb, obj in sorted(self.told, key=lambda told: told[0]):
            uid, now = obj["metadata"]["uid"], self._now[kind]
            old = now.get(uid)
            if kind == "GPUDevice":
                self._look_at(old, None if verb == "DELETED" else obj)
            if kind == "Node":
                # One that is gone has what it had: it may be a moment until the controller knows.
                self._nodes[obj["metadata"]["name"]] = obj
            if verb == "DELETED":
                now.pop(uid, None)
            else:
                now[uid] = obj

    def _look_at(self, old: Obj | None, new: Obj | None) -> None:
        if old is None:
            return
        before = old.get("status") or {}
        after = (new or {}).get("status") or {}
        bound = before.get("binding")
        if new is None or (bound and after.get("binding") != bound):
            assert not (bound and self._in_use(bound["uid"])), f"taken from {bound} while it was used: {old} -> {new}"
        if new is None:
            return
        same = before.get("resourceName") == after.get("resourceName")
        for node in places(new) - (places(old) if same else set()):
            self.holds += 1
            free = self._free(node, after["resourceName"], but=new["metadata"]["uid"])
            assert new["spec"]["count"] <= free, f"{new['spec']['count']} held on {node}, where {free} were free"
        if bound and before.get("nodeName") and before["nodeName"] != after.get("nodeName"):
            used = [pod for pod in self._pods() if owner(pod) == bound["uid"] and pod["spec"].get("nodeName")]
            guests = {vmi.get("status", {}).get("nodeName") for vmi in self._now[_VMI].values()}
            assert not used or after.get("nodeName") in guests, f"moved while it was used: {before} -> {after}"

    def _in_use(self, uid: str) -> bool:
        return uid in self._now[_VMI] or any(owner(pod) == uid for pod in self._pods())

    def _pods(self) -> list[Obj]:
        return [pod for pod in self._now["Pod"].values() if pod["status"].get("phase") not in {"Succeeded", "Failed"}]

    def _free(self, node: str, resource: str, *, but: str) -> int:
        free = int(self._nodes[node]["status"]["allocatable"].get(resource, 0))
        cover: defaultdict[str, int] = defaultdict(int)
        for uid, device in self._now["GPUDevice"].items():
            status: Mapping[str, Any] = device.get("status") or {}
            if status.get("resourceName") == resource and node in places(device):
                cover[(status.get("binding") or {}).get("uid", "")] += device["spec"]["count"]
                free -= device["spec"]["count"] if uid != but else 0
        asked: defaultdict[str, int] = defaultdict(int)
        for pod in self._pods():
            if pod["spec"].get("nodeName") == node:
                asked[owner(pod)] += amount(pod, resource)
        return free - sum(max(0, count - (cover[uid] if uid else 0)) for uid, count in asked.items())
