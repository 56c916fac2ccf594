"""The watch over the event loop."""

import asyncio
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


def value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    return registry.get_sample_value(f"lag_{name}", labels) or 0.0


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def lag(registry: CollectorRegistry) -> Histogram:
    return Histogram("lag", "Lag.", buckets=(0.1, 0.25, 10.0), registry=registry)


def hog() -> None:
    time.sleep(0.5)


async def test_a_loop_that_is_stuck_is_told_once_with_what_it_is_at_and_timed(
    lag: Histogram, registry: CollectorRegistry, log_lines: list[MutableMapping[str, Any]]
) -> None:
    async with lag_watched(lag, interval=0.02, stuck=0.1):
        await until(lambda: value(registry, "count") > 2)
        in_time = value(registry, "bucket", le="0.1")

        hog()
        await until(lambda: value(registry, "count") > in_time)

    [line] = log_lines
    assert (line["event"], line["log_level"]) == ("the event loop is stuck", "error")
    assert 0.1 <= line["seconds"] < 0.5
    assert line["cpu"] < 0.05
    assert line["at"][0].startswith("test_lag.py:")
    assert line["at"][0].endswith(" hog")
    assert value(registry, "bucket", le="10.0") - value(registry, "bucket", le="0.25") == 1
    assert 0.3 < value(registry, "sum") < 2


async def test_a_loop_that_gets_to_its_work_is_not_told_of(
    lag: Histogram, registry: CollectorRegistry, log_lines: list[MutableMapping[str, Any]]
) -> None:
    async with lag_watched(lag, interval=0.02, stuck=0.3):
        await until(lambda: value(registry, "count") > 10)
        await asyncio.sleep(0)

    assert log_lines == []
