"""VirtualMachineInstanceMigration: the moving of a VMI to another node."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpu import fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """What the catalog knows of a VirtualMachineInstanceMigration."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def from_dict(cls, obj: Mapping[str, Any]) -> "Migration":
        """Read a manifest. Raises FieldError."""
        metadata = fields.required_object(obj, "metadata", "")
        return cls(
            namespace=fields.required_text(metadata, "namespace", "metadata"),
            name=fields.required_text(metadata, "name", "metadata"),
            uid=fields.required_text(metadata, "uid", "metadata"),
        )
