"""The steps of the authorities' life."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certs import Authority, renewal
from certs.authorities import Authorities, certificate_of
from certs.rotation import Action, Signing, Trust, signing, step, taken

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = datetime(2031, 5, 17, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)
YEAR = 365 * DAY


def again(_: datetime | None = None) -> Authority:
    return made()


def trust_of(*, published: bool) -> Callable[[Authority], Trust]:
    """Every webhook has trusted every authority for long, or none."""
    return lambda _: Trust(10.0 if published else None, 5.0)


def made(*, age: timedelta = timedelta(), lifetime: timedelta = YEAR) -> Authority:
    return Authority.create(common_name="test", now=NOW - age, lifetime=lifetime)


FRESH, DUE, EXPIRED, FUTURE = made(), made(age=300 * DAY), made(age=2 * YEAR), made(age=-YEAR)
OTHER = made(age=DAY)


def action(
    found: Authorities | None, *, held: Authorities | None = None, published: bool = False, now: datetime = NOW
) -> Action | None:
    todo = step(found, held=held, now=now, lifetime=YEAR, trust=trust_of(published=published))
    assert todo is None or todo.reason.endswith(".")
    return todo and todo.action


def test_the_first_replica_makes_the_authority() -> None:
    assert action(None) is Action.MAKE


def test_a_lost_authority_is_stored_again_by_who_has_it() -> None:
    held = Authorities(current=FRESH, next=OTHER, old=(certificate_of(DUE),))
    assert action(None, held=held) is Action.RESTORE
    assert taken(Action.RESTORE, None, held=held, now=NOW, make=again) == held


def test_a_lost_authority_that_has_expired_is_not_stored_again() -> None:
    assert action(None, held=Authorities(current=EXPIRED)) is Action.MAKE


def test_nothing_is_done_with_an_authority_in_its_prime() -> None:
    assert action(Authorities(current=FRESH)) is None
    assert action(Authorities(current=FRESH), held=Authorities(current=FRESH), published=True) is None


def test_an_authority_that_was_replaced_under_a_living_replica_stays_trusted() -> None:
    # Given a replica that serves one authority's leaf, and another one stored
    held, found = Authorities(current=OTHER), Authorities(current=FRESH)
    # Then the one it serves is trusted again before anything else
    assert action(found, held=held) is Action.TRUST
    stored = taken(Action.TRUST, found, held=held, now=NOW, make=again)
    assert stored.current == FRESH
    assert stored.trusts(OTHER)
    assert action(stored, held=held) is None


def test_an_authority_that_is_due_signs_until_every_webhook_trusts_the_next() -> None:
    # Given an authority that is due
    found = Authorities(current=DUE)
    # Then the next is published first
    assert action(found, published=True) is Action.PREPARE
    found = taken(Action.PREPARE, found, held=None, now=NOW, make=lambda _: FRESH)
    assert found.current == DUE
    assert found.trusts(FRESH)
    # And signs when it is trusted everywhere, no sooner
    assert action(found, published=False) is None
    assert action(found, published=True) is Action.PROMOTE
    found = taken(Action.PROMOTE, found, held=None, now=NOW, make=again)
    assert found.current == FRESH
    # And the old one is trusted until it expires
    assert found.trusts(DUE)
    assert action(found, published=True) is None
    assert action(found, published=True, now=DUE.not_after - timedelta(seconds=1)) is not Action.FORGET
    later = DUE.not_after
    assert action(found, published=True, now=later) is Action.FORGET
    assert not taken(Action.FORGET, found, held=None, now=later, make=again).trusts(DUE)


def test_an_authority_that_is_good_for_nothing_is_replaced_without_waiting() -> None:
    for useless in (EXPIRED, FUTURE):
        assert action(Authorities(current=useless)) is Action.PREPARE
        assert action(Authorities(current=useless, next=FRESH)) is Action.PROMOTE


def test_a_next_authority_that_grew_old_is_made_anew() -> None:
    assert action(Authorities(current=DUE, next=DUE), published=True) is Action.PREPARE


def test_the_next_authority_begins_with_the_one_that_it_replaces() -> None:
    # So that a clock that is ahead of the others makes none that they take for one of the future
    asked: list[datetime | None] = []

    def make(since: datetime | None) -> Authority:
        asked.append(since)
        return FRESH

    taken(Action.PREPARE, Authorities(current=DUE), held=None, now=NOW, make=make)
    taken(Action.MAKE, None, held=None, now=NOW, make=make)
    assert asked == [DUE.not_before, None]


@pytest.mark.parametrize(("seconds", "expected"), [(None, None), (4.9, None), (5.0, Action.PROMOTE)])
def test_the_next_authority_waits_until_every_api_server_knows_it(
    seconds: float | None, expected: Action | None
) -> None:
    asked: list[Authority] = []

    def trust(authority: Authority) -> Trust:
        asked.append(authority)
        return Trust(seconds, 5.0)

    found = Authorities(current=DUE, next=FRESH)
    todo = step(found, held=found, now=NOW, lifetime=YEAR, trust=trust)
    assert (todo and todo.action) is expected
    assert asked == [FRESH]


@pytest.mark.parametrize(("seconds", "expected"), [(None, None), (9.9, None), (10.0, Action.FORGET)])
def test_an_old_authority_goes_when_every_replica_could_have_seen_the_one_that_signs(
    seconds: float | None, expected: Action | None
) -> None:
    # By the clock of another replica it may be valid, and its leaf is served there
    found = Authorities(current=FRESH, old=(certificate_of(EXPIRED),))
    todo = step(found, held=found, now=NOW, lifetime=YEAR, trust=lambda _: Trust(seconds, 5.0))
    assert (todo and todo.action) is expected


LEAF = OTHER.issue(names=["localhost"], now=NOW, lifetime=9 * DAY)


def signed(
    wanted: Authority,
    signer: Authority | None = OTHER,
    *,
    now: datetime = NOW,
    trusted: dict[int, float] | None = None,
) -> Signing | None:
    return signing(
        wanted,
        signer=signer,
        leaf=None if signer is None else LEAF,
        now=now,
        lifetime=9 * DAY,
        trust=lambda authority: Trust((trusted or {}).get(authority.serial), 5.0),
    )


def test_a_replica_serves_its_first_leaf_at_once() -> None:
    assert signed(FRESH, None) == (FRESH, "It is the first.")


def test_a_leaf_is_renewed_at_two_thirds_of_its_life_and_however_far_the_clock_jumps_ahead() -> None:
    assert signed(OTHER, now=NOW + 5 * DAY) is None
    for jump in (6 * DAY, 30 * DAY):
        found = signed(OTHER, now=NOW + jump)
        assert found is not None
        assert found.signer == OTHER


def test_a_clock_that_was_set_back_leaves_what_is_served_to_those_whose_clock_is_right() -> None:
    assert signed(OTHER, now=OTHER.not_before - DAY) is None


def test_another_authority_signs_when_every_api_server_trusts_it() -> None:
    another = (FRESH, "It is of another authority.")
    assert signed(FRESH) is None
    assert signed(FRESH, trusted={FRESH.serial: 4.9, OTHER.serial: 60.0}) is None
    assert signed(FRESH, trusted={FRESH.serial: 5.0, OTHER.serial: 60.0}) == another
    # And at once where nobody trusts the one that is served, or it has expired
    assert signed(FRESH, trusted={FRESH.serial: 0.0}) == another
    assert signed(FRESH, now=OTHER.not_after) == another
    # And while it waits, the leaf of the old one is renewed
    found = signed(FRESH, now=NOW + 6 * DAY, trusted={OTHER.serial: 60.0})
    assert found is not None
    assert found.signer == OTHER


kinds = st.sampled_from([FRESH, OTHER, DUE, EXPIRED, FUTURE])
states = st.none() | st.builds(
    Authorities,
    current=kinds,
    next=st.none() | kinds,
    old=st.sets(kinds, max_size=3).map(lambda old: tuple(map(certificate_of, old))),
)


@settings(deadline=None, max_examples=300)
@given(found=states, held=states, flags=st.lists(st.booleans(), min_size=12, max_size=12))
def test_from_any_state_the_steps_end_with_an_authority_in_its_prime_and_no_leaf_untrusted(
    found: Authorities | None, held: Authorities | None, flags: list[bool]
) -> None:
    # Given any stored state, and what a replica serves from; bundles are published or not at any step
    alive = held.current if held and held.current.not_before <= NOW < held.current.not_after else None
    for published in [*flags, *[True] * 12]:
        todo = step(found, held=held, now=NOW, lifetime=YEAR, trust=trust_of(published=published))
        if todo is None:
            if published:
                break
            continue
        before, found = found, taken(todo.action, found, held=held, now=NOW, make=again)
        # Then every step changes something
        assert found != before
        # And a valid authority never comes to sign unpublished while another valid one could
        if before is not None and found.current != before.current:
            usable = before.current.not_before <= NOW < before.current.not_after
            assert published or not usable
            assert before.trusts(found.current)
        # And no valid authority that signed goes out of the bundle
        if before is not None and before.current.not_after > NOW:
            assert found.trusts(before.current)
    # And in the end nothing is left to do, with an authority that is not due
    assert found is not None
    assert step(found, held=held, now=NOW, lifetime=YEAR, trust=trust_of(published=True)) is None
    assert renewal(found.current, now=NOW, lifetime=YEAR) is None
    # And what the replica serves is trusted
    assert alive is None or found.trusts(alive)
    assert all(old.not_valid_after_utc > NOW for old in found.old)
