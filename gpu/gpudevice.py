"""GPUDevice: a tenant's order, and what became of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from gpu import fields, names
from gpu.condition import Condition, of_type, read_conditions
from gpu.errors import FieldError
from gpu.gpuclass import MOST_GPUS

_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_HELD_PHASES: Final = frozenset({"Held", "InUse", "Releasing"})


def is_device_name(name: str) -> bool:
    """Whether a GPUDevice can have this name: a DNS label, since the name becomes the value of a label."""
    return _DNS_LABEL.fullmatch(name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The one VMI that may use a device."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """The node reserved for a migration of the bound VMI; ``uid`` is the migration's."""

    uid: str
    node_name: str


# Not frozen: to set sixteen fields the slow way would cost as much as all rules on an order do.
@dataclass(slots=True, kw_only=True)
class GPUDevice:
    """A GPUDevice, read. Nothing changes one.

    ``count`` is in GPUs; ``touched`` is when it was created or last taken over by a VMI; ``held_at`` is since when it
    is held, as it is written.
    """

    namespace: str
    name: str
    class_name: str
    count: int
    uid: str | None = None
    resource_version: str | None = None
    deleting: bool = False
    created: datetime | None = None
    touched: datetime | None = None
    finalizers: tuple[str, ...] = ()
    from_template: bool = False
    phase: str = "Pending"
    resource_name: str | None = None
    node_name: str | None = None
    binding: Binding | None = None
    migration: Reservation | None = None
    held_at: str | None = None
    conditions: tuple[Condition, ...] = ()

    @property
    def waiting(self) -> str | None:
        """Why it is not held, where the controller said so."""
        held = of_type(self.conditions, "Held")
        if held is None or held.status != "False":
            return None
        return ": ".join(part for part in (held.reason, held.message) if part)

    @property
    def guarded(self) -> bool:
        """Whether our finalizer is on it, so that it does not vanish while its GPUs are used."""
        return names.DEVICE_FINALIZER in self.finalizers

    @property
    def held(self) -> bool:
        """Whether GPUs of a node are this device's own, so that nobody else can be given them."""
        return self.phase in _HELD_PHASES and bool(self.resource_name) and bool(self.node_name)

    def fits(self, class_name: str, count: int) -> bool:
        """Whether it is an order of the same class for as many GPUs."""
        return self.class_name == class_name and self.count == count

    @classmethod
    def from_dict(cls, obj: Mapping[str, Any]) -> "GPUDevice":
        """Read a manifest. Raises FieldError at the first field that can't be what the CRD says."""
        metadata = fields.required_object(obj, "metadata", "")
        labels = fields.optional_object(metadata, "labels", "metadata") or {}
        spec = fields.required_object(obj, "spec", "")
        status = fields.optional_object(obj, "status", "") or {}
        name = fields.required_text(metadata, "name", "metadata")
        if not is_device_name(name):
            raise FieldError(
                "metadata.name", "must be a DNS label of at most 63 characters: it becomes a label's value"
            )
        return cls(
            namespace=fields.required_text(metadata, "namespace", "metadata"),
            name=name,
            uid=fields.optional_text(metadata, "uid", "metadata"),
            resource_version=fields.optional_text(metadata, "resourceVersion", "metadata"),
            deleting=fields.optional_text(metadata, "deletionTimestamp", "metadata") is not None,
            created=fields.time(metadata.get("creationTimestamp")),
            touched=_touched(metadata),
            finalizers=fields.texts(metadata, "finalizers", "metadata"),
            from_template=names.TEMPLATE_DEVICE in labels,
            class_name=fields.required_text(spec, "className", "spec"),
            count=read_count(spec, "spec"),
            phase=fields.optional_text(status, "phase", "status") or "Pending",
            resource_name=fields.optional_text(status, "resourceName", "status"),
            node_name=fields.optional_text(status, "nodeName", "status"),
            binding=_binding(status),
            migration=_migration(status),
            held_at=fields.optional_text(status, "heldAt", "status"),
            conditions=read_conditions(status),
        )


def _touched(metadata: Mapping[str, Any]) -> datetime | None:
    annotations = fields.optional_object(metadata, "annotations", "metadata") or {}
    return max(
        (
            time
            for text in (metadata.get("creationTimestamp"), annotations.get(names.TAKEN_OVER))
            if (time := fields.time(text))
        ),
        default=None,
    )


def read_count(parent: Mapping[str, Any], path: str) -> int:
    """The GPUs ordered by ``count``: a whole number from 1 to 16, 1 where it is missing. Raises FieldError."""
    count = fields.optional_whole(parent, "count", path)
    if count is None:
        return 1
    if not 1 <= count <= MOST_GPUS:
        raise FieldError(fields.child(path, "count"), f"must be from 1 to {MOST_GPUS}")
    return count


def _binding(status: Mapping[str, Any]) -> Binding | None:
    binding = fields.optional_object(status, "binding", "status")
    if not binding:
        return None
    return Binding(
        name=fields.required_text(binding, "name", "status.binding"),
        uid=fields.required_text(binding, "uid", "status.binding"),
    )


def _migration(status: Mapping[str, Any]) -> Reservation | None:
    migration = fields.optional_object(status, "migration", "status")
    if not migration:
        return None
    return Reservation(
        uid=fields.required_text(migration, "uid", "status.migration"),
        node_name=fields.required_text(migration, "nodeName", "status.migration"),
    )
