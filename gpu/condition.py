"""Conditions of a status (k8s.io/apimachinery/pkg/apis/meta/v1, Condition)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpu import fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One aspect of an object's state; ``since`` is when its ``status`` last changed, as it is written."""

    type: str
    status: str
    reason: str
    message: str
    since: str = ""

    def as_dict(self) -> dict[str, str]:
        """The condition as it stands in a status."""
        return {
            "type": self.type,
            "status": self.status,
            "reason": self.reason,
            "message": self.message,
            "lastTransitionTime": self.since,
        }

    def dated(self, stored: "Condition | None", *, now: str) -> "Condition":
        """The same, as old as the stored one of its type where that has the same status, else from now on."""
        since = stored.since if stored and stored.status == self.status and stored.since else now
        return Condition(type=self.type, status=self.status, reason=self.reason, message=self.message, since=since)


def read_conditions(status: Mapping[str, Any]) -> tuple[Condition, ...]:
    """The conditions of a status; what is missing in one is empty. Raises FieldError where they are no objects."""
    return tuple(
        Condition(
            type=str(found.get("type") or ""),
            status=str(found.get("status") or ""),
            reason=str(found.get("reason") or ""),
            message=str(found.get("message") or ""),
            since=str(found.get("lastTransitionTime") or ""),
        )
        for found in fields.objects(status, "conditions", "status")
    )


def of_type(conditions: Iterable[Condition], name: str) -> Condition | None:
    """The condition of a type, of which there is at most one."""
    return next((condition for condition in conditions if condition.type == name), None)
