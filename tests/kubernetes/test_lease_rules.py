"""Who may hold the Lease, decided on what was seen and on one's own clock alone."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cluster.lease import (
    DEFAULT,
    DURATION,
    Create,
    Hold,
    Record,
    Seen,
    Wait,
    held,
    look,
    manifest,
    released,
    step,
)

NOW = datetime(2026, 1, 1, 12, 0, 0, 5, tzinfo=UTC)
THEIRS = Record(holder="them", seconds=15, renewed="t1", acquired="t0", transitions=3, version="7")


def test_where_there_is_no_lease_one_is_made() -> None:
    assert step(None, now=0, me="me") == Create()
    assert held(None, at=NOW, me="me") == {
        "holderIdentity": "me",
        "leaseDurationSeconds": DURATION,
        "renewTime": "2026-01-01T12:00:00.000005Z",
        "acquireTime": "2026-01-01T12:00:00.000005Z",
        "leaseTransitions": 0,
    }


def test_another_s_lease_is_left_alone_until_it_was_seen_unchanged_for_its_duration() -> None:
    seen = Seen(THEIRS, 100)

    assert step(seen, now=114.9, me="me") == Wait("them")
    assert step(seen, now=115, me="me") == Hold(THEIRS, again=False)


def test_each_renewal_begins_the_waiting_anew_and_a_write_on_annotations_does_not() -> None:
    seen = Seen(THEIRS, 100)

    assert look(replace(THEIRS, version="8"), seen, now=110).since == 100
    assert look(replace(THEIRS, renewed="t2", version="8"), seen, now=110).since == 110


def test_the_time_that_stands_in_the_record_decides_nothing() -> None:
    ancient = replace(THEIRS, renewed="1970-01-01T00:00:00.000000Z")

    assert step(look(ancient, None, now=100), now=100, me="me") == Wait("them")


def test_a_lease_that_was_given_back_is_taken_at_once() -> None:
    spec = released(THEIRS, at=NOW)
    free = Record.from_dict({**manifest("a", "b", spec), "metadata": {"resourceVersion": "9"}})

    assert free.holder == ""
    assert step(Seen(free, 100), now=100, me="me") == Hold(free, again=False)


def test_taking_counts_as_a_transition_and_renewing_does_not() -> None:
    mine = replace(THEIRS, holder="me")

    taken, renewed = held(THEIRS, at=NOW, me="me"), held(mine, at=NOW, me="me")

    assert (taken["leaseTransitions"], renewed["leaseTransitions"]) == (4, 3)
    assert taken["acquireTime"] == taken["renewTime"]
    assert renewed["acquireTime"] == "t0"


@pytest.mark.parametrize("spec", [None, {}, {"holderIdentity": None, "leaseDurationSeconds": None, "renewTime": None}])
def test_a_lease_that_somebody_emptied_is_free(spec: Any) -> None:
    record = Record.from_dict({"metadata": {"resourceVersion": "1"}, "spec": spec})

    assert step(Seen(record, 0), now=0, me="me") == Hold(record, again=False)


@dataclass
class Candidate:
    """One process: its clock is off by ``skew``, and its last renewal that succeeded ends at ``until``, by it."""

    name: str
    skew: float
    seen: Seen | None = None
    until: float = float("-inf")
    pending: list[tuple[float, Record | None]] = field(default_factory=list)


@dataclass
class Server:
    record: Record | None = None
    version: int = 0

    def write(self, before: Record | None, spec: dict[str, Any]) -> bool:
        """A write with the version as its precondition, as the API server does it."""
        if (self.record and self.record.version) != (before and before.version):
            return False
        self.version += 1
        self.record = Record.from_dict({"metadata": {"resourceVersion": str(self.version)}, "spec": spec})
        return True


STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),  # who
        st.sampled_from(["turn", "look", "send", "arrive", "arrive, answer lost", "annotate", "give back"]),
        st.sampled_from([0.0, 0.5, 1.0, 5.0, 9.0]),  # seconds that go by before: together they make each limit
    ),
    max_size=80,
)


@settings(max_examples=600, deadline=None)
@given(STEPS, st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3))
@example([(0, "turn", 0), (1, "turn", 0), (2, "look", 9), (2, "look", 5), (1, "turn", 1)], [0, 0, 0])
def test_there_are_never_two_leaders(steps: list[tuple[int, str, float]], skews: list[float]) -> None:
    """Whatever is slow, lost or written in between, however wrong the clocks are."""
    time, server = 0.0, Server()
    candidates = [Candidate(f"c{index}", skew) for index, skew in enumerate(skews)]

    def leaders() -> list[str]:
        return [one.name for one in candidates if time + one.skew < one.until]

    for who, what, seconds in steps:
        time += seconds
        assert len(leaders()) <= 1
        one = candidates[who]
        now = time + one.skew
        if what in ("turn", "look"):
            one.seen = look(server.record, one.seen, now=now) if server.record else None
        if what in ("turn", "send"):
            action = step(one.seen, now=now, me=one.name)
            if not isinstance(action, Wait):
                one.pending.append((now, action.record if isinstance(action, Hold) else None))
        if (what == "turn" or what.startswith("arrive")) and one.pending:
            sent, before = one.pending.pop(0)
            at = NOW + timedelta(seconds=now)
            if server.write(before, held(before, at=at, me=one.name)) and what != "arrive, answer lost":
                one.until = max(one.until, sent + DEFAULT.deadline)
        if what == "annotate" and server.record:
            server.version += 1
            server.record = replace(server.record, version=str(server.version))
        if what == "give back" and server.record and server.record.holder == one.name:
            one.until = float("-inf")
            server.write(server.record, released(server.record, at=NOW))
        assert len(leaders()) <= 1, (time, candidates, server)
