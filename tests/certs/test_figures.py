"""What is told of certificates in metrics."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from prometheus_client import CollectorRegistry, generate_latest

from certs import CertificateMetrics, Figures, SelfSigned
from certs.errors import CertificateError, NotInstalled
from certs.figures import Life, Source
from certs.troubles import Part, Troubles

NOW = datetime(2031, 5, 17, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)
PREFIX = "gpu_webhooks_certificate_"


class Told:
    """A source that tells what it was given."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def figures(self) -> Figures:
        return self._figures


def read(source: Source) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(CertificateMetrics(source))
    lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    return {name.removeprefix(PREFIX): float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_moments_are_told_in_seconds() -> None:
    figures = Figures(
        leaf=Life(NOW + 7 * DAY, NOW + 4 * DAY),
        renewed_at=NOW,
        ca=Life(NOW + 365 * DAY, NOW + 240 * DAY),
        rotated_at=NOW - DAY,
        bundles={"mutatingwebhookconfigurations/a": NOW + DAY, "validatingwebhookconfigurations/a": None},
        injected_at=NOW - 2 * DAY,
        failures={"bundle": 3, "files": 0},
        failing=frozenset({"bundle"}),
    )
    assert read(Told(figures)) == {
        "expiry_timestamp_seconds": (NOW + 7 * DAY).timestamp(),
        "due_timestamp_seconds": (NOW + 4 * DAY).timestamp(),
        "renewed_timestamp_seconds": NOW.timestamp(),
        "ca_expiry_timestamp_seconds": (NOW + 365 * DAY).timestamp(),
        "ca_due_timestamp_seconds": (NOW + 240 * DAY).timestamp(),
        "ca_rotated_timestamp_seconds": (NOW - DAY).timestamp(),
        "bundle_injected_timestamp_seconds": (NOW - 2 * DAY).timestamp(),
        # A webhook that does not trust what is served is told as one whose trust has ended.
        'bundle_expiry_timestamp_seconds{configuration="mutatingwebhookconfigurations/a"}': (NOW + DAY).timestamp(),
        'bundle_expiry_timestamp_seconds{configuration="validatingwebhookconfigurations/a"}': 0.0,
        'failures_total{part="bundle"}': 3.0,
        'failures_total{part="files"}': 0.0,
        'failing{part="bundle"}': 1.0,
        'failing{part="files"}': 0.0,
    }


def test_what_there_is_not_is_not_told_but_that_nothing_is_served() -> None:
    assert read(Told(Figures())) == {"expiry_timestamp_seconds": 0.0}


def test_a_service_that_stands_alone_tells_of_its_own() -> None:
    service = SelfSigned(names=["localhost"], clock=lambda: NOW, ca_lifetime=300 * DAY, leaf_lifetime=90 * DAY)
    found = read(service)
    assert found["expiry_timestamp_seconds"] == (NOW + 90 * DAY).timestamp()
    assert found["due_timestamp_seconds"] == (NOW + 60 * DAY).timestamp()
    assert found["ca_expiry_timestamp_seconds"] == (NOW + 300 * DAY).timestamp()
    assert found["ca_due_timestamp_seconds"] == (NOW + 200 * DAY).timestamp()


def test_a_part_fails_until_it_goes_well_and_its_failures_are_counted() -> None:
    troubles = Troubles([Part.AUTHORITY, Part.BUNDLE])
    for error in (NotInstalled("not there"), CertificateError("broken")):
        troubles.failed(Part.BUNDLE, error)
    assert (troubles.counts, troubles.failing) == ({"authority": 0, "bundle": 2}, frozenset({"bundle"}))
    troubles.went_well(Part.AUTHORITY)
    troubles.went_well(Part.BUNDLE)
    assert (troubles.counts, troubles.failing) == ({"authority": 0, "bundle": 2}, frozenset())
    assert troubles.count == 2
