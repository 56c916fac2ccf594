"""The metrics of the pair, in a registry of their own."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gpu import names

_KINDS: Final = {names.VMI, names.VM, names.REPLICA_SET, names.POOL, names.GPU_DEVICE, "Pod"}
_OPERATIONS: Final = {"CREATE", "UPDATE", "DELETE", "CONNECT"}
_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Metrics:
    """What is counted and timed; label values that a caller could make up are folded into ``other``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "gpu_webhooks_requests",
            "Admission reviews answered, by path, kind, operation and verdict (admitted, patched, refused, failed).",
            ["path", "kind", "operation", "verdict"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "gpu_webhooks_request_seconds",
            "Time from a whole body to its answer.",
            ["path"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.in_flight = Gauge("gpu_webhooks_in_flight", "Reviews being judged now.", registry=self.registry)
        self.devices = Counter(
            "gpu_webhooks_devices",
            "Devices for device-template annotations, by outcome (built, taken over, refused by the API).",
            ["outcome"],
            registry=self.registry,
        )
        self.failures = Counter(
            "gpu_webhooks_failures",
            "What went wrong: code, catalog, late, unreadable, too large, content type, busy, slow body, lost.",
            ["path", "cause"],
            registry=self.registry,
        )
        self._seconds = {path: self.seconds.labels(path) for path in ("mutate", "validate")}
        self._children: dict[tuple[str, str, str, str], Counter] = {}

    def observe(self, path: str, seconds: float) -> None:
        """Note how long an answer took."""
        self._seconds[path].observe(seconds)

    def count(self, path: str, kind: str, operation: str, verdict: str) -> None:
        """Count an answered review."""
        key = (path, kind, operation, verdict)
        child = self._children.get(key)
        if child is None:
            kind, operation = kind if kind in _KINDS else "other", operation if operation in _OPERATIONS else "other"
            child = self.requests.labels(path, kind, operation, verdict)
            if "other" not in {kind, operation}:
                self._children[key] = child
        child.inc()
