"""What a source of certificates tells of itself, and the same as metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from certs.renewal import due_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime, timedelta

    from certs.renewal import Validity

_NAME: Final = "gpu_webhooks_certificate"


class Life(NamedTuple):
    """When a certificate expires, and when another is to take its place."""

    expiry: datetime
    due: datetime


def life(validity: Validity | None, *, lifetime: timedelta) -> Life | None:
    """The life of a certificate that there is."""
    return None if validity is None else Life(validity.not_after, due_at(validity, lifetime=lifetime))


class Figures(NamedTuple):
    """What is to be told at a moment; None for what there is not, and is not told.

    `bundles` has, for each webhook configuration, when what is served stops being trusted there, None where it is not
    trusted. `failures` counts what failed so far by part, `failing` are the parts whose last try failed.
    """

    leaf: Life | None = None
    renewed_at: datetime | None = None
    ca: Life | None = None
    rotated_at: datetime | None = None
    bundles: Mapping[str, datetime | None] = {}
    injected_at: datetime | None = None
    failures: Mapping[str, int] = {}
    failing: frozenset[str] = frozenset()


class Source(Protocol):
    """Whatever certificates come from."""

    def figures(self) -> Figures:
        """What is to be told now."""
        ...


class CertificateMetrics(Collector):
    """Asks a source when metrics are read; to be registered in a registry."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client.registry.Collector."""
        figures = self._source.figures()
        leaf, ca = figures.leaf, figures.ca
        yield _moment(
            "expiry", "When the certificate that is served expires; 0 while none is served.", leaf and leaf.expiry
        )
        for name, text, moment in (
            ("due", "When the certificate that is served is to be renewed.", leaf and leaf.due),
            ("renewed", "When the certificate that is served was taken.", figures.renewed_at),
            ("ca_expiry", "When the CA that signs expires.", ca and ca.expiry),
            ("ca_due", "When the CA that signs is to be replaced.", ca and ca.due),
            ("ca_rotated", "When this replica last had another CA sign.", figures.rotated_at),
            ("bundle_injected", "When this replica last changed a caBundle.", figures.injected_at),
        ):
            if moment is not None:
                yield _moment(name, text, moment)
        bundles = GaugeMetricFamily(
            f"{_NAME}_bundle_expiry_timestamp_seconds",
            "When a webhook of the configuration stops trusting what is served; 0 where one does not.",
            labels=["configuration"],
        )
        for configuration, expiry in figures.bundles.items():
            bundles.add_metric([configuration], _seconds(expiry))
        failures = CounterMetricFamily(
            f"{_NAME}_failures", "What failed, by part (authority, bundle, certificate, files).", labels=["part"]
        )
        failing = GaugeMetricFamily(
            f"{_NAME}_failing", "Whether the last try of a part failed; what was there is served on.", labels=["part"]
        )
        for part, count in figures.failures.items():
            failures.add_metric([part], count)
            failing.add_metric([part], part in figures.failing)
        yield from (bundles, failures, failing)


def _moment(name: str, text: str, moment: datetime | None) -> Metric:
    return GaugeMetricFamily(f"{_NAME}_{name}_timestamp_seconds", text, value=_seconds(moment))


def _seconds(moment: datetime | None) -> float:
    return 0.0 if moment is None else moment.timestamp()
