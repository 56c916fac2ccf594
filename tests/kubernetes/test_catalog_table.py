"""Memory: what a watch told, with our own writes in it before the watch shows them."""

from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from cluster.memory import Memory
from cluster.table import Table
from gpu import fields


def obj(name: str, version: int, *, size: object = 1, namespace: str = "a") -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "name": name, "resourceVersion": str(version)}, "size": size}


def size(thing: Mapping[str, Any]) -> int | None:
    return fields.optional_whole(thing, "size", "")


def table() -> Table[int]:
    return Table("Thing", size)


def test_what_a_list_lacks_is_gone_once_the_list_has_ended() -> None:
    things = table()
    things.put(obj("old", 1))
    things.put(obj("kept", 2))

    things.begin("5")
    things.put(obj("kept", 2))
    things.put(obj("new", 4))
    assert things.get("a", "old") == 1
    things.end()

    assert things.get("a", "old") is None
    assert sorted(things.of("a")) == [1, 1]
    assert len(things) == 2


def test_a_list_that_broke_off_takes_nothing_away() -> None:
    things = table()
    things.put(obj("one", 1))
    things.begin("5")

    things.begin("6")
    things.put(obj("one", 1))
    things.end()

    assert things.get("a", "one") == 1


def test_our_own_write_is_there_before_the_watch_shows_it() -> None:
    things = table()
    things.reached("10")

    things.remember(obj("mine", 11))

    assert things.get("a", "mine") == 1


def test_our_own_write_is_not_there_again_when_its_end_was_seen() -> None:
    things = table()
    things.put(obj("mine", 11))
    things.drop(obj("mine", 12))
    things.reached("12")

    things.remember(obj("mine", 11))

    assert things.get("a", "mine") is None


def test_our_own_write_does_not_come_back_when_the_watch_saw_nothing_of_it_but_is_past_it() -> None:
    things = table()
    things.reached("20")

    things.remember(obj("mine", 11))

    assert things.get("a", "mine") is None


def test_an_older_state_does_not_undo_our_own_write() -> None:
    things = table()
    things.put(obj("mine", 5, size=5))
    things.remember(obj("mine", 11, size=11))

    things.put(obj("mine", 8, size=8))
    things.reached("8")
    assert things.get("a", "mine") == 11

    things.drop(obj("mine", 9))
    assert things.get("a", "mine") == 11


def test_a_newer_state_replaces_our_own_write() -> None:
    things = table()
    things.remember(obj("mine", 11, size=11))

    things.put(obj("mine", 12, size=12))

    assert things.get("a", "mine") == 12


def test_a_list_from_before_our_own_write_keeps_it() -> None:
    things = table()
    things.remember(obj("mine", 11))

    things.begin("10")
    things.end()

    assert things.get("a", "mine") == 1


def test_a_list_from_after_our_own_write_decides() -> None:
    things = table()
    things.begin("10")
    things.remember(obj("mine", 11))
    things.end()

    things.begin("12")
    things.end()

    assert things.get("a", "mine") is None


def test_when_the_store_was_set_back_nothing_remembered_is_newer() -> None:
    things = table()
    things.reached("100")
    things.remember(obj("mine", 101))

    things.begin("50")
    things.put(obj("mine", 40, size=40))
    things.end()

    assert things.get("a", "mine") == 40


def test_what_can_not_be_read_is_left_out_counted_and_logged_once() -> None:
    things = table()
    things.put(obj("bad", 1))

    with capture_logs() as logs:
        things.put(obj("bad", 2, size="x"))
        things.put(obj("bad", 3, size="x"))

    assert things.get("a", "bad") is None
    assert list(things.unreadable) == [("a", "bad")]
    assert [(line["namespace"], line["name"], line["why"]) for line in logs] == [
        ("a", "bad", "size: must be a whole number, not a string")
    ]


def test_what_can_be_read_again_or_is_gone_counts_no_more() -> None:
    things = table()
    for name in ("mended", "gone", "missed"):
        things.put(obj(name, 1, size="x"))

    things.put(obj("mended", 2))
    things.drop(obj("gone", 2))
    things.begin("3")
    things.put(obj("mended", 2))
    things.end()

    assert not things.unreadable
    assert things.of("a") == [1]


def test_an_object_without_metadata_is_left_out() -> None:
    memory = Memory()

    memory.vmis.put({"metadata": None})
    memory.vmis.put({"metadata": {"namespace": 1, "name": []}})

    assert len(memory.vmis) == 0
    assert len(memory.vmis.unreadable) == 1


def test_an_index_follows_what_changes() -> None:
    memory = Memory()

    def machine(name: str, device: str | None) -> dict[str, Any]:
        labels = {"gpu.cozystack.io/device-reference": device} if device else {}
        return {"metadata": {"namespace": "a", "name": name, "uid": name, "labels": labels}}

    memory.vmis.put(machine("one", "gpu"))
    memory.vmis.put(machine("two", "gpu"))
    assert [vmi.name for vmi in memory.vmis.found("a", "gpu")] == ["one", "two"]
    assert memory.vmis.found("b", "gpu") == []

    memory.vmis.put(machine("one", "other"))
    assert [vmi.name for vmi in memory.vmis.found("a", "gpu")] == ["two"]
    assert [vmi.name for vmi in memory.vmis.found("a", "other")] == ["one"]

    memory.vmis.put(machine("one", None))
    memory.vmis.drop(machine("two", "gpu"))
    assert memory.vmis.found("a", "gpu") == memory.vmis.found("a", "other") == []
    assert [vmi.name for vmi in memory.vmis.of("a")] == ["one"]
    assert not memory.vmis._index, "what nobody has any more takes no memory"


@st.composite
def _histories(draw: st.DrawFn) -> list[tuple[str, str, int]]:
    """Writes in the order of their versions: (what, name, version)."""
    steps = draw(st.lists(st.tuples(st.sampled_from(["put", "drop", "ours"]), st.sampled_from("xyz")), max_size=30))
    return [(what, name, version) for version, (what, name) in enumerate(steps, 1)]


@settings(deadline=None)
@given(_histories(), st.data())
def test_whenever_our_writes_come_in_the_end_is_what_the_api_server_has(
    history: list[tuple[str, str, int]], data: st.DataObject
) -> None:
    """A watch tells all writes in order, ours among them; we learn of ours at any moment, before or after."""
    truth: dict[str, int] = {}
    for what, name, version in history:
        if what == "drop":
            truth.pop(name, None)
        else:
            truth[name] = version
    ours = [(name, version) for what, name, version in history if what == "ours"]
    moments = sorted((data.draw(st.integers(0, len(history))), name, version) for name, version in ours)

    things = table()
    for told in range(len(history) + 1):
        for moment, name, version in moments:
            if moment == told:
                things.remember(obj(name, version, size=version))
        if told < len(history):
            what, name, version = history[told]
            (things.drop if what == "drop" else things.put)(obj(name, version, size=version))
            things.reached(str(version))

    assert {name: things.get("a", name) for name in "xyz" if things.get("a", name)} == truth
