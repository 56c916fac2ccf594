"""Usage records as they stand: Cozystack's Workloads and WorkloadMonitors (cozystack.io/v1alpha1)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpu import fields, names

PREFIX: Final = "gpu-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A Workload that may be a usage record of ours: its name begins so."""

    namespace: str
    name: str
    uid: str
    deleting: bool
    monitor: str
    owned: bool
    kind: str
    type: str
    resources: Mapping[str, str]
    operational: bool

    @property
    def ours(self) -> bool:
        """Whether it says that it is under our monitor."""
        return self.monitor == names.USAGE


def read_record(obj: Mapping[str, Any]) -> Record | None:
    """A Workload that may be ours; None for another. Raises FieldError."""
    metadata = fields.required_object(obj, "metadata", "")
    name = fields.required_text(metadata, "name", "metadata")
    if not name.startswith(PREFIX):
        return None
    labels = fields.optional_object(metadata, "labels", "metadata") or {}
    status = fields.optional_object(obj, "status", "") or {}
    resources = fields.optional_object(status, "resources", "status") or {}
    return Record(
        namespace=fields.required_text(metadata, "namespace", "metadata"),
        name=name,
        uid=fields.optional_text(metadata, "uid", "metadata") or "",
        deleting=fields.optional_text(metadata, "deletionTimestamp", "metadata") is not None,
        monitor=fields.optional_text(labels, names.MONITOR, "metadata.labels") or "",
        owned=bool(metadata.get("ownerReferences")),
        kind=fields.optional_text(status, "kind", "status") or "",
        type=fields.optional_text(status, "type", "status") or "",
        resources={key: str(value) for key, value in resources.items()},
        operational=status.get("operational") is True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitor:
    """The WorkloadMonitor of a namespace's usage records."""

    namespace: str
    uid: str
    deleting: bool
    selector: Mapping[str, str]
    replicas: int | None
    owned: bool


def read_monitor(obj: Mapping[str, Any]) -> Monitor | None:
    """Our monitor; None for another. Raises FieldError."""
    metadata = fields.required_object(obj, "metadata", "")
    if fields.required_text(metadata, "name", "metadata") != names.USAGE:
        return None
    spec = fields.optional_object(obj, "spec", "") or {}
    return Monitor(
        namespace=fields.required_text(metadata, "namespace", "metadata"),
        uid=fields.optional_text(metadata, "uid", "metadata") or "",
        deleting=fields.optional_text(metadata, "deletionTimestamp", "metadata") is not None,
        selector=dict(fields.text_map(spec, "selector", "spec")),
        replicas=fields.optional_whole(spec, "replicas", "spec"),
        owned=bool(metadata.get("ownerReferences")),
    )
