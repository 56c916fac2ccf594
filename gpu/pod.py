"""Where a pod asks for GPUs, and which node it is pinned to."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from gpu import fields, names, patch
from gpu.condition import of_type, read_conditions
from gpu.errors import FieldError
from gpu.gpuclass import is_extended
from gpu.owner import controller_owner
from gpu.patch import Operation
from gpu.quantity import quantity

FINISHED: Final = frozenset({"Succeeded", "Failed"})

_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
_INIT: Final = re.compile(r"spec\.initContainers\[(\d+)\]")
_AFFINITY: Final = ("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
_TERMS: Final = "nodeSelectorTerms"


class PodRequest(NamedTuple):
    """One place where a pod asks for an extended resource: the field path, the resource's name, the whole amount."""

    path: str
    resource_name: str
    amount: int


class PodClaim(NamedTuple):
    """An entry of a pod's ``resourceClaims``: its field path, and the claim or the template that it names."""

    path: str
    claim: str | None
    template: str | None


def pod_requests(pod: Mapping[str, Any], wanted: Callable[[str], bool] = is_extended) -> list[PodRequest]:
    """The resources with a ``wanted`` name that a pod asks for, once for each place that has amounts of its own.

    Read are containers, init containers, ephemeral containers, pod-level resources and the overhead; of a request and a
    limit the larger counts. Raises FieldError for a wrong type or an amount that is not a whole number.
    """
    found: list[PodRequest] = []
    for amounts in _places(pod):
        largest: dict[str, PodRequest] = {}
        for path, amount_by_name in amounts.items():
            for name, value in amount_by_name.items():
                if wanted(name):
                    at = fields.child(path, name)
                    request = PodRequest(at, name, _whole(value, at))
                    if name not in largest or request.amount > largest[name].amount:
                        largest[name] = request
        found += largest.values()
    return found


def needed(pod: Mapping[str, Any]) -> dict[str, int]:
    """The extended resources that a pod takes of its node, as the scheduler counts: init containers run one by one
    before the others, but for sidecars, which stay (k8s.io/component-helpers/resource, PodRequests).

    Raises FieldError.
    """
    spec = fields.optional_object(pod, "spec", "") or {}
    inits = fields.objects(spec, "initContainers", "spec")
    stays: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for request in pod_requests(pod):
        name, amount = request.resource_name, request.amount
        init = _INIT.match(request.path)
        if init and inits[int(init[1])].get("restartPolicy") != "Always":
            peak[name] = max(peak.get(name, 0), sidecars.get(name, 0) + amount)
            continue
        stays[name] = stays.get(name, 0) + amount
        if init:
            sidecars[name] = sidecars.get(name, 0) + amount
            peak[name] = max(peak.get(name, 0), sidecars[name])
    return {name: max(stays.get(name, 0), peak.get(name, 0)) for name in stays | peak}


def extended_resources(pod: Mapping[str, Any]) -> set[str]:
    """The names of the extended resources that a pod asks for, whatever the amount. Raises FieldError."""
    return {
        name
        for amounts in _places(pod)
        for amount_by_name in amounts.values()
        for name in amount_by_name
        if is_extended(name)
    }


def _places(pod: Mapping[str, Any]) -> Iterator[dict[str, Mapping[str, Any]]]:
    """For each place of a pod that can hold amounts: those by the field path of their map, limits first."""
    spec = fields.optional_object(pod, "spec", "") or {}
    holders = [(spec, "spec")]
    for kind in _CONTAINERS:
        holders += [(item, f"spec.{kind}[{index}]") for index, item in enumerate(fields.objects(spec, kind, "spec"))]
    for holder, path in holders:
        if resources := fields.optional_object(holder, "resources", path):
            at = f"{path}.resources"
            yield {
                f"{at}.{key}": amounts
                for key in ("limits", "requests")
                if (amounts := fields.optional_object(resources, key, at))
            }
    if overhead := fields.optional_object(spec, "overhead", "spec"):
        yield {"spec.overhead": overhead}


def _whole(value: object, path: str) -> int:
    try:
        amount = quantity(value)
    except ValueError:
        raise FieldError(path, "must be a quantity") from None
    if amount < 0 or amount != int(amount):
        raise FieldError(path, "must be a whole number: a device can't be shared or split")
    return int(amount)


def pod_claims(pod: Mapping[str, Any]) -> list[PodClaim]:
    """The resource claims that a pod names. Raises FieldError for a wrong type."""
    spec = fields.optional_object(pod, "spec", "") or {}
    claims = []
    for index, entry in enumerate(fields.objects(spec, "resourceClaims", "spec")):
        path = f"spec.resourceClaims[{index}]"
        claim = fields.optional_text(entry, "resourceClaimName", path)
        claims.append(PodClaim(path, claim, fields.optional_text(entry, "resourceClaimTemplateName", path)))
    return claims


def required_terms(pod: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """The terms of a pod's required node affinity, any one of which must match. Raises FieldError."""
    parent, path = pod, ""
    for key in _AFFINITY:
        found = fields.optional_object(parent, key, path)
        if found is None:
            return ()
        parent, path = found, fields.child(path, key)
    return fields.objects(parent, _TERMS, path)


def _match_fields(pod: Mapping[str, Any]) -> list[Sequence[dict[str, Any]]]:
    path = ".".join(_AFFINITY)
    return [
        fields.objects(term, "matchFields", fields.child(path, f"{_TERMS}[{index}]"))
        for index, term in enumerate(required_terms(pod))
    ]


def _names(node: str) -> dict[str, Any]:
    return {"key": names.NODE_NAME_FIELD, "operator": "In", "values": [node]}


def is_pinned(pod: Mapping[str, Any], node: str) -> bool:
    """Whether a pod can run on no other node: every term of its required node affinity names it. Raises FieldError."""
    terms = _match_fields(pod)
    return bool(terms) and all(_names(node) in requirements for requirements in terms)


def pin(pod: Mapping[str, Any], node: str) -> list[Operation]:
    """The operations that let a pod run on no other node than this one; none where it is so already.

    Terms are alternatives, so each of them gets the node, by ``matchFields`` on ``metadata.name``. Raises FieldError.
    """
    requirement = _names(node)
    terms = _match_fields(pod)
    if not terms:
        return [patch.put(pod, (*_AFFINITY, _TERMS), [{"matchFields": [requirement]}])]
    operations = []
    for index, requirements in enumerate(terms):
        at = patch.pointer(*_AFFINITY, _TERMS, index, "matchFields")
        if not requirements:
            operations.append(patch.add(at, [requirement]))
        elif requirement not in requirements:
            operations.append(patch.add(f"{at}/-", requirement))
    return operations


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """What the catalog knows of a pod that asks for an extended resource.

    ``vmi_uid`` is the uid of the VMI that is its controller owner, empty where none is. ``nodes`` are the nodes that it
    runs on or is pinned to; empty where it may run on any. ``node_name`` is the one that it was put on, empty where it
    waits for one; ``unschedulable`` is since when no node can take it. ``migration`` is the uid of the migration that
    its label says it is a target of.
    """

    namespace: str
    name: str
    uid: str
    vmi_uid: str
    finished: bool
    deleting: bool
    nodes: frozenset[str]
    resources: Mapping[str, int]
    node_name: str = ""
    migration: str = ""
    unschedulable: datetime | None = None

    def asks_for(self, gpu_names: AbstractSet[str]) -> bool:
        """Whether it asks for a GPU resource name."""
        return not gpu_names.isdisjoint(self.resources)

    @classmethod
    def from_dict(cls, obj: Mapping[str, Any]) -> "Pod":
        """Read a manifest. Raises FieldError."""
        metadata = fields.required_object(obj, "metadata", "")
        spec = fields.optional_object(obj, "spec", "") or {}
        status = fields.optional_object(obj, "status", "") or {}
        node = fields.optional_text(spec, "nodeName", "spec")
        return cls(
            namespace=fields.required_text(metadata, "namespace", "metadata"),
            name=fields.required_text(metadata, "name", "metadata"),
            uid=fields.optional_text(metadata, "uid", "metadata") or "",
            vmi_uid=owning_vmi(metadata) or "",
            finished=fields.optional_text(status, "phase", "status") in FINISHED,
            deleting=fields.optional_text(metadata, "deletionTimestamp", "metadata") is not None,
            nodes=frozenset([node] if node else pinned_nodes(required_terms(obj))),
            resources=needed(obj),
            node_name=node or "",
            migration=_label(metadata, names.MIGRATION_JOB),
            unschedulable=None if node else _unschedulable(status),
        )


def _label(metadata: Mapping[str, Any], key: str) -> str:
    return fields.optional_text(fields.optional_object(metadata, "labels", "metadata") or {}, key, "metadata") or ""


def _unschedulable(status: Mapping[str, Any]) -> datetime | None:
    scheduled = of_type(read_conditions(status), "PodScheduled")
    if scheduled is None or scheduled.status != "False" or scheduled.reason != "Unschedulable":
        return None
    return fields.time(scheduled.since)


def owning_vmi(metadata: Mapping[str, Any]) -> str | None:
    """The uid of the kubevirt.io VirtualMachineInstance that is an object's controller owner, if one is."""
    owner = controller_owner(metadata, "metadata")
    if owner is None or owner.get("kind") != names.VMI:
        return None
    version = fields.optional_text(owner, "apiVersion", "metadata.ownerReferences[]") or ""
    group = version.rpartition("/")[0]
    return fields.optional_text(owner, "uid", "metadata.ownerReferences[]") if group == names.KUBEVIRT_GROUP else None


def pinned_nodes(terms: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The nodes that the terms of a required node affinity name. Raises FieldError."""
    for term in terms:
        for requirement in fields.objects(term, "matchFields", _TERMS):
            if requirement.get("key") == names.NODE_NAME_FIELD and requirement.get("operator") == "In":
                yield from fields.texts(requirement, "values", f"{_TERMS}.matchFields")
