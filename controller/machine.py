"""Virtual machines: what the controller knows of a VMI beyond what admission does."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from controller.affinity import Terms, Toleration, read_terms, read_tolerations
from gpu import fields, names
from gpu.errors import FieldError
from gpu.owner import controller_owner
from gpu.vmi import VMI

_ENDED: Final = frozenset({"Succeeded", "Failed"})
_KEEPS_RUNNING: Final = frozenset({"Always", "RerunOnFailure"})
"""Run strategies that make a VMI again when its pod is lost (kubevirt.io/api/core/v1, VirtualMachineRunStrategy)."""
_MAKERS: Final = frozenset({names.VM, names.REPLICA_SET})


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a VMI may run, and the claims (PersistentVolumeClaim) of its volumes.

    ``terms`` is None where it has no required node affinity; an empty one lets it run nowhere.
    """

    node_selector: tuple[tuple[str, str], ...] = ()
    terms: Terms | None = None
    tolerations: tuple[Toleration, ...] = ()
    claims: tuple[str, ...] = ()


ANYWHERE: Final = Placement()


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A VMI that exists. ``told`` is what its annotation says of the hold; ``maker`` the kind of its controller owner,
    where that makes another VMI when this one is lost.
    """  # fmt: skip

    vmi: VMI
    created: datetime | None = None
    ended: bool = False
    node_name: str = ""
    placement: Placement = ANYWHERE
    told: str = ""
    maker: str = ""

    @property
    def may_be_bound(self) -> bool:
        """Whether a device can be given to it: it is not on its way out."""
        return not self.vmi.deleting and not self.ended

    @classmethod
    def from_dict(cls, obj: Mapping[str, Any]) -> "Machine":
        """Read a manifest. Raises FieldError."""
        vmi = VMI.from_dict(obj)
        if not vmi.device:
            return cls(vmi=vmi)
        metadata = obj["metadata"]
        status = fields.optional_object(obj, "status", "") or {}
        annotations = fields.optional_object(metadata, "annotations", "metadata") or {}
        return cls(
            vmi=vmi,
            created=fields.time(metadata.get("creationTimestamp")),
            ended=fields.optional_text(status, "phase", "status") in _ENDED,
            node_name=fields.optional_text(status, "nodeName", "status") or "",
            placement=_placement(obj),
            told=fields.optional_text(annotations, names.DEVICE_HELD, "metadata.annotations") or "",
            maker=_maker(metadata),
        )


def _placement(obj: Mapping[str, Any]) -> Placement:
    """Where it may run. A VMI must not seem to be gone because that can't be read: the scheduler decides then."""
    try:
        return read_placement(fields.optional_object(obj, "spec", "") or {})
    except FieldError:
        return ANYWHERE


def _maker(metadata: Mapping[str, Any]) -> str:
    owner = controller_owner(metadata, "metadata") or {}
    group = str(owner.get("apiVersion") or "").rpartition("/")[0]
    kind = str(owner.get("kind") or "")
    return kind if group == names.KUBEVIRT_GROUP and kind in _MAKERS else ""


def read_placement(spec: Mapping[str, Any]) -> Placement:
    """Where a VMI's spec lets it run. Raises FieldError."""
    affinity = fields.optional_object(spec, "affinity", "spec") or {}
    of_nodes = fields.optional_object(affinity, "nodeAffinity", "spec.affinity") or {}
    path = "spec.affinity.nodeAffinity"
    required = fields.optional_object(of_nodes, "requiredDuringSchedulingIgnoredDuringExecution", path)
    selector = fields.optional_object(spec, "nodeSelector", "spec")
    placement = Placement(
        node_selector=tuple(sorted(fields.text_map(spec, "nodeSelector", "spec").items())) if selector else (),
        terms=None if required is None else read_terms(required, path),
        tolerations=read_tolerations(spec, "spec.tolerations"),
        claims=tuple(sorted(set(_claims(spec)))),
    )
    return ANYWHERE if placement == ANYWHERE else placement


def _claims(spec: Mapping[str, Any]) -> Iterator[str]:
    """The claims behind a VMI's volumes; that of a DataVolume has its name (kubevirt.io/api/core/v1, VolumeSource)."""
    for volume in fields.objects(spec, "volumes", "spec"):
        ephemeral = fields.optional_object(volume, "ephemeral", "spec.volumes[]") or {}
        for holder, key, field in (
            (volume, "persistentVolumeClaim", "claimName"),
            (volume, "dataVolume", "name"),
            (volume, "memoryDump", "claimName"),
            (ephemeral, "persistentVolumeClaim", "claimName"),
        ):
            source = fields.optional_object(holder, key, "spec.volumes[]") or {}
            if name := fields.optional_text(source, field, f"spec.volumes[].{key}"):
                yield name
    for volume in fields.objects(spec, "utilityVolumes", "spec"):
        if name := fields.optional_text(volume, "claimName", "spec.utilityVolumes[]"):
            yield name


@dataclass(frozen=True, slots=True)
class Unmade:
    """A VM, by uid, that makes no other VMI when the one that it has is lost."""

    uid: str


def read_unmade(obj: Mapping[str, Any]) -> Unmade | None:
    """A VM that makes no other VMI, by its run strategy; None for one that does. Raises FieldError."""
    metadata = fields.required_object(obj, "metadata", "")
    spec = fields.optional_object(obj, "spec", "") or {}
    if spec.get("running") is True or fields.optional_text(spec, "runStrategy", "spec") in _KEEPS_RUNNING:
        return None
    return Unmade(fields.required_text(metadata, "uid", "metadata"))
