"""What runs in a cluster and would be refused once the pair is switched on."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpu import fields, names
from gpu.errors import FieldError
from gpu.owner import controller_owner
from gpu.pod import FINISHED
from webhooks.embedded import EmbeddedCatalog
from webhooks.manifests import Manifest, ManifestError
from webhooks.outcome import REFUSED, SKIPPED, Outcome

AUDITED: Final = frozenset({names.VM, names.REPLICA_SET, names.POOL, names.VMI, "Pod"})
"""The kinds that are audited."""

EXISTING: Final = frozenset({names.GPU_CLASS, names.GPU_DEVICE})
"""The kinds that count for the others as they are."""

DELETED: Final = "deleted"
ENDED: Final = "finished"
NO_TENANT: Final = "notTenants"

_CONFLICT: Final = 409
_SETS: Final = frozenset({names.REPLICA_SET, names.POOL})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenants:
    """Which namespaces are tenants': those with the label ``key``, of the value ``value`` where that is given.

    A namespace whose manifest is not there counts as a tenant's, unless it is one of ``others``.
    """

    key: str
    value: str | None = None
    others: frozenset[str] = frozenset()

    @classmethod
    def by(cls, label: str, *, others: Iterable[str]) -> "Tenants":
        """By a label ``KEY`` or ``KEY=VALUE``."""
        key, equals, value = label.partition("=")
        return cls(key=key, value=value if equals else None, others=frozenset(others))

    def strangers(self, manifests: Iterable[Manifest]) -> frozenset[str]:
        """The namespaces that are no tenants'."""
        spaces = [manifest.metadata for manifest in manifests if manifest.obj["kind"] == "Namespace"]
        return self.others | {str(metadata.get("name")) for metadata in spaces if not self._is_tenant(metadata)}

    def _is_tenant(self, metadata: Mapping[str, Any]) -> bool:
        labels = metadata.get("labels")
        if not isinstance(labels, dict) or self.key not in labels:
            return False
        return self.value is None or labels[self.key] == self.value


@dataclass(slots=True)
class Finding:
    """A refused object, and the refused objects that it runs as: a VM's VMI and pods."""

    outcome: Outcome
    runs: list[Outcome] = field(default_factory=list)


def left_out(manifest: Manifest, strangers: frozenset[str]) -> str | None:
    """Why an object is not audited: ``DELETED``, ``ENDED`` or ``NO_TENANT``; None where it is."""
    metadata = manifest.metadata
    if str(metadata.get("namespace") or "default") in strangers:
        return NO_TENANT
    if metadata.get("deletionTimestamp") is not None:
        return DELETED
    return ENDED if manifest.obj["kind"] in {names.VMI, "Pod"} and state_of(manifest.obj) in FINISHED else None


def split(manifests: Iterable[Manifest], tenants: Tenants) -> tuple[list[Manifest], Counter[str]]:
    """The manifests that are audited, and how many are not, by the reason."""
    manifests = list(manifests)
    strangers = tenants.strangers(manifests)
    kept, out = [], Counter[str]()
    for manifest in manifests:
        why = left_out(manifest, strangers) if manifest.obj["kind"] in AUDITED else None
        if why is None:
            kept.append(manifest)
        else:
            out[why] += 1
    return kept, out


def add_existing(catalog: EmbeddedCatalog, manifests: Iterable[Manifest]) -> list[ManifestError]:
    """Put in what is there, which others are judged by: classes, devices and VMIs. What can't be read is an error."""
    problems = []
    for manifest in manifests:
        if manifest.obj["kind"] in EXISTING | {names.VMI}:
            try:
                catalog.add(manifest.obj)
            except FieldError as error:
                if manifest.obj["kind"] in EXISTING:
                    problems.append(ManifestError(manifest.file, str(error), manifest.line(error.path)))
    return problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How many of the audited objects would be refused, which, by namespace, and how many were left out, and why."""

    refused: int
    objects: int
    namespaces: Mapping[str, Sequence[Finding]]
    left_out: Mapping[str, int]

    @classmethod
    def of(cls, outcomes: Iterable[Outcome], out: Mapping[str, int], *, more: int = 0) -> "Report":
        """The report on what was reviewed; ``more`` objects were not since they ask for nothing."""
        audited = [outcome for outcome in outcomes if outcome.kind in AUDITED and outcome.verdict != SKIPPED]
        namespaces: dict[str, list[Finding]] = {}
        for finding in _findings(audited):
            namespaces.setdefault(finding.outcome.namespace, []).append(finding)
        refused = sum(map(_is_refused, audited))
        return cls(
            refused=refused, objects=len(audited) + more, namespaces=dict(sorted(namespaces.items())), left_out=out
        )

    @property
    def advice(self) -> list[str]:
        """What to do, each once."""
        told = [finding.outcome.advice for findings in self.namespaces.values() for finding in findings]
        return list(dict.fromkeys(advice for advice in told if advice))


def _findings(outcomes: Sequence[Outcome]) -> list[Finding]:
    """The refused objects; what is owned by one of them is listed under it."""
    given = {_key(outcome): outcome for outcome in outcomes}
    refused = [outcome for outcome in outcomes if _is_refused(outcome)]
    found = {id(outcome): Finding(outcome) for outcome in refused if _root(outcome, given) is outcome}
    for outcome in refused:
        root = _root(outcome, given)
        if root is not outcome:
            found[id(root)].runs.append(outcome)
    return list(found.values())


def _is_refused(outcome: Outcome) -> bool:
    """Whether it would be refused once the pair is switched on.

    A set's next VMI is in conflict with the one that it has on the same device: that is no news.
    """
    return outcome.verdict == REFUSED and not (outcome.kind in _SETS and outcome.code == _CONFLICT)


def state_of(obj: Mapping[str, Any]) -> str:
    """What the cluster says of an object: a VM's printable status, a VMI's or a pod's phase; empty for others."""
    status = obj.get("status")
    found = status if isinstance(status, dict) else {}
    state = found.get("printableStatus") or found.get("phase")
    return state if isinstance(state, str) else ""


def _root(outcome: Outcome, given: Mapping[tuple[str, str, str], Outcome]) -> Outcome:
    """The topmost refused owner; the object itself where it has none, or where its owners are a ring."""
    root, seen = outcome, {id(outcome)}
    while (owner := _owner(root, given)) is not None and _is_refused(owner):
        if id(owner) in seen:
            return outcome
        seen.add(id(owner))
        root = owner
    return root


def _owner(outcome: Outcome, given: Mapping[tuple[str, str, str], Outcome]) -> Outcome | None:
    """What owns it, among what is given; a VM has its VMI's name, so that one is found for a VMI that is not."""
    try:
        owner = controller_owner(outcome.manifest.metadata, "metadata") or {}
        kind, name = (fields.optional_text(owner, key, "") or "" for key in ("kind", "name"))
    except FieldError:
        return None
    kinds = (kind, names.VM) if kind == names.VMI else (kind,)
    keys = [(outcome.namespace, one, name) for one in kinds]
    return next((given[key] for key in keys if key in given), None)


def _key(outcome: Outcome) -> tuple[str, str, str]:
    return outcome.namespace, outcome.kind, outcome.name
