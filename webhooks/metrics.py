"""The metrics of the pair, in a registry of their own."""

from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from gpu import names

_KINDS: Final = {names.VMI, names.VM, names.REPLICA_SET, names.POOL, names.GPU_DEVICE, "Pod"}
_OPERATIONS: Final = {"CREATE", "UPDATE", "DELETE", "CONNECT"}
_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Metrics:
    """What is counted and timed; label values that a caller could make up are folded into ``other``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._answers = _Answers()
        self.registry.register(self._answers)
        self.count = self._answers.count
        self.observe = self._answers.observe
        self.in_flight = Gauge("gpu_webhooks_in_flight", "Reviews being judged now.", registry=self.registry)
        self.devices = Counter(
            "gpu_webhooks_devices",
            "Devices for device-template annotations, by outcome (built, taken over, refused by the API).",
            ["outcome"],
            registry=self.registry,
        )
        self.clients_refused = Counter(
            "gpu_webhooks_clients_refused",
            "Clients that may not call: calls without a certificate, of a name that is not allowed, and handshakes.",
            ["reason"],
            registry=self.registry,
        )
        self.loop_lag = Histogram(
            "gpu_webhooks_loop_lag_seconds",
            "How much later than it should the event loop gets to its work; looked at four times a second.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
            registry=self.registry,
        )
        self.failures = Counter(
            "gpu_webhooks_failures",
            "What went wrong: code, catalog, late, unreadable, too large, content type, busy, slow body, lost.",
            ["path", "cause"],
            registry=self.registry,
        )


class _Answers(Collector):
    """What changes with every answer: plain numbers that one thread adds to, made into metrics when they are read."""

    def __init__(self) -> None:
        self._verdicts: Tally[tuple[str, str, str, str]] = Tally()
        self._times = {path: [0] * (len(_BUCKETS) + 1) for path in ("mutate", "validate")}
        self._seconds = dict.fromkeys(self._times, 0.0)

    def count(self, path: str, kind: str, operation: str, verdict: str) -> None:
        """Count an answered review."""
        if kind not in _KINDS:
            kind = "other"
        if operation not in _OPERATIONS:
            operation = "other"
        self._verdicts[path, kind, operation, verdict] += 1

    def observe(self, path: str, seconds: float) -> None:
        """Note how long an answer took."""
        self._times[path][bisect_left(_BUCKETS, seconds)] += 1
        self._seconds[path] += seconds

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client.registry.Collector."""
        requests = CounterMetricFamily(
            "gpu_webhooks_requests",
            "Admission reviews answered, by path, kind, operation and verdict (admitted, patched, refused, failed).",
            labels=["path", "kind", "operation", "verdict"],
        )
        for labels, number in self._verdicts.items():
            requests.add_metric(labels, number)
        times = HistogramMetricFamily(
            "gpu_webhooks_request_seconds", "Time from a whole body to its answer.", labels=["path"]
        )
        bounds = [*map(str, _BUCKETS), "+Inf"]
        for path, numbers in self._times.items():
            buckets = list(zip(bounds, map(float, accumulate(numbers)), strict=True))
            times.add_metric([path], buckets, self._seconds[path])
        yield from (requests, times)
