"""Where a VirtualMachineInstance asks for GPUs: every road of its spec."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from gpu import fields, names
from gpu.owner import controller_uid

DEVICES: Final = "spec.domain.devices"
RESOURCES: Final = "spec.domain.resources"
_TEXTS: Final = ("name", "deviceName", "claimName", "requestName")
REFERENCE_FIELD: Final = f"metadata.labels[{names.DEVICE_REFERENCE}]"


class Entry(NamedTuple):
    """An element of ``gpus`` or ``hostDevices``: the list it is in, its place there, and itself."""

    list_name: str
    place: int
    value: dict[str, Any]

    @property
    def path(self) -> str:
        """The entry's field path."""
        return f"{DEVICES}.{self.list_name}[{self.place}]"

    @property
    def pointer(self) -> str:
        """The entry's JSON pointer."""
        return f"/spec/domain/devices/{self.list_name}/{self.place}"

    @property
    def device_name(self) -> str | None:
        """The resource that it asks for by name; None where it asks by a claim."""
        return self.value.get("deviceName")

    @property
    def by_claim(self) -> bool:
        """Whether it asks by a resource claim (DRA)."""
        return bool(self.value.get("claimName") or self.value.get("requestName"))


class Amount(NamedTuple):
    """A key of ``domain.resources``: in ``requests`` or in ``limits``, and the resource's name."""

    list_name: str
    resource_name: str

    @property
    def path(self) -> str:
        """The key's field path."""
        return f"{RESOURCES}.{self.list_name}[{self.resource_name}]"


@dataclass(slots=True)
class VMISpec:
    """The parts of a VMI that GPUs can be asked for in; lists are empty and objects None where they are missing.

    ``obj`` is the whole VMI as it came, which nothing here changes.
    """

    obj: Mapping[str, Any]
    metadata: Mapping[str, Any]
    reference: str | None
    template: str | None
    gpus: Sequence[dict[str, Any]]
    host_devices: Sequence[dict[str, Any]]
    amounts: Mapping[str, Mapping[str, Any]]
    resource_claims: Sequence[dict[str, Any]]
    networks: Sequence[dict[str, Any]]

    @classmethod
    def read(cls, obj: Mapping[str, Any]) -> "VMISpec":
        """Read a VMI. Raises FieldError where a part on the way to a GPU has the wrong type."""
        metadata = fields.required_object(obj, "metadata", "")
        reference, template = read_marks(metadata)
        if type(metadata.get("name")) is not str:
            fields.optional_text(metadata, "name", "metadata")
        spec = fields.optional_object(obj, "spec", "") or {}
        domain = fields.optional_object(spec, "domain", "spec") or {}
        devices = fields.optional_object(domain, "devices", "spec.domain") or {}
        resources = fields.optional_object(domain, "resources", "spec.domain") if "resources" in domain else None
        gpus = _entries(devices, "gpus") if "gpus" in devices else ()
        host_devices = _entries(devices, "hostDevices") if "hostDevices" in devices else ()
        claims = fields.objects(spec, "resourceClaims", "spec") if "resourceClaims" in spec else ()
        networks = fields.objects(spec, "networks", "spec") if "networks" in spec else ()
        amounts = _amounts(resources) if resources else {}
        return cls(obj, metadata, reference, template, gpus, host_devices, amounts, claims, networks)

    def entries(self, gpu_names: AbstractSet[str]) -> Iterator[Entry]:
        """The GPU entries: all of ``gpus``, and those of ``hostDevices`` that name a GPU resource."""
        for index, entry in enumerate(self.gpus):
            yield Entry("gpus", index, entry)
        for index, entry in enumerate(self.host_devices):
            if entry.get("deviceName") in gpu_names:
                yield Entry("hostDevices", index, entry)

    def count(self, gpu_names: AbstractSet[str]) -> int:
        """How many GPU entries there are."""
        if not self.host_devices:
            return len(self.gpus)
        return len(self.gpus) + sum(entry.get("deviceName") in gpu_names for entry in self.host_devices)

    def gpu_amounts(self, gpu_names: AbstractSet[str]) -> Iterator[Amount]:
        """The GPU resource names in ``domain.resources``, whatever their quantity."""
        for list_name, amounts in self.amounts.items():
            for name in amounts:
                if name in gpu_names:
                    yield Amount(list_name, name)

    @property
    def name(self) -> str:
        """Its name; empty where it only has a ``generateName`` so far."""
        return str(self.metadata.get("name") or "")

    def network_claims(self) -> Iterator[str]:
        """The names of the resource claims that its networks are attached by."""
        for network in self.networks:
            claim = network.get("resourceClaim")
            if isinstance(claim, dict) and isinstance(name := claim.get("claimName"), str):
                yield name

    def resource_names(self) -> Iterator[str]:
        """Every name with which it asks for a device or a resource outside ``gpus``."""
        for entry in self.host_devices:
            if name := entry.get("deviceName"):
                yield name
        for amounts in self.amounts.values():
            yield from amounts


def _amounts(resources: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    found = ((name, fields.optional_object(resources, name, RESOURCES)) for name in ("requests", "limits"))
    return {name: amounts for name, amounts in found if amounts}


def _entries(devices: Mapping[str, Any], list_name: str) -> Sequence[dict[str, Any]]:
    entries = fields.objects(devices, list_name, DEVICES)
    for index, entry in enumerate(entries):
        for key in _TEXTS:
            if not isinstance(entry.get(key, ""), str):
                fields.optional_text(entry, key, f"{DEVICES}.{list_name}[{index}]")
    return entries


def read_marks(metadata: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The device-reference label and the device-template annotation of a VMI. Raises FieldError."""
    labels = fields.optional_object(metadata, "labels", "metadata") if "labels" in metadata else None
    annotations = fields.optional_object(metadata, "annotations", "metadata") if "annotations" in metadata else None
    return (
        fields.optional_text(labels, names.DEVICE_REFERENCE, "metadata.labels") if labels else None,
        fields.optional_text(annotations, names.DEVICE_TEMPLATE, "metadata.annotations") if annotations else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VMI:
    """What the catalog knows of a VMI that exists. ``device`` is the value of its device-reference label."""

    namespace: str
    name: str
    uid: str
    owner_uid: str
    device: str | None
    deleting: bool

    @classmethod
    def from_dict(cls, obj: Mapping[str, Any]) -> "VMI":
        """Read a manifest. Raises FieldError."""
        metadata = fields.required_object(obj, "metadata", "")
        return cls(
            namespace=fields.required_text(metadata, "namespace", "metadata"),
            name=fields.required_text(metadata, "name", "metadata"),
            uid=fields.required_text(metadata, "uid", "metadata"),
            owner_uid=controller_uid(metadata, "metadata"),
            device=read_marks(metadata)[0],
            deleting=fields.optional_text(metadata, "deletionTimestamp", "metadata") is not None,
        )
