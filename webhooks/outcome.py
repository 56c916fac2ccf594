"""What came of a manifest that was reviewed."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gpu import names
from gpu.fields import printable
from webhooks.instancetypes import INSTANCETYPES
from webhooks.manifests import Manifest

ADMITTED: Final = "admitted"
REFUSED: Final = "refused"
COUNTED: Final = "counted"
SKIPPED: Final = "skipped"
UNUSABLE: Final = "unusable"
VERDICTS: Final = (ADMITTED, REFUSED, UNUSABLE, COUNTED, SKIPPED)
"""``counted`` is what is not judged itself but looked up for others, ``skipped`` what admission does not look at."""

GROUPS: Final = {
    names.GPU_CLASS: names.GROUP,
    names.GPU_DEVICE: names.GROUP,
    names.VMI: names.KUBEVIRT_GROUP,
    names.VM: names.KUBEVIRT_GROUP,
    names.REPLICA_SET: names.KUBEVIRT_GROUP,
    names.POOL: names.KUBEVIRT_POOL_GROUP,
    "Pod": "",
}
"""The kinds that are judged, and their API groups."""

LOOKED_UP: Final = frozenset(
    {names.MIGRATION, "ResourceClaim", "ResourceClaimTemplate", "ResourceQuota", "ConfigMap", *INSTANCETYPES}
)
"""The kinds that are looked up for others."""

_NAMESPACED: Final = (LOOKED_UP | GROUPS.keys()) - names.OF_THE_CLUSTER

_PATH: Final = re.compile(r"(?:spec|metadata|status)(?:[.\[][^ ]*?)?(?=:? )")


@dataclass(frozen=True, slots=True)
class Reason:
    """A sentence, and where its cause stands: file, line and field path; ``of`` is the object, where it is another."""

    message: str
    file: Path
    line: int
    field: str = ""
    of: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a part of the judged object is written: its ``field`` is ``path`` of the manifest, or of what ``of`` names.

    ``at`` is the manifest's field to be pointed at, where ``path`` is not in there.
    """

    manifest: Manifest
    field: str = ""
    path: str = ""
    of: str = ""
    at: str = ""

    def holds(self, field_path: str) -> bool:
        """Whether the field is the part or within it."""
        return not self.field or field_path == self.field or field_path.startswith((f"{self.field}.", f"{self.field}["))

    def reason(self, field_path: str, message: str) -> Reason:
        """A reason for a field of the judged object."""
        rest = field_path[len(self.field) :]
        dot = "." if self.path and rest and not rest.startswith((".", "[")) else ""
        path = f"{self.path}{dot}{rest}" if field_path else ""
        line = self.manifest.line(self.at or path)
        return Reason(printable(message), self.manifest.file, line, printable(path), printable(self.of))


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What came of one manifest.

    ``places`` say where the judged object's fields are written, the most general first. ``changes`` are what the
    mutating path said that it did, ``diff`` is what it did, as a unified diff in YAML; ``code`` is the refusal's.
    """

    manifest: Manifest
    kind: str
    namespace: str
    name: str
    user: str = ""
    verdict: str = ADMITTED
    code: int = 200
    note: str = ""
    advice: str = ""
    reasons: list[Reason] = field(default_factory=list)
    warnings: list[Reason] = field(default_factory=list)
    changes: list[Reason] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    diff: str = ""
    places: list[Place] = field(default_factory=list)

    @classmethod
    def of(cls, manifest: Manifest, *, namespace: str) -> "Outcome":
        """The outcome of a manifest that is not judged yet; ``namespace`` is for one that does not say."""
        metadata, kind = manifest.metadata, manifest.obj["kind"]
        named = metadata.get("name") or metadata.get("generateName")
        own = metadata.get("namespace") or (namespace if kind in _NAMESPACED else "")
        return cls(
            manifest=manifest,
            kind=kind,
            namespace=own if isinstance(own, str) else "",
            name=named if isinstance(named, str) else "",
            places=[Place(manifest)],
        )

    def refuse(self, code: int, causes: Iterable[tuple[str, str]], advice: str = "") -> None:
        """Note a refusal; a cause is a field path of the judged object, perhaps empty, and a sentence."""
        self.verdict, self.code, self.advice = REFUSED, code, printable(advice)
        self.reasons += [self._placed(path).reason(path, message) for path, message in causes]

    def unusable(self, field_path: str, message: str) -> None:
        """Note why it can't be judged."""
        self.verdict = UNUSABLE
        self.reasons.append(Place(self.manifest).reason(field_path, message))

    def noted(self, lines: Sequence[str]) -> list[Reason]:
        """Lines that the pair said, with the place of the field that each begins with."""
        found = [(line, _PATH.match(line)) for line in lines]
        paths = [(line, match[0] if match else "") for line, match in found]
        placed = [(line, self._placed(path).reason(path, "")) for line, path in paths]
        return [Reason(printable(line), reason.file, reason.line) for line, reason in placed]

    def _placed(self, field_path: str) -> Place:
        return max((place for place in self.places if place.holds(field_path)), key=lambda place: len(place.field))
