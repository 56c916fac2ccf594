"""What the catalog knows without asking: only what admission looks at, found without a search."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from sys import intern
from typing import Any, Generic, TypeVar

from cluster.table import Table
from gpu import names
from gpu.gpuclass import GPUClass
from gpu.gpudevice import GPUDevice
from gpu.migration import Migration
from gpu.offer import GPUSettings, Offer
from gpu.pod import Pod
from gpu.vmi import VMI

T = TypeVar("T")
Read = Callable[[Mapping[str, Any]], T | None]
Named = TypeVar("Named", bound=VMI | Pod | Migration)


class Memory:
    """One table for each kind that is watched."""

    def __init__(self) -> None:
        self.classes = Table("GPUClass", GPUClass.from_dict)
        self.settings = Table("ConfigMap", GPUSettings.from_dict)
        self.devices = Table("GPUDevice", _frugal(GPUDevice.from_dict))
        self.vmis = Indexed(names.VMI, _frugal(VMI.from_dict), by=lambda vmi: vmi.device)
        self.pods = Indexed("Pod", _frugal(_asking_pod), by=lambda pod: pod.vmi_uid)
        self.migrations = Indexed(names.MIGRATION, _frugal(Migration.from_dict), by=lambda migration: migration.uid)
        self._offer = Offer({}, None)
        self._offer_of = (0, 0)

    @property
    def offer(self) -> Offer:
        """The classes and the settings."""
        as_of = (self.classes.changes, self.settings.changes)
        if self._offer_of != as_of:
            settings = next(self.settings.every(), None)
            self._offer = Offer({found.name: found for found in self.classes.every()}, settings)
            self._offer_of = as_of
        return self._offer


class Indexed(Table[Named], Generic[Named]):
    """A table whose values are also found by something else that they have; empty or None is not looked for."""

    def __init__(
        self,
        name: str,
        read: Read[Named],
        *,
        by: Callable[[Named], str | None],
    ) -> None:
        super().__init__(name, read)
        self._by = by
        self._index: defaultdict[tuple[str, str], dict[str, Named]] = defaultdict(dict)

    def found(self, namespace: str, value: str) -> list[Named]:
        """The namespace's values that have it."""
        values = self._index.get((namespace, value))
        return list(values.values()) if values else []

    def changed(self, old: Named | None, new: Named | None) -> None:
        """See Table."""
        super().changed(old, new)
        if old is not None and (by := self._by(old)):
            at = (old.namespace, by)
            self._index[at].pop(old.name, None)
            if not self._index[at]:
                del self._index[at]
        if new is not None and (by := self._by(new)):
            self._index[new.namespace, by][new.name] = new


def _asking_pod(obj: Mapping[str, Any]) -> Pod | None:
    """A pod that asks for a resource that could be a GPU; the others, which are most, are not kept."""
    pod = Pod.from_dict(obj)
    return pod if pod.resources else None


def _frugal(read: Read[T]) -> Read[T]:
    """Read with the namespace's name kept once for all its objects."""

    def frugal(obj: Mapping[str, Any]) -> T | None:
        metadata = obj.get("metadata")
        if isinstance(metadata, dict) and isinstance(namespace := metadata.get("namespace"), str):
            metadata["namespace"] = intern(namespace)
        return read(obj)

    return frugal
