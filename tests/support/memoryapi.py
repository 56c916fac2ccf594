"""A small API server in memory: resource versions, finalizers, deletion timestamps, the status subresource.

As honest as the real one where the controller could get it wrong: a write on a stale version is refused, what is being
deleted gets no new finalizer and goes with its last one, and a write of the object leaves its status alone.
"""

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cluster import kinds
from cluster.kinds import Kind

Obj = dict[str, Any]

_STATUS: Final = frozenset(
    {kinds.GPU_CLASSES, kinds.GPU_DEVICES, kinds.PODS, kinds.NODES, kinds.MIGRATIONS, kinds.WORKLOADS,
     kinds.WORKLOAD_MONITORS, kinds.NAMESPACES}
)  # fmt: skip
"""Kinds with a status subresource; a VMI has none."""


class Refused(Exception):
    """The API server refuses."""


class MemoryApi:
    """Objects by kind, namespace and name; ``now`` is its clock. ``watchers`` see every write: before and after."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, 12, tzinfo=UTC)
        self.objects: dict[Kind, dict[tuple[str, str], Obj]] = {}
        self.watchers: list[Callable[[Kind, Obj | None, Obj | None], None]] = []
        self._versions = itertools.count(1)
        self._uids = itertools.count(1)

    @property
    def stamp(self) -> str:
        return self.now.strftime("%Y-%m-%dT%H:%M:%SZ")

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def get(self, kind: Kind, name: str, namespace: str = "") -> Obj | None:
        return self.objects.get(kind, {}).get((namespace, name))

    def every(self, kind: Kind) -> Iterator[Obj]:
        yield from list(self.objects.get(kind, {}).values())

    def create(self, kind: Kind, obj: Mapping[str, Any], *, status: Mapping[str, Any] | None = None) -> Obj:
        """Create; ``status`` is what its owner writes on it at once, for tests."""
        made = copy.deepcopy(dict(obj))
        metadata = made.setdefault("metadata", {})
        key = metadata.get("namespace") or "", metadata["name"]
        if key in self.objects.setdefault(kind, {}):
            raise Refused(f"{kind.name} {key} exists")
        if kind in _STATUS:
            made.pop("status", None)
        if status is not None:
            made["status"] = copy.deepcopy(dict(status))
        metadata["uid"] = metadata.get("uid") or f"uid-{next(self._uids)}"
        metadata["creationTimestamp"] = self.stamp
        metadata["resourceVersion"] = str(next(self._versions))
        self.objects[kind][key] = made
        self._tell(kind, None, made)
        return made

    def patch(
        self, kind: Kind, name: str, body: Mapping[str, Any], namespace: str = "", *, status: bool = False
    ) -> Obj:
        """A merge patch; of the status alone with ``status``."""
        old = self.get(kind, name, namespace)
        if old is None or (status and kind not in _STATUS):
            raise Refused(f"{kind.name} {namespace}/{name} is not there")
        asked = body.get("metadata") or {}
        for field in ("resourceVersion", "uid"):
            if asked.get(field, old["metadata"][field]) != old["metadata"][field]:
                raise Refused(f"{kind.name} {namespace}/{name}: conflict")
        if status:
            new = {**copy.deepcopy(old), "status": merged(old.get("status"), body.get("status"))}
        else:
            new = merged(old, body)
            if kind in _STATUS:
                new = {**new, "status": copy.deepcopy(old.get("status"))} if "status" in old else _without_status(new)
        self._guard(old, new)
        if new == old:
            return old
        new["metadata"]["resourceVersion"] = str(next(self._versions))
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
            del self.objects[kind][namespace, name]
            self._tell(kind, old, None)
        else:
            self.objects[kind][namespace, name] = new
            self._tell(kind, old, new)
        return new

    def delete(self, kind: Kind, name: str, namespace: str = "", *, version: str = "", uid: str = "") -> None:
        old = self.get(kind, name, namespace)
        if old is None:
            raise Refused(f"{kind.name} {namespace}/{name} is not there")
        metadata = old["metadata"]
        if (version and version != metadata["resourceVersion"]) or (uid and uid != metadata["uid"]):
            raise Refused(f"{kind.name} {namespace}/{name}: conflict")
        scheduled = kind == kinds.PODS and old.get("spec", {}).get("nodeName")
        if not metadata.get("finalizers") and not scheduled:
            del self.objects[kind][namespace, name]
            self._tell(kind, old, None)
        elif not metadata.get("deletionTimestamp"):
            new = copy.deepcopy(old)
            new["metadata"]["deletionTimestamp"] = self.stamp
            new["metadata"]["resourceVersion"] = str(next(self._versions))
            self.objects[kind][namespace, name] = new
            self._tell(kind, old, new)

    def remove(self, kind: Kind, name: str, namespace: str = "") -> None:
        """What a kubelet does in the end, and a forced deletion."""
        old = self.objects.get(kind, {}).pop((namespace, name), None)
        if old is not None:
            self._tell(kind, old, None)

    def _tell(self, kind: Kind, old: Obj | None, new: Obj | None) -> None:
        for watcher in self.watchers:
            watcher(kind, old, new)

    @staticmethod
    def _guard(old: Obj, new: Obj) -> None:
        before, after = old["metadata"].get("finalizers") or [], new["metadata"].get("finalizers") or []
        if old["metadata"].get("deletionTimestamp") and set(after) - set(before):
            raise Refused("no new finalizers can be added while the object is being deleted")


def merged(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    new = copy.deepcopy(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = merged(new.get(key), value)
    return new


def _without_status(obj: Obj) -> Obj:
    return {key: value for key, value in obj.items() if key != "status"}
