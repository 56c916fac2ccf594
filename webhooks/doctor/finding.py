"""What a check says."""

from dataclasses import dataclass
from typing import Final

OK: Final = "ok"
WARNING: Final = "warning"
FAILURE: Final = "failure"
LEVELS: Final = (OK, WARNING, FAILURE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Whether something is as it has to be, what was seen, and what to do where it is not."""

    level: str
    subject: str
    seen: str
    todo: str = ""

    @classmethod
    def ok(cls, subject: str, seen: str) -> "Finding":
        """It is as it has to be."""
        return cls(level=OK, subject=subject, seen=seen)

    @classmethod
    def warning(cls, subject: str, seen: str, todo: str) -> "Finding":
        """It may be meant so, or could not be looked at."""
        return cls(level=WARNING, subject=subject, seen=seen, todo=todo)

    @classmethod
    def failure(cls, subject: str, seen: str, todo: str) -> "Finding":
        """Tenants can't get what they order, or can get what they must not."""
        return cls(level=FAILURE, subject=subject, seen=seen, todo=todo)
