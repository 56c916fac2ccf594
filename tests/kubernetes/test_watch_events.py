"""What a watch's lines mean, and how long it pauses between tries."""

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import ApiError, Expired
from cluster.events import LONGEST_PAUSE, Bookmark, Broken, Failed, Gone, Put, number, pause, read_event

POD = {"metadata": {"namespace": "a", "name": "b", "resourceVersion": "7"}}


def line(kind: object, obj: object) -> bytes:
    return orjson.dumps({"type": kind, "object": obj})


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED"])
def test_an_object_that_is_there_is_put(kind: str) -> None:
    assert read_event(line(kind, POD), asked="") == Put(POD, "7")


def test_an_object_that_is_deleted_is_gone() -> None:
    assert read_event(line("DELETED", POD), asked="") == Gone(POD, "7")


def test_a_bookmark_has_the_version_alone() -> None:
    bookmark = {"kind": "Pod", "metadata": {"resourceVersion": "9", "creationTimestamp": None}}

    assert read_event(line("BOOKMARK", bookmark), asked="") == Bookmark("9")


def test_an_expired_version_is_told_by_its_code() -> None:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 1 (2)"}

    event = read_event(line("ERROR", status), asked="watch pods")

    assert isinstance(event, Failed)
    assert isinstance(event.error, Expired)
    assert str(event.error) == "watch pods: too old resource version: 1 (2)"


@pytest.mark.parametrize("code", [None, "410", 500])
def test_another_failure_is_an_error_of_the_api_server(code: object) -> None:
    event = read_event(line("ERROR", {"kind": "Status", "code": code}), asked="")

    assert isinstance(event, Failed)
    assert type(event.error) is ApiError
    assert event.error.code == 500


@pytest.mark.parametrize(
    "broken",
    [
        b'{"type":"ADDED","obj',
        b"[]",
        b"null",
        b'{"type":"ADDED"}',
        line("ADDED", []),
        line("ADDED", {"metadata": {}}),
        line("DELETED", {"metadata": {"resourceVersion": 7}}),
        line("BOOKMARK", {"metadata": None}),
        line("RENAMED", POD),
        line(None, POD),
        line(["ADDED"], POD),
    ],
)
def test_what_makes_no_sense_is_broken_and_raises_nothing(broken: bytes) -> None:
    assert isinstance(read_event(broken, asked=""), Broken)


@settings(deadline=None)
@given(st.binary() | st.dictionaries(st.sampled_from(["type", "object"]), st.text() | st.none()).map(orjson.dumps))
def test_no_line_raises(data: bytes) -> None:
    read_event(data, asked="")


@settings(deadline=None)
@given(st.integers(1, 10_000), st.floats(0, 1))
def test_a_pause_is_never_long_and_never_nothing(failures: int, chance: float) -> None:
    assert 0.05 <= pause(failures, chance=chance) <= LONGEST_PAUSE


def test_pauses_grow() -> None:
    pauses = [pause(failures, chance=1) for failures in range(1, 8)]

    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


def test_an_api_server_that_wants_to_be_left_alone_is_left_alone() -> None:
    assert pause(1, chance=0, retry_after=5) == 5
    assert pause(1, chance=0, retry_after=86_400) == 30


@pytest.mark.parametrize(
    ("version", "expected"), [("12", 12), ("", 0), ("a1", 0), ("-1", 0), ("٣", 0), ("9" * 5000, 0)]
)
def test_a_version_that_is_no_number_is_older_than_all(version: str, expected: int) -> None:
    assert number(version) == expected
