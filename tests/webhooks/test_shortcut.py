"""The short way of plain calls: when it is taken, that it answers as the long one does, and what it leaves to that."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import AsyncExitStack
from typing import Any

import orjson
import pytest
from slow import SlowCatalog
from structlog.testing import capture_logs
from wire import BODY, WAITS, Caller, Served, call, serving, until, vmi

from certs import SelfSigned
from webhooks.admission import Admission
from webhooks.guard import Guard
from webhooks.testing import InMemoryCatalog, review


@pytest.fixture
def gpu_catalog(gpu_catalog: InMemoryCatalog) -> SlowCatalog:
    return SlowCatalog.of(gpu_catalog)


@pytest.fixture(scope="module")
def certificates() -> SelfSigned:
    return SelfSigned(names=["localhost", "127.0.0.1", "::1"])


@pytest.fixture
def log_lines() -> Iterator[list[MutableMapping[str, Any]]]:
    with capture_logs() as lines:
        yield lines


class Started:
    """Servers of a test, each with a caller whose call has been answered on the long way."""

    def __init__(self, stack: AsyncExitStack, catalog: SlowCatalog, certificates: SelfSigned) -> None:
        self._stack = stack
        self._catalog = catalog
        self._certificates = certificates
        self.all: list[Served] = []

    async def __call__(self, **settings: Any) -> tuple[Served, Caller]:
        scope = serving(self._catalog, self._certificates, listen={}, **settings)
        served = await self._stack.enter_async_context(scope)
        self.all.append(served)
        caller = await served.caller()
        assert (await caller.post()).verdict == (True, 200)
        assert taken(served) == 0
        return served, caller


@pytest.fixture
async def start(gpu_catalog: SlowCatalog, certificates: SelfSigned) -> AsyncIterator[Started]:
    """Starts servers. However their calls end, nothing is held in the end."""
    async with AsyncExitStack() as stack:
        started = Started(stack, gpu_catalog, certificates)
        yield started
    for served in started.all:
        transport, shortcuts = served.transport, served.server.shortcuts
        assert (transport._bodies._held, transport.in_flight, transport._open, shortcuts.coming) == (0, 0, 0, 0)
        assert not shortcuts._connections


def taken(served: Served) -> int:
    return served.server.shortcuts.taken


def uids(answers: list[Any]) -> list[str]:
    return [orjson.loads(answer.body)["response"]["uid"] for answer in answers]


def body_of(uid: str, *, reference: str = "my-gpu", padding: int = 0) -> bytes:
    obj = vmi(reference)
    obj["metadata"]["annotations"] = {"padding": "x" * padding}
    return orjson.dumps(review(obj, uid=uid))


class TestItIsTaken:
    async def test_by_the_second_plain_call_of_a_connection(self, start: Started) -> None:
        served, caller = await start()

        answer = await caller.post()

        assert answer.verdict == (True, 200)
        assert taken(served) == 1

    async def test_by_the_first_call_of_another_connection(self, start: Started) -> None:
        served, _ = await start()

        await served.post()

        assert taken(served) == 1

    @pytest.mark.parametrize("size", [1, 5_000, 200_000])
    async def test_whatever_the_length_of_the_body(self, start: Started, size: int) -> None:
        served, caller = await start()

        answer = await caller.post(body_of("long", padding=size))

        assert uids([answer]) == ["long"]
        assert taken(served) == 1

    async def test_by_a_body_that_comes_in_parts(self, start: Started) -> None:
        served, caller = await start()
        served.server.shortcuts.patience = 5.0
        whole = call(body_of("parts"))

        for part in (whole[:200], whole[200:300], whole[300:]):
            caller.send(part)
            await asyncio.sleep(0.01)

        assert uids([await caller.answer()]) == ["parts"]
        assert taken(served) == 1

    async def test_by_calls_of_each_path_once_each_was_seen(self, start: Started, gpu_catalog: SlowCatalog) -> None:
        gpu_catalog.go.set()
        served, caller = await start()

        for _ in range(2):
            await caller.post(path="/validate?timeout=5s")

        assert taken(served) == 1


class TestItsAnswers:
    @pytest.mark.parametrize(
        "body", [BODY, WAITS, b"{}", b"", b"{" * 100], ids=["in", "refused", "none", "0", "broken"]
    )
    async def test_are_those_of_the_long_way_byte_by_byte(
        self, start: Started, gpu_catalog: SlowCatalog, body: bytes
    ) -> None:
        gpu_catalog.go.set()
        served, caller = await start()

        caller.send(call(body))
        short = await caller.raw()
        assert taken(served) == 1
        long_way = await served.caller()
        # An upper-case letter, of no meaning, is enough of a difference.
        long_way.send(call(body).replace(b"Host", b"HOST"))
        long = await long_way.raw()

        assert taken(served) == 1
        assert re.sub(rb"Date: .* GMT", b"", short) == re.sub(rb"Date: .* GMT", b"", long)
        assert re.search(rb"\r\nDate: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT\r\n", short)

    @pytest.mark.parametrize("way", ["long", "short"])
    async def test_are_500_for_a_failure_of_our_own(
        self, start: Started, way: str, log_lines: list[MutableMapping[str, Any]]
    ) -> None:
        served, caller = await start()
        served.transport.admission = _Failing(served.transport.admission.context, served.transport.admission.metrics)

        answer = await caller.post(headers="" if way == "short" else "X: y\r\n")

        assert (answer.code, orjson.loads(answer.body)["reason"]) == (500, "InternalError")
        assert taken(served) == (1 if way == "short" else 0)
        assert [line["event"] for line in log_lines] == ["failed", "no verdict"]

    async def test_are_503_above_the_reviews_in_flight(self, start: Started, gpu_catalog: SlowCatalog) -> None:
        served, caller = await start(most_in_flight=1)
        waiting = await served.caller()
        waiting.send(call(WAITS))
        await gpu_catalog.reached.wait()

        answer = await caller.post()

        assert (answer.code, answer.headers["retry-after"]) == (503, "1")
        gpu_catalog.go.set()
        assert (await waiting.answer()).verdict == (False, 422)
        assert taken(served) == 2

    async def test_end_the_connection_once_a_stop_has_begun(self, start: Started, gpu_catalog: SlowCatalog) -> None:
        served, caller = await start()
        idle = await served.caller()
        caller.send(call(WAITS))
        await gpu_catalog.reached.wait()

        served.transport.drain()
        gpu_catalog.go.set()

        assert (await caller.answer()).closes
        assert await caller.is_cut_off()
        assert (await idle.post()).closes
        assert taken(served) == 1

    async def test_end_the_connection_while_nothing_can_be_judged(
        self, start: Started, gpu_catalog: SlowCatalog
    ) -> None:
        served, caller = await start()

        gpu_catalog.filled = False

        assert (await caller.post()).closes
        assert taken(served) == 1

    async def test_are_late_at_the_deadline(self, start: Started) -> None:
        served, caller = await start()
        await caller.post(path="/mutate?timeout=1s")

        answer = await caller.post(WAITS, path="/mutate?timeout=1s")

        assert answer.verdict == (False, 504)
        assert taken(served) == 1


class _Failing(Admission):
    async def answered(self, body: bytes, path: str, *, until: float | None = None) -> bytes:
        raise RuntimeError(f"{path}, {len(body)}, {until}")


class TestTheLongWayIsTaken:
    @pytest.mark.parametrize(
        "headers",
        [
            "Connection: close",
            "Connection: keep-alive",
            "Content-Encoding: identity",
            "Expect: 100-continue",
        ],
    )
    async def test_by_calls_with_a_header_that_can_change_the_answer(self, start: Started, headers: str) -> None:
        served, _ = await start()

        for _ in range(3):
            caller = await served.caller()
            caller.send(call(headers=f"{headers}\r\n"))
            while b" 100 " in await caller.raw():
                pass

        assert taken(served) == 0

    @pytest.mark.parametrize(
        "other", [b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n", call().replace(b"tion/json", b"tion/JSON")]
    )
    async def test_for_good_after_a_call_that_is_not_plain(self, start: Started, other: bytes) -> None:
        served, caller = await start()
        caller.send(other)
        await caller.answer()

        assert (await caller.post()).verdict == (True, 200)
        assert taken(served) == 0

    async def test_for_good_after_calls_that_were_sent_at_once(self, start: Started) -> None:
        served, caller = await start()
        caller.send(b"".join(call(body_of(f"u-{n}")) for n in range(10)))
        answers = [await caller.answer() for _ in range(10)]

        await caller.post()

        assert uids(answers) == [f"u-{n}" for n in range(10)]
        assert taken(served) == 0

    async def test_by_a_body_that_is_slow_and_not_by_the_next(self, start: Started) -> None:
        served, caller = await start()
        whole = call(body_of("slow"))
        caller.send(whole[:200])
        await asyncio.sleep(0.2)
        caller.send(whole[200:])

        assert uids([await caller.answer()]) == ["slow"]
        assert taken(served) == 0
        await caller.post()
        assert taken(served) == 1

    async def test_by_a_body_that_is_large(self, start: Started) -> None:
        served, caller = await start()

        answer = await caller.post(body_of("large", padding=300_000))

        assert uids([answer]) == ["large"]
        assert taken(served) == 0

    async def test_by_bodies_that_there_is_no_room_for(self, start: Started, gpu_catalog: SlowCatalog) -> None:
        served, caller = await start(most_body_bytes=len(WAITS) + 10)
        waiting = await served.caller()
        waiting.send(call(WAITS))
        await gpu_catalog.reached.wait()

        assert (await caller.post()).code == 503
        assert taken(served) == 1
        gpu_catalog.go.set()
        await waiting.answer()

    async def test_while_a_client_does_not_read_its_answers(self, start: Started) -> None:
        served, caller = await start()
        for shortcut in served.server.shortcuts._connections.values():
            shortcut.pause_writing()  # as the transport does once too much waits to be read

        answers = [await caller.post(body_of("u-0"))]

        assert taken(served) == 0
        for shortcut in served.server.shortcuts._connections.values():
            shortcut.resume_writing()
        answers.append(await caller.post(body_of("u-1")))
        assert uids(answers) == ["u-0", "u-1"]
        assert taken(served) == 1


class TestNothingElseIsTakenForACall:
    async def test_the_rest_of_a_body_that_looks_like_one(self, start: Started) -> None:
        served, caller = await start()
        inner = call(body_of("inner"))
        outer = call(b"", length=100 + len(inner)) + b" " * 100
        caller.send(call(body_of("first")) + outer)
        assert uids([await caller.answer()]) == ["first"]
        await asyncio.sleep(0.1)

        caller.send(inner)

        assert (await caller.answer()).code == 400
        assert (await caller.post(body_of("last"))).verdict == (True, 200)
        assert taken(served) == 0

    async def test_the_rest_of_a_body_that_comes_in_slowly(self, start: Started) -> None:
        served, caller = await start()
        inner = call(body_of("inner"))
        caller.send(call(b"", length=100 + len(inner)) + b" " * 100)
        await asyncio.sleep(0.2)

        caller.send(inner)

        assert (await caller.answer()).code == 400
        assert taken(served) == 0


class TestOnOneConnection:
    async def test_a_call_waits_for_the_decision_on_the_one_before(
        self, start: Started, gpu_catalog: SlowCatalog
    ) -> None:
        served, caller = await start()
        caller.send(call(WAITS))
        await gpu_catalog.reached.wait()
        for n in range(3):
            caller.send(call(body_of(f"u-{n}")))
            await asyncio.sleep(0.01)

        gpu_catalog.go.set()
        answers = [await caller.answer() for _ in range(4)]

        assert uids(answers) == ["u-2", "u-0", "u-1", "u-2"]
        assert taken(served) >= 1

    async def test_what_follows_a_body_in_parts_is_the_next_call(self, start: Started) -> None:
        _, caller = await start()
        whole = call(body_of("u-0"))
        caller.send(whole[:200])
        await asyncio.sleep(0.01)

        caller.send(whole[200:] + call(body_of("u-1")))

        assert uids([await caller.answer() for _ in range(2)]) == ["u-0", "u-1"]


class TestAConnection:
    @pytest.mark.parametrize("wait", [0.01, 0.2], ids=["at once", "after a while"])
    async def test_that_is_lost_in_a_body_is_counted(
        self, start: Started, wait: float, log_lines: list[MutableMapping[str, Any]]
    ) -> None:
        served, caller = await start()
        caller.send(call()[:200])
        await asyncio.sleep(wait)

        caller.abort()

        await until(lambda: any(line.get("cause") == "lost" for line in log_lines))
        await until(lambda: not len(served.transport.guard))
        labels = {"path": "mutate", "cause": "lost"}
        registry = served.transport.admission.metrics.registry
        assert registry.get_sample_value("gpu_webhooks_failures_total", labels) == 1

    async def test_that_is_lost_before_the_decision_leaves_nothing_behind(
        self, start: Started, gpu_catalog: SlowCatalog, caplog: pytest.LogCaptureFixture
    ) -> None:
        served, caller = await start()
        caller.send(call(WAITS))
        await gpu_catalog.reached.wait()
        caller.abort()
        await until(lambda: not len(served.transport.guard))

        gpu_catalog.go.set()
        await until(lambda: not served.transport.in_flight)

        assert not caplog.records

    async def test_is_kept_from_call_to_call_and_closed_once_it_is_idle(
        self, gpu_catalog: SlowCatalog, certificates: SelfSigned
    ) -> None:
        async with serving(gpu_catalog, certificates, listen={}) as served:
            served.transport.guard = Guard(most=8, head_seconds=0.5, idle_seconds=0.4)
            caller, never = await served.caller(), await served.caller()

            for _ in range(10):
                assert (await caller.post()).verdict == (True, 200)
                await asyncio.sleep(0.1)

            assert taken(served) == 9
            assert await never.is_cut_off(within=0.1)
            assert await caller.is_cut_off(within=1.0)
            await until(lambda: not len(served.transport.guard))
