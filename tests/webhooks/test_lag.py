"""The watch over the event loop."""

import time
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Histogram
from structlog.testing import capture_logs
from wire import until

from webhooks.lag import lag_watched


@pytest.fixture
def log_lines() -> Iterator[list[MutableMapping[str, Any]]]:
    with capture_logs() as lines:
        yield lines


def value(registry: CollectorRegistry, name: str) -> float:
    return registry.get_sample_value(f"lag_{name}") or 0.0


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def lag(registry: CollectorRegistry) -> Histogram:
    return Histogram("lag", "Lag.", registry=registry)


def hog() -> None:
    time.sleep(1.0)


async def test_a_loop_that_is_stuck_is_told_once_with_what_it_is_at_and_timed(
    lag: Histogram, registry: CollectorRegistry, log_lines: list[MutableMapping[str, Any]]
) -> None:
    async with lag_watched(lag, interval=0.05, stuck=0.3):
        await until(lambda: value(registry, "count") > 2)
        before = value(registry, "count"), value(registry, "sum")

        hog()
        await until(lambda: value(registry, "count") > before[0])

    [line] = [line for line in log_lines if line["at"][0].endswith(" hog")]
    assert (line["event"], line["log_level"]) == ("the event loop is stuck", "error")
    assert line["at"][0].startswith("test_lag.py:")
    assert 0.3 <= line["seconds"] < 1.0
    assert line["cpu"] < 0.1
    assert value(registry, "sum") - before[1] > 0.8
