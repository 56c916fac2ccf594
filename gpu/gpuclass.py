"""GPUClass: what the platform sells, and where those GPUs are."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpu import fields, names
from gpu.condition import Condition, read_conditions
from gpu.errors import FieldError
from gpu.quantity import quantity

MOST_GPUS: Final = 16
"""GPUs that one device may order at the very most, whatever its class says."""

OF_DEVICE_CLASSES: Final = "deviceclass.resource.kubernetes.io/"
"""What every DeviceClass is an extended resource under, by its name (k8s.io/api/resource/v1, DeviceClassSpec)."""

_MODES: Final = ("Passthrough", "VGPU")
_RESOURCE_NAME: Final = re.compile(r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)/"
                                   r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")  # fmt: skip
_DEVICE_PLUGIN: Final = "spec.source.devicePlugin"


def is_sellable(name: str) -> bool:
    """Whether a class can sell a resource of this name: it has a domain, neither Kubernetes's nor KubeVirt's own."""
    domain, slash, _ = name.rpartition("/")
    return bool(slash) and not (domain in {"kubernetes.io", "devices.kubevirt.io"} or domain.endswith(".kubernetes.io"))


def is_extended(name: str) -> bool:
    """Whether a resource name can stand for a GPU: one that a class can sell, or that of a DeviceClass (DRA)."""
    return is_sellable(name) or name.startswith(OF_DEVICE_CLASSES)


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePlugin:
    """GPUs that a device plugin advertises on nodes: by which extended resource, on which nodes."""

    resource_name: str
    node_selector: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUClass:
    """A GPUClass, read. ``memory`` is the quantity as written; ``sold`` every resource name that it ever sold.

    ``source`` is None where its kind is one that this release does not know: such a class sells nothing here.
    ``capacity``, ``held`` and ``free`` are GPUs, as its status tells them.
    """

    name: str
    uid: str | None
    deleting: bool
    vendor: str
    model: str
    mode: str
    profile: str | None
    memory: str
    max_count: int
    max_per_namespace: int | None
    source: DevicePlugin | None
    sold: tuple[str, ...]
    resource_version: str | None = None
    finalizers: tuple[str, ...] = ()
    capacity: int | None = None
    held: int | None = None
    free: int | None = None
    conditions: tuple[Condition, ...] = ()

    @property
    def guarded(self) -> bool:
        """Whether our finalizer is on it, so that it does not vanish while a device is held of it."""
        return names.CLASS_FINALIZER in self.finalizers

    @property
    def resource_name(self) -> str | None:
        """The extended resource that its devices are granted; None where its source is not a device plugin."""
        return self.source.resource_name if self.source else None

    @property
    def resource_names(self) -> tuple[str, ...]:
        """Every resource name that is a GPU because of this class."""
        return self.sold if self.source is None else (self.source.resource_name, *self.sold)

    @classmethod
    def from_dict(cls, obj: Mapping[str, Any]) -> "GPUClass":
        """Read a manifest. Raises FieldError at the first field that can't be what the CRD says."""
        metadata = fields.required_object(obj, "metadata", "")
        spec = fields.required_object(obj, "spec", "")
        status = fields.optional_object(obj, "status", "") or {}
        mode = fields.required_text(spec, "mode", "spec")
        if mode not in _MODES:
            raise FieldError("spec.mode", "must be Passthrough or VGPU", reason="FieldValueNotSupported")
        return cls(
            name=fields.required_text(metadata, "name", "metadata"),
            uid=fields.optional_text(metadata, "uid", "metadata"),
            deleting=fields.optional_text(metadata, "deletionTimestamp", "metadata") is not None,
            vendor=fields.required_text(spec, "vendor", "spec"),
            model=fields.required_text(spec, "model", "spec"),
            mode=mode,
            profile=_profile(spec, mode),
            memory=_memory(spec),
            max_count=_max_count(spec),
            max_per_namespace=_max_per_namespace(spec),
            source=_source(spec),
            sold=fields.texts(status, "resourceNames", "status"),
            resource_version=fields.optional_text(metadata, "resourceVersion", "metadata"),
            finalizers=fields.texts(metadata, "finalizers", "metadata"),
            capacity=fields.optional_whole(status, "capacity", "status"),
            held=fields.optional_whole(status, "held", "status"),
            free=fields.optional_whole(status, "free", "status"),
            conditions=read_conditions(status),
        )


def _profile(spec: Mapping[str, Any], mode: str) -> str | None:
    profile = fields.optional_text(spec, "profile", "spec")
    if (mode == "VGPU") != bool(profile):
        problem = "is required when mode is VGPU" if mode == "VGPU" else "must not be set when mode is Passthrough"
        raise FieldError("spec.profile", problem)
    return profile


def _memory(spec: Mapping[str, Any]) -> str:
    value = fields.required("memory", "spec", spec.get("memory"))
    try:
        positive = quantity(value) > 0
    except ValueError:
        positive = False
    if not positive:
        raise FieldError("spec.memory", "must be a quantity above zero, such as 141Gi")
    return str(value)


def _max_count(spec: Mapping[str, Any]) -> int:
    count = fields.required("maxCount", "spec", fields.optional_whole(spec, "maxCount", "spec"))
    if not 1 <= count <= MOST_GPUS:
        raise FieldError("spec.maxCount", f"must be from 1 to {MOST_GPUS}")
    return count


def _max_per_namespace(spec: Mapping[str, Any]) -> int | None:
    most = fields.optional_whole(spec, "maxPerNamespace", "spec")
    if most is not None and most < 0:
        raise FieldError("spec.maxPerNamespace", "must not be negative")
    return most


def _source(spec: Mapping[str, Any]) -> DevicePlugin | None:
    source = fields.required_object(spec, "source", "spec")
    if len(source) != 1:
        raise FieldError("spec.source", "must hold exactly one kind of source, such as devicePlugin")
    if "devicePlugin" not in source:
        return None
    plugin = fields.required_object(source, "devicePlugin", "spec.source")
    name = fields.required_text(plugin, "resourceName", _DEVICE_PLUGIN)
    if not _RESOURCE_NAME.fullmatch(name) or not is_sellable(name):
        raise FieldError(
            f"{_DEVICE_PLUGIN}.resourceName",
            "must be an extended resource with a vendor's domain, such as nvidia.com/GH100_H200_SXM_141GB",
        )
    return DevicePlugin(resource_name=name, node_selector=dict(fields.text_map(plugin, "nodeSelector", _DEVICE_PLUGIN)))
