"""What to do next with the authorities that the replicas share: a pure function of what is stored and the time.

Each step is one write of the Secret, so that a replica may stop after any and another one goes on from there.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from certs.authorities import Authorities
from certs.renewal import renewal

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from certs.authority import Authority


class Action(Enum):
    """A change of what is stored."""

    MAKE = "make a new authority"
    RESTORE = "store again what was lost"
    TRUST = "go on trusting the authority that was replaced"
    PREPARE = "publish the next authority"
    PROMOTE = "sign with the next authority"
    FORGET = "forget authorities that have expired"


class Step(NamedTuple):
    """An action and the sentence that says why."""

    action: Action
    reason: str


def step(found: Authorities | None, *, held: Authorities | None, now: datetime, published: bool) -> Step | None:
    """The next step at `now` (aware), or None where nothing is to be done.

    `found` is what is stored, None where there is nothing usable; `held` is what this replica last served from;
    `published` says that every webhook has the whole bundle of `found`, and has had it for long enough that every API
    server knows.

    An authority that is due is replaced by one that was published before it signs; only where the one that signs is
    good for nothing any more is that not waited for. A replaced one stays trusted until it expires, which none of its
    leaves outlives. So a replica whose clock is wrong costs a rotation, and no call.
    """
    if found is None:
        if held is not None and _usable(held.current, now):
            return Step(Action.RESTORE, "The authority was gone or unreadable; this replica had it.")
        return Step(Action.MAKE, "There was no authority.")
    if held is not None and not found.trusts(held.current) and _usable(held.current, now):
        return Step(Action.TRUST, "Another authority was stored while certificates of the one before are served.")
    if found.next is not None:
        if reason := renewal(found.next, now=now):
            return Step(Action.PREPARE, f"The next authority is due itself. {reason}")
        if not _usable(found.current, now):
            return Step(Action.PROMOTE, "The authority that signs is not valid.")
        if published:
            return Step(Action.PROMOTE, "Every webhook trusts the next authority.")
    elif reason := renewal(found.current, now=now):
        return Step(Action.PREPARE, reason)
    if found != found.without_expired(now):
        return Step(Action.FORGET, "Nothing that an expired authority signed can be valid.")
    return None


def taken(
    action: Action,
    found: Authorities | None,
    *,
    held: Authorities | None,
    now: datetime,
    make: Callable[[], Authority],
) -> Authorities:
    """What is to be stored after an action that `step` chose for the same arguments."""
    if action is Action.RESTORE and held is not None:
        return held
    if action is Action.MAKE or found is None:
        return Authorities(current=make())
    if action is Action.TRUST and held is not None:
        return found.trusting(held.current)
    if action is Action.PREPARE:
        return found.preparing(make())
    if action is Action.PROMOTE:
        return found.promoted()
    return found.without_expired(now)


def _usable(authority: Authority, now: datetime) -> bool:
    return authority.not_before <= now < authority.not_after
