"""How the watches do, as metrics."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cluster.watch import Watch

_GAUGES: Final[dict[str, tuple[str, Callable[[Watch], float]]]] = {
    "synced": ("Whether everything of the kind was read.", lambda watch: watch.filled.is_set()),
    "age_seconds": (
        "Seconds since the API server last told of the kind.",
        lambda watch: time.monotonic() - watch.heard,
    ),
    "objects": ("Objects that are kept in memory.", lambda watch: len(watch.sink)),
    "unreadable": ("Objects that are left out because they can't be read.", lambda watch: len(watch.sink.unreadable)),
}
_COUNTERS: Final[dict[str, tuple[str, Callable[[Watch], float]]]] = {
    "events": ("Events and bookmarks that came.", lambda watch: watch.events),
    "lists": ("Times that everything of the kind was read.", lambda watch: watch.lists),
    "failures": ("Lists and watches that failed.", lambda watch: watch.failures),
}


class WatchMetrics(Collector):
    """Reads the numbers of watches when they are asked for; to be registered in a registry."""

    def __init__(self, watches: Sequence[Watch]) -> None:
        self._watches = watches

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client.registry.Collector."""
        for family, numbers in ((GaugeMetricFamily, _GAUGES), (CounterMetricFamily, _COUNTERS)):
            for name, (text, value) in numbers.items():
                metric = family(f"gpu_webhooks_watch_{name}", text, labels=["resource"])
                for watch in self._watches:
                    metric.add_metric([watch.kind.resource], value(watch))
                yield metric
