"""Health: whether the event loop turns and work gets on, answered even while the event loop does not."""

import asyncio
import threading
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs
from waiting import eventually

from cluster.watchdog import Progress, Pulse
from controller.probes import probes

BLOCKED = 0.2


def asked(port: int, path: str = "healthz") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=2) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def nothing() -> str:
    return ""


@asynccontextmanager
async def serving(*, stuck: Callable[[], str] = nothing, missing: tuple[str, ...] = ()) -> AsyncIterator[int]:
    registry = CollectorRegistry()
    pulse = Pulse(blocked=BLOCKED)
    async with probes(registry, lambda: list(missing), stuck=stuck, host="127.0.0.1", port=0, pulse=pulse) as port:
        yield port


async def test_while_the_event_loop_is_blocked_it_is_not_healthy_and_says_so() -> None:
    answers: list[tuple[int, str]] = []

    def ask_later(port: int) -> None:
        time.sleep(3 * BLOCKED)
        answers.append(asked(port))

    async with serving() as port:
        assert await asyncio.to_thread(asked, port) == (200, "ok\n")
        asking = threading.Thread(target=ask_later, args=(port,))
        asking.start()
        with capture_logs() as logs:
            time.sleep(6 * BLOCKED)  # noqa: ASYNC251 - as code does that should not
        asking.join()

        [(code, text)] = answers
        assert code == 503
        assert text.startswith("the event loop has been blocked for")
        [line] = logs
        assert "test_watchdog.py" in line["stacks"]

        async def well() -> bool:
            return await asyncio.to_thread(asked, port) == (200, "ok\n")

        await eventually(well, seconds=5)


async def test_while_work_does_not_get_on_it_is_not_healthy_and_is_told_once() -> None:
    reasons = ["no plan"]
    async with serving(stuck=lambda: reasons[0]) as port:
        with capture_logs() as logs:
            for _ in range(2):
                assert await asyncio.to_thread(asked, port) == (503, "no plan\n")
        assert [line["why"] for line in logs] == ["no plan"]

        reasons[0] = ""
        assert await asyncio.to_thread(asked, port) == (200, "ok\n")


async def test_it_is_ready_while_nothing_is_missing() -> None:
    async with serving(missing=("pods: still being read",)) as port:
        assert await asyncio.to_thread(asked, port, "readyz") == (503, "pods: still being read\n")
        assert await asyncio.to_thread(asked, port) == (200, "ok\n")
    async with serving() as port:
        assert await asyncio.to_thread(asked, port, "readyz") == (200, "ok\n")


async def test_a_port_that_cant_be_had_is_told() -> None:
    async with serving() as taken:
        with pytest.raises(OSError, match=str(taken)):
            async with probes(CollectorRegistry(), list, stuck=nothing, host="127.0.0.1", port=taken):
                pass


def test_progress_counts_from_the_last_step_while_there_is_work() -> None:
    now = [0.0]
    progress = Progress(monotonic=lambda: now[0])
    assert progress.stuck == 0

    progress.step()
    now[0] = 7
    assert progress.stuck == 7

    progress.step()
    assert progress.stuck == 0

    progress.rest()
    now[0] = 99
    assert progress.stuck == 0
