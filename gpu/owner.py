"""Controller owner references."""

from collections.abc import Mapping
from typing import Any

from gpu import fields


def controller_owner(metadata: Mapping[str, Any], path: str) -> dict[str, Any] | None:
    """The owner reference with ``controller: true``, of which an object has at most one. Raises FieldError."""
    for owner in fields.objects(metadata, "ownerReferences", path):
        if owner.get("controller") is True:
            return owner
    return None


def controller_uid(metadata: Mapping[str, Any], path: str) -> str:
    """The uid of the controller owner; empty where there is none. Raises FieldError."""
    owner = controller_owner(metadata, path)
    if owner is None:
        return ""
    return fields.optional_text(owner, "uid", f"{path}.ownerReferences[]") or ""
