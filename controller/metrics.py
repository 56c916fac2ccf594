"""What is counted and timed, in a registry of its own."""

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cluster.kinds import Kind
from controller.writes import Figures, Plan

_TO_HOLD: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 86400.0)
_PLAN: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Metrics:
    """What the controller counts; a class's figures are those of the last plan, and none where it does not lead."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._classes = _Classes()
        self.registry.register(self._classes)
        self.leader = Gauge(
            "gpu_controller_leader", "Whether this replica is the one that writes.", registry=self.registry
        )
        self.plans = Counter(
            "gpu_controller_plans", "Plans made, by outcome (made, failed).", ["outcome"], registry=self.registry
        )
        self.plan_seconds = Histogram(
            "gpu_controller_plan_seconds", "Time to make a plan.", buckets=_PLAN, registry=self.registry
        )
        self.trespassers = Gauge(
            "gpu_controller_trespassers",
            "Unfinished pods of tenants that ask for a GPU by name without a device.",
            registry=self.registry,
        )
        self._writes = Counter(
            "gpu_controller_writes",
            "Writes, by resource, verb and outcome (made, conflict, gone, in use, refused, unreachable).",
            ["resource", "verb", "outcome"],
            registry=self.registry,
        )
        self._to_hold = Histogram(
            "gpu_controller_time_to_hold_seconds",
            "Time that orders had waited when they were held.",
            ["class"],
            buckets=_TO_HOLD,
            registry=self.registry,
        )

    def written(self, kind: Kind, verb: str, outcome: str) -> None:
        """A write was tried."""
        self._writes.labels(kind.resource, verb, outcome).inc()

    def held(self, class_name: str, waited: float) -> None:
        """An order of a class was held, after so many seconds."""
        self._to_hold.labels(class_name).observe(waited)

    def led(self, *, leads: bool) -> None:
        """It leads from now on, or no more."""
        self.leader.set(leads)
        if not leads:
            self.trespassers.set(0)
            self._classes.figures = {}

    def planned(self, plan: Plan) -> None:
        """A plan was made: what it says of the classes holds until the next."""
        self.plans.labels("made").inc()
        self.trespassers.set(len(plan.trespassers))
        self._classes.figures = plan.classes


class _Classes(Collector):
    def __init__(self) -> None:
        self.figures: Mapping[str, Figures] = {}

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client.registry.Collector."""
        for part, text in (
            ("capacity", "GPUs on the class's nodes."),
            ("held", "GPUs that devices of the class hold."),
            ("free", "GPUs that are free for the next orders of the class."),
            ("pending", "GPUs that are ordered and not held."),
        ):
            metric = GaugeMetricFamily(f"gpu_controller_class_{part}", text, labels=["class"])
            for name, figures in self.figures.items():
                metric.add_metric([name], getattr(figures, part))
            yield metric
