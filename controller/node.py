"""Nodes, as far as GPUs are concerned."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from controller.affinity import Taint, read_taints
from gpu import fields
from gpu.condition import of_type, read_conditions
from gpu.errors import FieldError
from gpu.gpuclass import is_extended
from gpu.quantity import quantity

_TOLD_OTHERWISE: Final = frozenset(
    {"node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
)
"""Taints that only repeat what the node's own fields say (k8s.io/api/core/v1, well_known_taints)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node; ``allocatable`` are whole devices by resource name, ``taints`` those that keep pods off it."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    cordoned: bool
    ready: bool
    deleting: bool
    allocatable: Mapping[str, int]

    @classmethod
    def from_dict(cls, obj: Mapping[str, Any]) -> "Node":
        """Read a manifest. Raises FieldError."""
        metadata = fields.required_object(obj, "metadata", "")
        spec = fields.optional_object(obj, "spec", "") or {}
        status = fields.optional_object(obj, "status", "") or {}
        ready = of_type(read_conditions(status), "Ready")
        taints = read_taints(spec, "spec.taints")
        return cls(
            name=fields.required_text(metadata, "name", "metadata"),
            labels=dict(fields.text_map(metadata, "labels", "metadata")),
            taints=tuple(taint for taint in taints if taint.key not in _TOLD_OTHERWISE),
            cordoned=spec.get("unschedulable") is True,
            ready=ready is not None and ready.status == "True",
            deleting=fields.optional_text(metadata, "deletionTimestamp", "metadata") is not None,
            allocatable=_allocatable(status),
        )

    @property
    def trouble(self) -> str | None:
        """Why no GPU of it can be given to anybody now; None where nothing speaks against it."""
        if self.deleting:
            return f"node {self.name} is being deleted"
        if self.cordoned:
            return f"node {self.name} is cordoned"
        return None if self.ready else f"node {self.name} is not ready"


def _allocatable(status: Mapping[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in (fields.optional_object(status, "allocatable", "status") or {}).items():
        if is_extended(name):
            try:
                found[name] = max(0, int(quantity(value)))
            except ValueError:
                raise FieldError(fields.child("status.allocatable", name), "must be a quantity") from None
    return found
