"""When a certificate is due."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import assume, given
from hypothesis import strategies as st

from certs import Authority, due_at, leaf_renewal, renewal


@dataclass(frozen=True)
class Life:
    not_before: datetime
    not_after: datetime


START = datetime(2031, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
LENGTH = 90 * DAY
LIFE = Life(START, START + LENGTH)
MOMENT = timedelta(microseconds=1)

lives = st.builds(
    lambda start, length: Life(start, start + length),
    st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - aware by timezones
    st.timedeltas(timedelta(seconds=1), timedelta(days=36500)),
)
ages = st.floats(-1, 2)


def at(life: Life, age: float) -> datetime:
    return life.not_before + (life.not_after - life.not_before) * age


def test_a_young_certificate_is_left_alone() -> None:
    assert renewal(LIFE, now=START, lifetime=LENGTH) is None
    assert renewal(LIFE, now=START + 60 * DAY - MOMENT, lifetime=LENGTH) is None


def test_a_certificate_is_due_at_two_thirds_of_its_life() -> None:
    assert due_at(LIFE, lifetime=LENGTH) == START + 60 * DAY
    reason = renewal(LIFE, now=START + 60 * DAY, lifetime=LENGTH)
    assert reason == "Two thirds of its life had passed at 2031-03-02T00:00:00+00:00."


def test_what_it_was_valid_before_it_was_made_does_not_count_as_life() -> None:
    # Given a life of nine seconds, of a certificate that was valid from an hour before
    life = Life(START - timedelta(hours=1), START + timedelta(seconds=9))
    # Then it is due after six of them, and no sooner
    assert renewal(life, now=START + timedelta(seconds=6) - MOMENT, lifetime=timedelta(seconds=9)) is None
    assert renewal(life, now=START + timedelta(seconds=6), lifetime=timedelta(seconds=9)) is not None


def test_a_leaf_that_ends_with_its_signer_is_left_alone_while_it_is_valid() -> None:
    # Given a leaf that is due, and a signer that lives on, or not
    signer = Life(START, START + 95 * DAY)
    now = START + 80 * DAY
    assert leaf_renewal(LIFE, signer=signer, now=now, lifetime=LENGTH) is not None
    assert leaf_renewal(LIFE, signer=LIFE, now=now, lifetime=LENGTH) is None
    # And one that is not valid is due all the same
    assert leaf_renewal(LIFE, signer=LIFE, now=START + 90 * DAY, lifetime=LENGTH) is not None
    assert leaf_renewal(LIFE, signer=LIFE, now=START - MOMENT, lifetime=LENGTH) is not None


def test_an_expired_certificate_is_due() -> None:
    assert renewal(LIFE, now=START + 90 * DAY, lifetime=LENGTH) == "It expired at 2031-04-01T00:00:00+00:00."


def test_a_certificate_is_due_when_the_clock_was_set_back_before_its_life() -> None:
    reason = renewal(LIFE, now=START - MOMENT, lifetime=LENGTH)
    assert reason == "It is not valid before 2031-01-01T00:00:00+00:00: the clock was set back."


def test_leaf_and_authority_are_judged_alike() -> None:
    authority = Authority.create(common_name="test", now=START, lifetime=90 * DAY)
    pair = authority.issue(names=["localhost"], now=START, lifetime=60 * DAY)
    later = START + 45 * DAY
    assert renewal(authority, now=later, lifetime=90 * DAY) is None
    assert renewal(pair, now=later, lifetime=60 * DAY) is not None


@given(life=lives, one=ages, other=ages)
def test_what_is_due_once_stays_due(life: Life, one: float, other: float) -> None:
    # Given two moments from the beginning of a certificate's life on
    earlier, later = sorted((at(life, one), at(life, other)))
    assume(earlier >= life.not_before)
    # When it is due at the earlier one, then it is at the later one
    length = life.not_after - life.not_before
    if renewal(life, now=earlier, lifetime=length) is not None:
        assert renewal(life, now=later, lifetime=length) is not None


@given(life=lives, age=ages)
def test_what_is_not_due_is_valid_with_a_third_of_its_life_to_go(life: Life, age: float) -> None:
    now = at(life, age)
    if renewal(life, now=now, lifetime=life.not_after - life.not_before) is None:
        assert life.not_before <= now < life.not_after
        assert (life.not_after - now) * 3 >= life.not_after - life.not_before - 3 * MOMENT
