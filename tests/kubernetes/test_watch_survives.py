"""A watch goes on, whatever an API server answers; what real ones do often is tested on real ones."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from scripted import Script, bookmark, event, listed, raw, serving, status, thing, watched
from structlog.testing import capture_logs

from cluster import watch as module
from cluster.kinds import PODS
from cluster.table import Table
from cluster.watch import Watch
from gpu import fields

EXPIRED = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})


class Running:
    """A watch on a script."""

    def __init__(self, script: Script, watch: Watch, table: Table[str]) -> None:
        self.script = script
        self.watch = watch
        self.table = table

    @property
    def names(self) -> list[str]:
        return sorted(self.table.of("a"))

    async def until(self, look: Callable[[], object]) -> None:
        deadline = time.monotonic() + 20
        while not look():
            assert time.monotonic() < deadline, (self.names, self.script.asked, self.watch.problem)
            await asyncio.sleep(0.01)


def name(obj: Mapping[str, Any]) -> str:
    fields.optional_whole(obj, "size", "")
    return str(obj["metadata"]["name"])


@asynccontextmanager
async def running(*answers: Any, silence: float = 30) -> AsyncIterator[Running]:
    script, table = Script(*answers), Table("Thing", name)
    async with serving(script) as api:
        watch = Watch(api, PODS, table, silence=silence)
        task = asyncio.create_task(watch.run())
        yield Running(script, watch, table)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_pages_make_one_list_and_the_watch_goes_on_from_it() -> None:
    one, two, three = thing("one", 1), thing("two", 2), thing("three", 11)
    async with running(
        listed(one, version=10, more="next"), listed(two, version=10), watched(event("ADDED", three))
    ) as it:
        await it.until(lambda: it.names == ["one", "three", "two"])

        assert it.script.asked[1][1]["continue"] == "next"
        assert it.script.watched_from == ["10"]
        assert it.watch.filled.is_set()
        assert it.watch.problem == ""


async def test_an_event_may_come_in_pieces_or_with_others() -> None:
    both = event("ADDED", thing("one", 11)) + event("ADDED", thing("two", 12))
    async with running(listed(version=10), watched(both[:7], both[7:-9], both[-9:])) as it:
        await it.until(lambda: it.names == ["one", "two"])


async def test_an_event_of_megabytes_is_read() -> None:
    big = event("ADDED", thing("big", 11, spec="x" * 5_000_000))
    async with running(listed(version=10), watched(big)) as it:
        await it.until(lambda: it.names == ["big"])


async def test_a_dropped_connection_goes_on_from_the_last_version_without_a_new_list() -> None:
    async with running(
        listed(thing("one", 1), version=10),
        watched(event("ADDED", thing("two", 11)), bookmark(20), then="cut"),
        watched(event("DELETED", thing("one", 21))),
    ) as it:
        await it.until(lambda: it.names == ["two"])

        assert it.script.watched_from == ["10", "20"]
        assert it.script.lists == 1


async def test_a_watch_that_ends_as_agreed_goes_on_and_nobody_is_told() -> None:
    with capture_logs() as logs:
        async with running(
            listed(version=10), watched(bookmark(11), then="end"), watched(event("ADDED", thing("one", 12)))
        ) as it:
            await it.until(lambda: it.names == ["one"])

            assert it.script.watched_from == ["10", "11"]
    assert logs == []
    assert it.watch.failures == 0


@pytest.mark.parametrize("expired", [status(410), watched(EXPIRED)], ids=["answer", "event"])
async def test_an_expired_version_is_listed_again_at_once(expired: Any) -> None:
    async with running(listed(thing("old", 1), version=10), expired, listed(thing("new", 19), version=20)) as it:
        began = time.monotonic()
        await it.until(lambda: it.names == ["new"])
        await it.until(lambda: it.script.watched_from == ["10", "20"])

        assert time.monotonic() - began < 1
        assert it.watch.lists == 2
        assert it.watch.failures == 0


async def test_a_list_whose_next_page_is_too_old_begins_again_and_loses_nothing() -> None:
    one, two = thing("one", 1), thing("two", 2)
    async with running(
        listed(one, two, version=10), watched(EXPIRED), listed(one, version=20, more="x"), status(410),
        listed(one, version=30, more="y"), listed(two, version=30),
    ) as it:  # fmt: skip
        await it.until(lambda: it.watch.lists == 2)

        assert it.names == ["one", "two"]


@pytest.mark.parametrize("line", [b'{"type":"ADDED"', b"oops\n", event("ADDED", {}), event("WHAT", thing("x", 1))])
async def test_a_broken_line_is_asked_for_again(line: bytes) -> None:
    async with running(
        listed(version=10),
        watched(event("ADDED", thing("one", 11)), line, then="end"),
        watched(event("ADDED", thing("two", 12))),
    ) as it:
        await it.until(lambda: it.names == ["one", "two"])

        assert it.script.watched_from == ["10", "11"]
        assert it.script.lists == 1
        assert it.watch.failures == 1


async def test_what_stays_broken_is_listed() -> None:
    broken = watched(b"oops\n", then="end")
    async with running(listed(version=10), broken, broken, listed(thing("one", 11), version=12)) as it:
        await it.until(lambda: it.names == ["one"])


async def test_what_is_told_twice_or_late_changes_nothing() -> None:
    async with running(
        listed(thing("one", 1), version=10),
        watched(
            event("DELETED", thing("one", 11)),
            event("ADDED", thing("two", 12)),
            event("ADDED", thing("one", 9)),
            event("ADDED", thing("two", 12)),
            bookmark(5),
            event("ADDED", thing("three", 13)),
            then="cut",
        ),
    ) as it:
        await it.until(lambda: "three" in it.names)
        await it.until(lambda: len(it.script.watched_from) == 2)

        assert it.names == ["three", "two"]
        assert it.script.watched_from == ["10", "13"]


async def test_a_connection_without_a_word_is_given_up_and_after_the_second_time_listed() -> None:
    async with running(
        listed(thing("one", 1), version=10), watched(), watched(), listed(thing("two", 11), version=12), silence=0.3
    ) as it:
        await it.until(lambda: it.names == ["two"])

        assert it.script.watched_from[:2] == ["10", "10"]


async def test_an_object_that_can_not_be_read_is_left_out_and_the_others_come() -> None:
    async with running(
        listed(thing("one", 1), thing("bad", 2, size="x"), version=10),
        watched(event("ADDED", thing("worse", 11, size=[])), event("ADDED", thing("two", 12))),
    ) as it:
        await it.until(lambda: it.names == ["one", "two"])

        assert set(it.table.unreadable) == {("a", "bad"), ("a", "worse")}
        assert it.script.lists == 1


async def test_a_kind_that_is_not_served_is_empty_and_looked_for_again() -> None:
    missing = raw(404, b"404 page not found\n")
    with capture_logs() as logs:
        async with running(missing, missing, listed(thing("one", 1), version=10)) as it:
            await it.until(it.watch.filled.is_set)
            assert it.names == []
            await it.until(lambda: it.names == ["one"])
            await it.until(lambda: it.watch.problem == "")

    assert [(line["event"], line["what"]) for line in logs] == [
        ("watch lost, memory may be out of date", "pods"),
        ("watch back", "pods"),
    ]


async def test_one_answer_that_a_kind_is_not_served_does_not_empty_memory() -> None:
    async with running(
        listed(thing("one", 1), version=10), watched(bookmark(11), then="end"), raw(404, b""),
        listed(thing("one", 1), thing("two", 12), version=13),
    ) as it:  # fmt: skip
        await it.until(it.watch.filled.is_set)
        sizes = set()

        def look() -> bool:
            sizes.add(len(it.names))
            return len(it.names) == 2

        await it.until(look)
        assert sizes == {1, 2}


async def test_a_kind_that_is_gone_has_no_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_AGAIN", 0.05)
    missing = raw(404, b"404 page not found\n")
    async with running(listed(thing("one", 1), version=10), watched(bookmark(11), then="end"), *[missing] * 3) as it:
        await it.until(it.watch.filled.is_set)
        await it.until(lambda: it.names == [])


async def test_it_is_told_once_that_a_right_is_missing_and_once_that_it_is_there() -> None:
    with capture_logs() as logs:
        async with running(*[status(403, "pods is forbidden")] * 4, listed(thing("one", 1), version=10)) as it:
            await it.until(lambda: it.watch.failures == 3)
            assert not it.watch.filled.is_set()
            assert it.watch.problem == "list pods: pods is forbidden"
            await it.until(lambda: it.names == ["one"])

    assert [line["event"] for line in logs] == ["watch lost, memory may be out of date", "watch back"]
    assert logs[0]["why"] == "list pods: pods is forbidden"
    assert logs[1]["tries"] == 4


async def test_one_failure_that_the_next_try_mends_is_not_told() -> None:
    with capture_logs() as logs:
        async with running(raw(503, b"starting"), listed(thing("one", 1), version=10)) as it:
            await it.until(lambda: it.names == ["one"])

    assert logs == []


async def test_retry_after_is_kept() -> None:
    async with running(status(429, headers={"Retry-After": "1"}), listed(thing("one", 1), version=10)) as it:
        began = time.monotonic()
        await it.until(lambda: it.names == ["one"])

        assert 1 <= time.monotonic() - began < 3


@pytest.mark.parametrize(
    "broken",
    [raw(200, b"{"), raw(200, b"[]"), raw(200, b"{}"), raw(200, b'{"metadata":{},"items":3}'), raw(503, b"<html>")],
)
async def test_an_answer_that_makes_no_sense_is_asked_for_again(broken: Any) -> None:
    async with running(broken, listed(thing("one", 1), version=10)) as it:
        await it.until(lambda: it.names == ["one"])

        assert it.watch.failures == 1


async def test_watches_that_end_at_once_are_not_taken_up_again_without_a_pause() -> None:
    async with running(listed(version=10), *[watched(then="end")] * 40) as it:
        await asyncio.sleep(1.5)

        assert len(it.script.watched_from) < 12
        assert it.script.lists == 1


async def test_a_failure_of_our_own_code_is_logged_and_everything_is_read_again() -> None:
    class Odd(Table[str]):
        broken = True

        def put(self, obj: Mapping[str, Any]) -> None:
            if self.broken:
                self.broken = False
                raise KeyError("surprise")
            super().put(obj)

    table = Odd("Thing", name)
    one = thing("one", 11)
    script = Script(listed(version=10), watched(event("ADDED", one)), listed(one, version=12))
    with capture_logs() as logs:
        async with serving(script) as api:
            watch = Watch(api, PODS, table)
            task = asyncio.create_task(watch.run())
            await Running(script, watch, table).until(lambda: table.of("a"))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    assert script.lists == 2
    assert logs[0]["event"] == "watch failed in our own code, it begins again"


async def test_each_watch_is_asked_for_another_time() -> None:
    async with running(listed(version=10), *[watched(bookmark(11), then="end")] * 5) as it:
        await it.until(lambda: len(it.script.watched_from) == 6)

        times = [int(query["timeoutSeconds"]) for _, query in it.script.asked if "watch" in query]
        assert all(240 <= seconds <= 360 for seconds in times)
        assert len(set(times)) > 1
