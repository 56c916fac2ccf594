"""What a watch says, and how long to wait when it says nothing: the parts of a watch that need no connection."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import orjson

from cluster.errors import ApiError, api_error

LONGEST_PAUSE: Final = 2.0
"""Seconds between two tries at most, so that memory is right again soon after the API server is back."""

_FIRST_PAUSE: Final = 0.1


@dataclass(frozen=True, slots=True)
class Put:
    """An object is there, in this state."""

    obj: dict[str, Any]
    version: str


@dataclass(frozen=True, slots=True)
class Gone:
    """An object is gone; this was its last state, and ``version`` is that of its end."""

    obj: dict[str, Any]
    version: str


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Everything up to this resource version has been told."""

    version: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The API server gives up this watch."""

    error: ApiError


@dataclass(frozen=True, slots=True)
class Broken:
    """Nothing that a watch can say; ``why`` is what is wrong with it."""

    why: str


Event: TypeAlias = Put | Gone | Bookmark | Failed | Broken


def read_event(line: bytes, *, asked: str) -> Event:
    """Read one line of a watch (k8s.io/apimachinery/pkg/apis/meta/v1, WatchEvent)."""
    try:
        event = orjson.loads(line)
    except ValueError:
        return Broken("it is no JSON")
    obj = event.get("object") if isinstance(event, dict) else None
    if not isinstance(obj, dict):
        return Broken("it has no object")
    kind = event.get("type")
    if kind == "ERROR":
        code = obj.get("code")
        return Failed(api_error({**obj, "code": code if isinstance(code, int) else 500}, asked=asked))
    version = version_of(obj)
    if not version:
        return Broken("its object has no resource version")
    match kind:
        case "ADDED" | "MODIFIED":
            return Put(obj, version)
        case "DELETED":
            return Gone(obj, version)
        case "BOOKMARK":
            return Bookmark(version)
    return Broken("its type is unknown")


def version_of(obj: Mapping[str, Any]) -> str:
    """The resource version of an object or a list; empty where there is none."""
    metadata = obj.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return version if isinstance(version, str) else ""


def number(version: str) -> int:
    """A resource version to compare with others of its kind; 0 where it is not a number.

    They are etcd's revisions, and may be compared as numbers (KEP-5504).
    """
    return int(version) if version.isascii() and version.isdigit() and len(version) < 20 else 0


def pause(failures: int, *, chance: float, retry_after: float = 0) -> float:
    """Seconds to wait after so many failures in a row; ``chance``, from 0 to 1, keeps watches from acting as one.

    Never less than what the API server asked for, as far as that is half a minute.
    """
    longest = min(LONGEST_PAUSE, _FIRST_PAUSE * float(2 ** min(failures - 1, 10)))
    return max(longest * (0.5 + chance / 2), min(retry_after, 30.0))
