"""VirtualMachineInstanceMigration: the moving of a VMI to another node."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from gpu import fields

ENDED: Final = frozenset({"Succeeded", "Failed"})
"""Phases that a migration does not leave (kubevirt.io/api/core/v1, VirtualMachineInstanceMigrationPhase)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """What is known of a VirtualMachineInstanceMigration.

    ``vmi`` is the name of the VMI that it moves; ``selector`` are labels that its target node has to have besides;
    ``ended`` is whether it came to an end, well or not. One that moves to or from another cluster is ``far``.
    """

    namespace: str
    name: str
    uid: str
    vmi: str = ""
    created: datetime | None = None
    ended: bool = False
    far: bool = False
    selector: tuple[tuple[str, str], ...] = ()

    @classmethod
    def from_dict(cls, obj: Mapping[str, Any]) -> "Migration":
        """Read a manifest. Raises FieldError."""
        metadata = fields.required_object(obj, "metadata", "")
        spec = fields.optional_object(obj, "spec", "") or {}
        status = fields.optional_object(obj, "status", "") or {}
        return cls(
            namespace=fields.required_text(metadata, "namespace", "metadata"),
            name=fields.required_text(metadata, "name", "metadata"),
            uid=fields.required_text(metadata, "uid", "metadata"),
            vmi=fields.optional_text(spec, "vmiName", "spec") or "",
            created=fields.time(metadata.get("creationTimestamp")),
            ended=fields.optional_text(status, "phase", "status") in ENDED,
            far=bool(spec.get("sendTo") or spec.get("receive")),
            selector=tuple(sorted(fields.text_map(spec, "addedNodeSelector", "spec").items())),
        )
