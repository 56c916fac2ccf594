"""What a table of a policy consists of: who asks for what, and whether the policy lets it in."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from controlplane.client import Object
from policies.callers import Who

TENANTS: Final = "tenant-a"
ELSEWHERE: Final = "elsewhere"
"""A namespace that is nobody's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request. ``obj`` is what is created; else the name of a stored object (see ``stored``)."""

    operation: Literal["create", "update", "delete", "post", "connect"]
    obj: Object | str
    body: Mapping[str, Any] = field(default_factory=dict)
    """The change as a merge patch, the options of a delete, what is posted to a subresource."""
    subresource: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A request as somebody, and what comes of it: ``refused`` is the policy's message, empty where it is let in.

    ``audit`` are the policy's annotations of the audit event; ``reaches`` tells that the API server has nothing else
    against the request, so that it is answered without an error when it is let in.
    """

    title: str
    who: Who
    call: Call
    refused: str = ""
    audit: Mapping[str, str] = field(default_factory=dict)
    where: str = TENANTS
    reaches: bool = True
    code: int = 403


def create(obj: Object) -> Call:
    return Call(operation="create", obj=obj)


def update(stored: str, change: Mapping[str, Any], subresource: str = "") -> Call:
    return Call(operation="update", obj=stored, body=change, subresource=subresource)


def delete(stored: str, **options: Any) -> Call:
    return Call(operation="delete", obj=stored, body=options)


def post(stored: str, subresource: str, body: Object) -> Call:
    return Call(operation="post", obj=stored, body=body, subresource=subresource)


def everyone(
    title: str,
    callers: Iterable[Who],
    call: Call,
    refused: str = "",
    *,
    audit: Mapping[str, str] | None = None,
    where: str = TENANTS,
) -> list[Case]:
    """The same case for each of the callers."""
    return [
        Case(title=f"{title}, by {who.user}", who=who, call=call, refused=refused, audit=audit or {}, where=where)
        for who in callers
    ]


def telling_first(cases: Iterable[Case]) -> list[Case]:
    """The cases, those first that make a request which no case before them makes: by whom matters less."""
    seen: list[tuple[int, int, Case]] = []
    calls: dict[str, int] = {}
    for case in cases:
        key = f"{case.call!r} {case.where} {case.refused}"
        calls[key] = calls.get(key, 0) + 1
        seen.append((calls[key], len(seen), case))
    return [case for _, _, case in sorted(seen, key=lambda place: place[:2])]
