"""What is published, and what else is read of others' objects: settings, names on the Lease, DeviceClasses, volumes,
namespaces."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.affinity import Terms, read_terms
from gpu import fields, names


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The ConfigMap ``gpu-settings``, its texts as they are; None where one is missing."""

    resource_names: str | None
    device_class_names: str | None
    version: str = ""
    uid: str = ""
    immutable: bool = False
    deleting: bool = False

    @property
    def listed(self) -> frozenset[str]:
        """The resource names as the policies read them: by commas alone."""
        return frozenset((self.resource_names or "").split(",")) - {""}

    @classmethod
    def from_dict(cls, obj: Mapping[str, Any]) -> "Published":
        """Read a manifest. Raises FieldError."""
        metadata = fields.required_object(obj, "metadata", "")
        data = fields.optional_object(obj, "data", "") or {}
        return cls(
            resource_names=fields.optional_text(data, "resourceNames", "data"),
            device_class_names=fields.optional_text(data, "deviceClassNames", "data"),
            version=fields.optional_text(metadata, "resourceVersion", "metadata") or "",
            uid=fields.optional_text(metadata, "uid", "metadata") or "",
            immutable=obj.get("immutable") is True,
            deleting=fields.optional_text(metadata, "deletionTimestamp", "metadata") is not None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """The controller's Lease: every name that was ever published; None where its annotation is missing.

    Its version changes with every renewal, which is no news.
    """

    name: str
    known: frozenset[str] | None
    version: str = field(default="", compare=False)

    @classmethod
    def from_dict(cls, obj: Mapping[str, Any]) -> "Remembered":
        """Read a manifest. Raises FieldError."""
        metadata = fields.required_object(obj, "metadata", "")
        annotations = fields.optional_object(metadata, "annotations", "metadata") or {}
        text = fields.optional_text(annotations, names.RESOURCE_NAMES, "metadata.annotations")
        return cls(
            name=fields.required_text(metadata, "name", "metadata"),
            known=None if text is None else frozenset(text.split(",")) - {""},
            version=fields.optional_text(metadata, "resourceVersion", "metadata") or "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClass:
    """A DeviceClass (DRA), and the extended resource that it backs."""

    name: str
    extended: str | None

    @classmethod
    def from_dict(cls, obj: Mapping[str, Any]) -> "DeviceClass":
        """Read a manifest. Raises FieldError."""
        metadata = fields.required_object(obj, "metadata", "")
        spec = fields.optional_object(obj, "spec", "") or {}
        return cls(
            name=fields.required_text(metadata, "name", "metadata"),
            extended=fields.optional_text(spec, "extendedResourceName", "spec"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenancy:
    """A namespace: what decides whether it is a tenant's."""

    name: str
    labels: Mapping[str, str]
    deleting: bool

    @classmethod
    def from_dict(cls, obj: Mapping[str, Any]) -> "Tenancy":
        """Read a manifest. Raises FieldError."""
        metadata = fields.required_object(obj, "metadata", "")
        return cls(
            name=fields.required_text(metadata, "name", "metadata"),
            labels=dict(fields.text_map(metadata, "labels", "metadata")),
            deleting=fields.optional_text(metadata, "deletionTimestamp", "metadata") is not None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A PersistentVolumeClaim that is bound, and to which volume."""

    namespace: str
    name: str
    volume: str


def read_claim(obj: Mapping[str, Any]) -> Claim | None:
    """A claim that is bound; None for another. Raises FieldError."""
    metadata = fields.required_object(obj, "metadata", "")
    volume = fields.optional_text(fields.optional_object(obj, "spec", "") or {}, "volumeName", "spec")
    if not volume:
        return None
    return Claim(
        namespace=fields.required_text(metadata, "namespace", "metadata"),
        name=fields.required_text(metadata, "name", "metadata"),
        volume=volume,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A PersistentVolume that only some nodes can reach."""

    name: str
    terms: Terms


def read_volume(obj: Mapping[str, Any]) -> Volume | None:
    """A volume with a node affinity; None for one that every node can reach. Raises FieldError."""
    metadata = fields.required_object(obj, "metadata", "")
    spec = fields.optional_object(obj, "spec", "") or {}
    affinity = fields.optional_object(spec, "nodeAffinity", "spec") or {}
    required = fields.optional_object(affinity, "required", "spec.nodeAffinity")
    if required is None:
        return None
    name = fields.required_text(metadata, "name", "metadata")
    return Volume(name=name, terms=read_terms(required, "spec.nodeAffinity.required"))
