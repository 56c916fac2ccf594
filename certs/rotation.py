"""What to do next with the authorities that the replicas share: a pure function of what is stored and the time.

Each step is one write of the Secret, so that a replica may stop after any and another one goes on from there.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from certs.authorities import Authorities
from certs.renewal import leaf_renewal, renewal

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, timedelta

    from certs.authority import Authority, Pair


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


class Trust(NamedTuple):
    """For how many seconds the webhooks were seen to trust an authority, every one of them; None where they do not.

    `settle` is how many it takes until every API server knows what a configuration says.
    """

    seconds: float | None
    settle: float

    @property
    def settled(self) -> bool:
        """Whether every API server knows."""
        return self.seconds is not None and self.seconds >= self.settle

    @property
    def acted_on(self) -> bool:
        """Whether every replica has seen it for long enough to sign with that authority."""
        return self.seconds is not None and self.seconds >= 2 * self.settle


def step(
    found: Authorities | None,
    *,
    held: Authorities | None,
    now: datetime,
    lifetime: timedelta,
    trust: Callable[[Authority], Trust],
) -> Step | None:
    """The next step at `now` (aware), or None where nothing is to be done.

    `found` is what is stored, None where there is nothing usable; `held` is what this replica last served from;
    `lifetime` is how long an authority is to live; `trust` tells since when the webhooks trust one.

    An authority that is due is replaced by one that was published before it signs; only where the one that signs is
    good for nothing any more is that not waited for. A replaced one stays trusted until it expires, which none of its
    leaves outlives: a replica that is cut off goes on signing with it. So one whose clock is wrong costs a rotation,
    and no call of the others.
    """
    if found is None:
        if held is not None and _usable(held.current, now):
            return Step(Action.RESTORE, "The authority was gone or unreadable; this replica had it.")
        return Step(Action.MAKE, "There was no authority.")
    if held is not None and not found.trusts(held.current) and _usable(held.current, now):
        return Step(Action.TRUST, "Another authority was stored while certificates of the one before are served.")
    if found.next is not None:
        if reason := renewal(found.next, now=now, lifetime=lifetime):
            return Step(Action.PREPARE, f"The next authority is due itself. {reason}")
        if not _usable(found.current, now):
            return Step(Action.PROMOTE, "The authority that signs is not valid.")
        if trust(found.next).settled:
            return Step(Action.PROMOTE, "Every webhook trusts the next authority.")
    elif reason := renewal(found.current, now=now, lifetime=lifetime):
        return Step(Action.PREPARE, reason)
    # Not at once: by the clocks of others it may be valid, and signed what they serve.
    if found != found.without_expired(now) and trust(found.current).acted_on:
        return Step(Action.FORGET, "Nothing that an expired authority signed can be valid.")
    return None


def taken(
    action: Action,
    found: Authorities | None,
    *,
    held: Authorities | None,
    now: datetime,
    make: Callable[[datetime | None], Authority],
) -> Authorities:
    """What is to be stored after an action that `step` chose for the same arguments.

    `make` is given the beginning of the authority that the new one is to replace, if there is one.
    """
    if action is Action.RESTORE and held is not None:
        return held
    if action is Action.MAKE or found is None:
        return Authorities(current=make(None))
    if action is Action.TRUST and held is not None:
        return found.trusting(held.current)
    if action is Action.PREPARE:
        return found.preparing(make(found.current.not_before))
    if action is Action.PROMOTE:
        return found.promoted()
    return found.without_expired(now)


class Signing(NamedTuple):
    """The authority to have the next leaf of, and the sentence that says why."""

    signer: Authority
    reason: str


def signing(
    wanted: Authority,
    *,
    signer: Authority | None,
    leaf: Pair | None,
    now: datetime,
    lifetime: timedelta,
    trust: Callable[[Authority], Trust],
) -> Signing | None:
    """Whether another leaf is to be served at `now`, and of which authority.

    `wanted` is the one that signs by the Secret, `signer` the one of the `leaf` that is served; both None at first.
    Another authority than that has to wait until every API server trusts it, unless nobody trusts the one of the leaf.
    """
    if signer is None or leaf is None:
        return Signing(wanted, "It is the first.")
    if signer != wanted:
        lost = trust(signer).seconds is None and trust(wanted).seconds is not None
        if trust(wanted).settled or lost or now >= signer.not_after:
            return Signing(wanted, "It is of another authority.")
    if now < signer.not_before:
        return None  # Our clock was set back, and what is served is valid by that of everybody else.
    reason = leaf_renewal(leaf, signer=signer, now=now, lifetime=lifetime)
    return None if reason is None else Signing(signer, reason)


def _usable(authority: Authority, now: datetime) -> bool:
    return authority.not_before <= now < authority.not_after
