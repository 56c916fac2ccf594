"""Objects by kind, namespace and name, each read once, when it comes in."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from gpu import fields, names
from gpu.claims import claimed_device_classes
from gpu.errors import FieldError
from gpu.gpuclass import GPUClass
from gpu.gpudevice import GPUDevice
from gpu.migration import Migration
from gpu.offer import GPUSettings, Offer
from gpu.pod import Pod
from gpu.quantity import quantity
from gpu.vmi import VMI

QUOTA: Final = f"count/gpudevices.{names.GROUP}"
"""The key of a ResourceQuota's ``spec.hard`` that limits how many devices a namespace has."""

_KEPT_AS_THEY_ARE: Final = {
    *(names.VM, names.REPLICA_SET, names.POOL),
    *(names.INSTANCETYPE, names.CLUSTER_INSTANCETYPE, names.PREFERENCE, names.CLUSTER_PREFERENCE),
}

T = TypeVar("T")
Table = dict[str, dict[str, T]]
"""By namespace, then by name; what has no namespace is under the empty one."""


class Shelf:
    """The objects that admission looks at; those of other kinds are passed over."""

    def __init__(self) -> None:
        self.objects: Table[dict[str, Any]] = defaultdict(dict)
        self.devices: Table[GPUDevice] = defaultdict(dict)
        self.vmis: Table[VMI] = defaultdict(dict)
        self.pods: Table[Pod] = defaultdict(dict)
        self.migrations: Table[Migration] = defaultdict(dict)
        self.claims: Table[frozenset[str]] = defaultdict(dict)
        self.claim_templates: Table[frozenset[str]] = defaultdict(dict)
        self.quotas: Table[int] = defaultdict(dict)
        self._classes: Table[GPUClass] = defaultdict(dict)
        self._settings: Table[GPUSettings] = defaultdict(dict)
        self.offer = Offer({}, GPUSettings.of_classes(()))
        self._kinds: Mapping[str, tuple[Table[Any], Callable[[Mapping[str, Any]], object]]] = {
            names.GPU_CLASS: (self._classes, GPUClass.from_dict),
            names.GPU_DEVICE: (self.devices, GPUDevice.from_dict),
            names.VMI: (self.vmis, VMI.from_dict),
            names.MIGRATION: (self.migrations, Migration.from_dict),
            "Pod": (self.pods, Pod.from_dict),
            "ResourceClaim": (self.claims, claimed_device_classes),
            "ResourceClaimTemplate": (self.claim_templates, claimed_device_classes),
            "ResourceQuota": (self.quotas, read_quota),
            "ConfigMap": (self._settings, GPUSettings.from_dict),
            **{kind: (defaultdict(dict), bool) for kind in _KEPT_AS_THEY_ARE},
        }

    def put(self, obj: dict[str, Any]) -> None:
        """Put an object in, in place of what has its name. Raises FieldError."""
        kind, namespace, name = _identity(obj)
        if kind not in self._kinds or (kind == "ConfigMap" and name != names.SETTINGS):
            return
        table, read = self._kinds[kind]
        value = read(obj)
        if value is None:
            self.drop(kind, namespace, name)
            return
        table[namespace][name] = value
        self.objects[f"{kind}/{namespace}"][name] = obj
        self._renew_offer()

    def drop(self, kind: str, namespace: str, name: str) -> None:
        """Take an object out, if it is there."""
        if kind in self._kinds:
            self._kinds[kind][0][namespace].pop(name, None)
            self.objects[f"{kind}/{namespace}"].pop(name, None)
            self._renew_offer()

    def stored(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """An object as it came in."""
        return self.objects[f"{kind}/{namespace}"].get(name)

    def copy(self) -> "Shelf":
        """Another with the same objects."""
        other = Shelf()
        for objects in self.objects.values():
            for obj in objects.values():
                other.put(obj)
        return other

    def referrers(self, namespace: str, device: str) -> Sequence[VMI]:
        """The VMIs whose device-reference label names the device."""
        return [vmi for vmi in self.vmis[namespace].values() if vmi.device == device]

    def migration(self, namespace: str, uid: str) -> Migration | None:
        """A migration, by its uid."""
        return next((found for found in self.migrations[namespace].values() if found.uid == uid), None)

    def pods_of(self, namespace: str, vmi_uid: str) -> Sequence[Pod]:
        """The pods whose controller owner is the VMI."""
        return [pod for pod in self.pods[namespace].values() if pod.vmi_uid == vmi_uid]

    def _renew_offer(self) -> None:
        """Where no settings are given they are what a controller would publish for the classes."""
        classes = self._classes[""]
        settings = next((found for table in self._settings.values() for found in table.values()), None)
        self.offer = Offer(dict(classes), settings or GPUSettings.of_classes(classes.values()))


def _identity(obj: Mapping[str, Any]) -> tuple[str, str, str]:
    metadata = fields.required_object(obj, "metadata", "")
    kind = fields.required_text(obj, "kind", "")
    namespace = "" if kind in names.OF_THE_CLUSTER else fields.required_text(metadata, "namespace", "metadata")
    return kind, namespace, fields.required_text(metadata, "name", "metadata")


def read_quota(obj: Mapping[str, Any]) -> int | None:
    """How many devices a ResourceQuota lets its namespace have; None where it does not say. Raises FieldError."""
    spec = fields.optional_object(obj, "spec", "") or {}
    hard = fields.optional_object(spec, "hard", "spec") or {}
    if QUOTA not in hard:
        return None
    try:
        return int(quantity(hard[QUOTA]))
    except ValueError:
        raise FieldError(f"spec.hard[{QUOTA}]", "must be a quantity") from None
