"""What is known of the cluster at one moment, arranged so that a plan finds everything without a search."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias, TypeVar

from cluster import kinds
from cluster.kinds import Kind
from cluster.selectors import selects
from controller.affinity import Terms
from controller.machine import Machine, read_unmade
from controller.node import Node
from controller.published import (
    DeviceClass,
    Published,
    Remembered,
    Tenancy,
    read_claim,
    read_volume,
)
from controller.record import Monitor, Record, read_monitor, read_record
from controller.seen import Seen, observe
from controller.unread import Unread
from gpu import names
from gpu.gpuclass import GPUClass
from gpu.gpudevice import GPUDevice
from gpu.migration import Migration
from gpu.pod import Pod

Key: TypeAlias = tuple[str, str]
"""Namespace and name."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def _read_pod(obj: Mapping[str, Any]) -> Pod | None:
    """A pod that is not finished and asks for an extended resource, or is a VMI's; the others are not kept."""
    pod = Pod.from_dict(obj)
    return pod if not pod.finished and (pod.resources or pod.vmi_uid) else None


READERS: Final[Mapping[Kind, Callable[[Mapping[str, Any]], Any]]] = {
    kinds.GPU_CLASSES: GPUClass.from_dict,
    kinds.GPU_DEVICES: GPUDevice.from_dict,
    kinds.VMIS: Machine.from_dict,
    kinds.PODS: _read_pod,
    kinds.NODES: Node.from_dict,
    kinds.NAMESPACES: Tenancy.from_dict,
    kinds.MIGRATIONS: Migration.from_dict,
    kinds.VMS: read_unmade,
    kinds.CLAIMS: read_claim,
    kinds.VOLUMES: read_volume,
    kinds.CONFIG_MAPS: Published.from_dict,
    kinds.LEASES: Remembered.from_dict,
    kinds.DEVICE_CLASSES: DeviceClass.from_dict,
    kinds.WORKLOADS: read_record,
    kinds.WORKLOAD_MONITORS: read_monitor,
}
"""What is kept of each kind that is watched: a small value, or None of what is not kept. They raise FieldError.

Of ConfigMaps only ``gpu-settings`` of the release's namespace is to be watched, of Leases only the controller's there.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What the release is told by its values.

    ``tenants`` is the LabelSelector of tenants' namespaces, ``outside`` those that are none whatever their labels say.
    """

    namespace: str
    tenants: Mapping[str, Any]
    outside: frozenset[str] = frozenset()
    lease: str = names.CONTROLLER
    resource_names: frozenset[str] = frozenset()
    device_class_names: frozenset[str] = frozenset()
    template_kept: float = 15.0
    """Seconds after its VMI went that a template device is deleted, so that a restarted VM keeps its GPU."""
    template_unclaimed: float = 120.0
    """Seconds after it was built that a template device is deleted when no VMI has come for it."""
    launcher_patience: float = 60.0
    """Seconds that a launcher may be unschedulable before its device is held elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A snapshot. ``served`` are the kinds that the API server has, ``seen`` what earlier snapshots showed."""

    config: Config
    now: datetime
    served: frozenset[Kind]
    classes: Mapping[str, GPUClass]
    devices: Sequence[GPUDevice]
    machines: Mapping[Key, Machine]
    referrers: Mapping[Key, Sequence[Machine]]
    """By namespace and device: the VMIs whose device-reference label names it."""
    pods: Sequence[Pod]
    pods_of: Mapping[str, Sequence[Pod]]
    """By the uid of the VMI that is their controller owner."""
    nodes: Mapping[str, Node]
    migrations: Mapping[Key, Sequence[Migration]]
    """By namespace and VMI: those that have not ended, oldest first."""
    published: Published | None
    remembered: Remembered | None
    device_classes: Mapping[str, DeviceClass]
    volumes: Mapping[Key, Terms]
    """By namespace and claim: the node affinity of the volume that it is bound to, where that has one."""
    records: Sequence[Record]
    monitors: Sequence[Monitor]
    namespaces: Mapping[str, Tenancy]
    unmade: frozenset[str]
    """Uids of VMs that make no other VMI when theirs is lost."""
    unread: Sequence[Unread] = ()
    """What is there and can't be read."""
    unread_users: Mapping[str, Sequence[Unread]] = field(default_factory=dict)
    """By namespace: the VMIs and pods among them."""
    seen: Seen = field(default_factory=Seen)

    @classmethod
    def of(
        cls,
        tables: Mapping[Kind, Iterable[Any]],
        *,
        config: Config,
        now: datetime,
        served: Iterable[Kind] = tuple(READERS),
        seen: Seen | None = None,
    ) -> "State":
        """Arrange what is known; ``seen`` is that of the snapshot before. Kinds without a table have no objects.

        Among the values of a table may be what was told of objects that can't be read.
        """
        unread: list[Unread] = []

        def known(kind: Kind) -> Iterable[Any]:
            values = list(tables.get(kind, ()))
            if any(type(value) is Unread for value in values):
                unread.extend(value for value in values if isinstance(value, Unread))
                return [value for value in values if not isinstance(value, Unread)]
            return values

        pods: list[Pod] = list(known(kinds.PODS))
        machines = {(found.vmi.namespace, found.vmi.name): found for found in known(kinds.VMIS)}
        devices: list[GPUDevice] = list(known(kinds.GPU_DEVICES))
        referrers = _grouped(
            ((found.vmi.namespace, found.vmi.device), found) for found in machines.values() if found.vmi.device
        )
        pods_of = _grouped((pod.vmi_uid, pod) for pod in pods if pod.vmi_uid)
        found = cls(
            config=config,
            now=now,
            served=frozenset(served),
            classes={found.name: found for found in known(kinds.GPU_CLASSES)},
            devices=devices,
            machines=machines,
            referrers=referrers,
            pods=pods,
            pods_of=pods_of,
            nodes={found.name: found for found in known(kinds.NODES)},
            migrations=_under_way(known(kinds.MIGRATIONS)),
            published=next(iter(known(kinds.CONFIG_MAPS)), None),
            remembered=next((found for found in known(kinds.LEASES) if found.name == config.lease), None),
            device_classes={found.name: found for found in known(kinds.DEVICE_CLASSES)},
            volumes=_reach(known(kinds.CLAIMS), known(kinds.VOLUMES)),
            records=list(known(kinds.WORKLOADS)),
            monitors=list(known(kinds.WORKLOAD_MONITORS)),
            namespaces={found.name: found for found in known(kinds.NAMESPACES)},
            unmade=frozenset(found.uid for found in known(kinds.VMS)),
            seen=observe(seen or Seen(), devices, machines=machines, referrers=referrers, pods_of=pods_of, now=now),
        )
        users = _grouped((one.namespace, one) for one in unread if one.kind in {kinds.VMIS, kinds.PODS})
        return replace(found, unread=unread, unread_users=users) if unread else found

    def unread_named(self, kind: Kind, name: str) -> Unread | None:
        """What was told of an object of a kind that has no namespace, where it can't be read."""
        return next((found for found in self.unread if found.kind == kind and found.name == name), None)

    @property
    def stamp(self) -> str:
        """Now, as it stands in an object."""
        return self.now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def is_tenant(self, namespace: str) -> bool:
        """Whether a namespace is a tenant's."""
        found = self.namespaces.get(namespace)
        if found is None or namespace in self.config.outside:
            return False
        return selects(self.config.tenants, found.labels)


def _grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    found: defaultdict[K, list[V]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return dict(found)


def _under_way(migrations: Iterable[Migration]) -> dict[Key, list[Migration]]:
    """Those that have not ended and stay within the cluster, by VMI, oldest first."""
    found = _grouped(((one.namespace, one.vmi), one) for one in migrations if not one.ended and not one.far)
    for ones in found.values():
        ones.sort(key=lambda one: (one.created is None, one.created, one.name))
    return found


def _reach(claims: Iterable[Any], volumes: Iterable[Any]) -> dict[Key, Terms]:
    terms = {volume.name: volume.terms for volume in volumes}
    return {(claim.namespace, claim.name): terms[claim.volume] for claim in claims if claim.volume in terms}
