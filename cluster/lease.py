"""The Lease: at most one of several processes acts at a time (coordination.k8s.io/v1).

No clock is compared with another's. A holder counts from when it sent its last renewal that succeeded, and stops
at two thirds of its term; others count from when they first saw that renewal, and wait for all of the Lease's duration,
which is longer. So the old holder has stopped before the next begins, as long as their clocks run equally fast.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

from cluster.events import version_of
from cluster.kinds import LEASES

DURATION: Final = 15
"""Seconds for which a renewal keeps others out, where nobody says otherwise."""


@dataclass(frozen=True, slots=True)
class Term:
    """How long a renewal counts: for others, who read it in the Lease, whole ``seconds``."""

    seconds: int = DURATION

    @property
    def deadline(self) -> float:
        """Seconds after its last renewal that a holder goes on acting; what it began has the rest to end."""
        return self.seconds * 2 / 3

    @property
    def period(self) -> float:
        """Seconds between two renewals, and between two looks of those who wait."""
        return self.seconds * 2 / 15


DEFAULT: Final = Term()


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What stands in a Lease; ``holder`` is empty where nobody holds it. ``renewed`` is kept as it is written."""

    holder: str
    seconds: int
    renewed: str
    acquired: str
    transitions: int
    version: str

    @classmethod
    def from_dict(cls, obj: Mapping[str, Any]) -> "Record":
        """Read a Lease; what somebody took out of it has its default."""
        spec = obj.get("spec") or {}
        return cls(
            holder=spec.get("holderIdentity") or "",
            seconds=spec.get("leaseDurationSeconds") or DURATION,
            renewed=spec.get("renewTime") or "",
            acquired=spec.get("acquireTime") or "",
            transitions=spec.get("leaseTransitions") or 0,
            version=version_of(obj),
        )

    def same(self, other: "Record") -> bool:
        """Whether it says the same; its version is another after each write on its annotations too."""
        mine = (self.holder, self.seconds, self.renewed, self.acquired, self.transitions)
        return mine == (other.holder, other.seconds, other.renewed, other.acquired, other.transitions)


@dataclass(frozen=True, slots=True)
class Seen:
    """A record, and when it was first seen to say what it says, by our monotonic clock."""

    record: Record
    since: float


@dataclass(frozen=True, slots=True)
class Create:
    """There is no Lease: make one that we hold."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Write that we hold it, from now on or further on, provided that it is as it was seen."""

    record: Record
    again: bool


@dataclass(frozen=True, slots=True)
class Wait:
    """Another holds it."""

    holder: str


Action: TypeAlias = Create | Hold | Wait


def look(record: Record, seen: Seen | None, *, now: float) -> Seen:
    """What was seen before, or the record as something new."""
    return Seen(record, seen.since if seen and seen.record.same(record) else now)


def step(seen: Seen | None, *, now: float, me: str) -> Action:
    """What to do about the Lease as it was just seen; None where there is none."""
    if seen is None:
        return Create()
    record = seen.record
    if record.holder == me:
        return Hold(record, again=True)
    if not record.holder or now - seen.since >= record.seconds:
        return Hold(record, again=False)
    return Wait(record.holder)


def held(record: Record | None, *, at: datetime, me: str, term: Term = DEFAULT) -> dict[str, Any]:
    """The spec that says that we hold it; ``record`` is what stood there before."""
    time = at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    again = record is not None and record.holder == me
    return {
        "holderIdentity": me,
        "leaseDurationSeconds": term.seconds,
        "renewTime": time,
        "acquireTime": record.acquired if record and again else time,
        "leaseTransitions": record.transitions + (not again) if record else 0,
    }


def released(record: Record, *, at: datetime) -> dict[str, Any]:
    """The spec that says that nobody holds it, so that the next need not wait."""
    return {**held(record, at=at, me=record.holder), "holderIdentity": "", "leaseDurationSeconds": 1}


def manifest(namespace: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """A new Lease."""
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": LEASES.api_version, "kind": LEASES.name, "metadata": metadata, "spec": dict(spec)}
