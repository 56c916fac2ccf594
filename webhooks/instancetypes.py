"""Instancetypes and preferences: what KubeVirt copies of them into the VMIs of the VMs that name them."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from gpu import fields, names
from gpu.errors import FieldError
from webhooks.virtcontroller import vmi_template

_KINDS: Final = {
    "instancetype": {"": names.CLUSTER_INSTANCETYPE, **{kind.lower(): kind for kind in (
        names.INSTANCETYPE, names.CLUSTER_INSTANCETYPE)}},
    "preference": {"": names.CLUSTER_PREFERENCE, **{kind.lower(): kind for kind in (
        names.PREFERENCE, names.CLUSTER_PREFERENCE)}},
}  # fmt: skip
"""By the field of a VM that names one: the kinds that its matcher can name, in small letters."""

INSTANCETYPES: Final = frozenset(kind for kinds in _KINDS.values() for kind in kinds.values())

Stored = Callable[[str, str, str], Mapping[str, Any] | None]
"""Gives an object by kind, namespace (empty for what has none) and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instancetype:
    """The parts of an instancetype that matter to GPUs; a preference has annotations only."""

    kind: str
    name: str
    annotations: Mapping[str, str]
    lists: Mapping[str, list[dict[str, Any]]]

    @property
    def field(self) -> str:
        """The field of a VM that names it."""
        return "preference" if self.kind in _KINDS["preference"].values() else "instancetype"

    @classmethod
    def from_dict(cls, obj: Mapping[str, Any]) -> "Instancetype":
        """Read a manifest. Raises FieldError."""
        metadata = fields.required_object(obj, "metadata", "")
        spec = fields.optional_object(obj, "spec", "") or {}
        kind = fields.required_text(obj, "kind", "")
        listed = () if kind in _KINDS["preference"].values() else ("gpus", "hostDevices")
        return cls(
            kind=kind,
            name=fields.required_text(metadata, "name", "metadata"),
            annotations=fields.text_map(spec, "annotations", "spec"),
            lists={name: list(entries) for name in listed if (entries := fields.objects(spec, name, "spec"))},
        )


@dataclass(slots=True)
class Applied:
    """A VMI with what its VM's instancetype and preference give it.

    ``origins`` says where a field of the VMI comes from: the instancetype, and the field there. ``conflicts`` are
    field paths in the VMI with a sentence each: KubeVirt refuses such a VM. ``missing`` are what could not be looked
    up, as a field path in the VM and a sentence.
    """

    vmi: dict[str, Any]
    origins: dict[str, tuple[Instancetype, str]] = field(default_factory=dict)
    conflicts: list[tuple[str, str]] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)


def with_instancetype(obj: Mapping[str, Any], vmi: Mapping[str, Any], *, namespace: str, stored: Stored) -> Applied:
    """The VMI of a VirtualMachine or a pool as KubeVirt completes it; a replica set's stays as it is.

    Raises FieldError for wrong types on the way, with a path in ``obj``.
    """
    applied = Applied(deepcopy(dict(vmi)))
    found = vmi_template(obj)
    if found is None or obj.get("kind") == names.REPLICA_SET:
        return applied
    path = found[1].removesuffix(".template")
    spec = obj
    for key in path.split("."):
        spec = fields.required_object(spec, key, "")
    for matcher in _KINDS:
        at = fields.child(path, matcher)
        named = fields.optional_object(spec, matcher, path)
        instancetype = _found(named, matcher, at, namespace, stored) if named else None
        if isinstance(instancetype, str):
            applied.missing.append((at, instancetype))
        elif instancetype is not None:
            _annotate(applied, instancetype, found[1])
            for name, entries in instancetype.lists.items():
                _list(applied, instancetype, name, entries, found[1])
    return applied


def _found(named: Mapping[str, Any], matcher: str, at: str, namespace: str, stored: Stored) -> Instancetype | str:
    """What a matcher names, or a sentence on why it is not known."""
    name = fields.optional_text(named, "name", at)
    if not name:
        return "is inferred from a volume: what it sets is not seen here"
    asked = fields.optional_text(named, "kind", at) or ""
    kind = _KINDS[matcher].get(asked.lower().removesuffix("s"))
    if kind is None:
        raise FieldError(f"{at}.kind", f"is no kind of {matcher}: {fields.clip(asked)!r}")
    obj = stored(kind, "" if kind in names.OF_THE_CLUSTER else namespace, name)
    if obj is None:
        return f"{kind} {fields.clip(name)!r} is neither given nor in the catalog: what it sets is not seen here"
    try:
        return Instancetype.from_dict(obj)
    except FieldError as error:
        raise FieldError(at, f"{kind} {fields.clip(name)!r} can't be read: {error}") from None


def _annotate(applied: Applied, instancetype: Instancetype, path: str) -> None:
    metadata = fields.required_object(applied.vmi, "metadata", path)
    annotations = fields.optional_object(metadata, "annotations", f"{path}.metadata") or {}
    metadata["annotations"] = annotations
    for key, value in instancetype.annotations.items():
        at = fields.child("metadata.annotations", key)
        if key not in annotations:
            annotations[key] = value
            applied.origins[at] = instancetype, fields.child("spec.annotations", key)
        elif annotations[key] != value and instancetype.field == "instancetype":
            applied.conflicts.append((at, _conflict(instancetype)))


def _list(applied: Applied, instancetype: Instancetype, name: str, entries: list[dict[str, Any]], path: str) -> None:
    parent, at = applied.vmi, ""
    for key in ("spec", "domain", "devices"):
        found = fields.optional_object(parent, key, f"{path}.{at}".rstrip(".")) or {}
        parent[key] = found
        parent, at = found, fields.child(at, key)
    if parent.get(name):
        applied.conflicts.append((f"{at}.{name}", _conflict(instancetype)))
    else:
        parent[name] = deepcopy(entries)
        applied.origins[f"{at}.{name}"] = instancetype, f"spec.{name}"


def _conflict(instancetype: Instancetype) -> str:
    return f"is set by {instancetype.kind} {fields.clip(instancetype.name)!r} too, and KubeVirt refuses a VM with both"
