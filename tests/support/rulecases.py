"""For every alert of the chart: series on which it fires, and some on which it does not.

Time begins at 0 for promtool, one value a minute.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from release import NAME, NAMESPACE

PAIR: Final = {"namespace": NAMESPACE, "service": f"{NAME}-metrics"}
CONTROLLER: Final = {"namespace": NAMESPACE, "service": f"{NAME}-controller"}
_LONG: Final = 70
Series = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Case:
    """An alert, the series of it, when it is looked at, and what it says of itself where it fires.

    ``value`` is what its text shows of the expression's value.
    """

    alert: str
    fires: Series
    quiet: Series
    minute: int
    labels: Mapping[str, str] = field(default_factory=dict)
    value: str = ""


def series(metric: str, base: Mapping[str, str], **labels: str) -> str:
    """A series as promtool takes it."""
    return metric + "{" + ",".join(f'{key}="{value}"' for key, value in {**base, **labels}.items()) + "}"


def always(number: float) -> str:
    """One value at every minute."""
    return f"{number}x{_LONG}"


GROWING: Final = f"0+1x{_LONG}"


def _of_pair(metric: str, **labels: str) -> str:
    return series(f"gpu_webhooks_{metric}", PAIR, pod="a", **labels)


def _moment(name: str, **labels: str) -> str:
    return _of_pair(f"certificate_{name}_timestamp_seconds", **labels)


def _of_controller(metric: str, **labels: str) -> str:
    return series(f"gpu_controller_{metric}", CONTROLLER, pod="a", **labels)


def _answers(under: str) -> Series:
    """Answers that all take less than so long and no less than the bucket below."""
    bounds = ["0.5", "1.0", "2.5", "+Inf"]
    at = bounds.index(under)
    return {
        _of_pair("request_seconds_bucket", path="mutate", le=bound): f"0+{60 if number >= at else 0}x{_LONG}"
        for number, bound in enumerate(bounds)
    }


def _late(under: str) -> Series:
    """An event loop that is always late by less than so long and no less than the bucket below."""
    bounds = ["0.25", "0.5", "+Inf"]
    at = bounds.index(under)
    return {
        _of_pair("loop_lag_seconds_bucket", le=bound): f"0+{240 if number >= at else 0}x{_LONG}"
        for number, bound in enumerate(bounds)
    }


_A: Final = {**PAIR, "pod": "a"}
_UP: Final = {pod: series("up", PAIR, pod=pod) for pod in ("a", "b")}
_BOUNDARY: Final = 7200
_MUTATING: Final = "mutatingwebhookconfigurations/gpu-webhooks"

OF_BOTH_MODES: Final = (
    Case(
        alert="GPUWebhooksDown",
        fires={_UP["a"]: always(0)},
        quiet={_UP["a"]: always(0), _UP["b"]: always(1)},
        minute=3,
    ),
    Case(alert="GPUWebhooksDown", fires={}, quiet={_UP["a"]: always(1)}, minute=3),
    Case(
        alert="GPUWebhooksReplicaIsMissing",
        fires={_UP["a"]: always(1), _UP["b"]: always(0)},
        quiet={_UP["a"]: always(1), _UP["b"]: always(1)},
        minute=16,
    ),
    Case(
        alert="GPUWebhooksFailInTheirCode",
        fires={_of_pair("failures_total", path="mutate", cause="code"): f"0x3 1x{_LONG}"},
        quiet={
            _of_pair("failures_total", path="mutate", cause="code"): always(5),
            _of_pair("failures_total", path="mutate", cause="unreadable"): GROWING,
        },
        minute=6,
        labels={"path": "mutate"},
    ),
    Case(
        alert="GPUWebhooksCannotAnswer",
        fires={_of_pair("failures_total", path="mutate", cause="late"): GROWING},
        quiet={_of_pair("failures_total", path="mutate", cause="too large"): GROWING},
        minute=15,
        labels={"cause": "late"},
    ),
    Case(
        alert="GPUWebhooksAreSlow",
        fires=_answers("2.5"),
        quiet=_answers("1.0"),
        minute=15,
        labels={"path": "mutate"},
        value="2.485s",
    ),
    Case(
        alert="GPUWebhooksEventLoopIsLate",
        fires=_late("0.5"),
        quiet=_late("0.25"),
        minute=15,
        labels={"pod": "a"},
        value="497.5ms",
    ),
    Case(
        alert="GPUWebhooksClientsAreRefused",
        fires={_of_pair("clients_refused_total", reason="name"): GROWING},
        quiet={_of_pair("clients_refused_total", reason="name"): always(3)},
        minute=15,
        labels={"reason": "name"},
    ),
    Case(
        alert="GPUWebhooksClientCAExpires",
        fires={_of_pair("client_ca_expiry_timestamp_seconds"): always(90000)},
        quiet={_of_pair("client_ca_expiry_timestamp_seconds"): always(15 * 86400)},
        minute=65,
        value="23h 55m 0s",
    ),
    Case(
        alert="GPUWebhooksClientCAIsBad",
        fires={_of_pair("client_ca_failures_total"): GROWING},
        quiet={_of_pair("client_ca_failures_total"): always(3)},
        minute=10,
    ),
    Case(
        alert="GPUWebhooksWatchIsOutOfTouch",
        fires={_of_pair("watch_age_seconds", resource="pods"): always(400)},
        quiet={_of_pair("watch_age_seconds", resource="pods"): always(200)},
        minute=3,
        labels={**_A, "resource": "pods"},
        value="6m 40s",
    ),
    Case(
        alert="GPUWebhooksObjectsAreUnreadable",
        fires={_of_pair("watch_unreadable", resource="pods"): always(2)},
        quiet={_of_pair("watch_unreadable", resource="pods"): always(0)},
        minute=16,
        labels={"resource": "pods"},
        value="2",
    ),
    Case(
        alert="GPUWebhooksCertificateHasExpired",
        fires={_moment("expiry"): always(100)},
        quiet={_moment("expiry"): always(_BOUNDARY)},
        minute=6,
        labels=_A,
    ),
    Case(
        alert="GPUWebhooksCertificateHasExpired",
        fires={_moment("expiry"): always(0)},
        quiet={_moment("expiry"): f"0x1 {_BOUNDARY}x{_LONG}"},
        minute=4,
        labels=_A,
    ),
    Case(
        alert="GPUWebhooksCertificateIsNotRenewed",
        fires={_moment("due"): always(600), _moment("expiry"): always(1800)},
        quiet={_moment("due"): always(1500), _moment("expiry"): always(1800)},
        minute=32,
        labels=_A,
    ),
    Case(
        alert="GPUControllerDoesNotLead",
        fires={_of_controller("leader"): always(0)},
        quiet={_of_controller("leader"): always(1)},
        minute=3,
    ),
    Case(
        alert="GPUObjectsCantBeRead",
        fires={series("gpu_webhooks_watch_unreadable", CONTROLLER, pod="a", resource="nodes"): always(1)},
        quiet={
            series("gpu_webhooks_watch_unreadable", CONTROLLER, pod="a", resource="nodes"): always(0),
            _of_pair("watch_unreadable", resource="pods"): always(2),
        },
        minute=11,
        labels={"resource": "nodes"},
    ),
    Case(alert="GPUControllerDoesNotLead", fires={}, quiet={_of_controller("leader"): always(1)}, minute=3),
    Case(
        alert="GPUControllerPlansFail",
        fires={_of_controller("plans_total", outcome="failed"): GROWING},
        quiet={_of_controller("plans_total", outcome="made"): GROWING},
        minute=15,
    ),
    Case(
        alert="GPUControllerWritesAreRefused",
        fires={_of_controller("writes_total", resource="gpudevices", verb="patch", outcome="refused"): GROWING},
        quiet={_of_controller("writes_total", resource="gpudevices", verb="patch", outcome="conflict"): GROWING},
        minute=40,
        labels={"resource": "gpudevices", "verb": "patch"},
    ),
    Case(
        alert="GPUOrdersWaitThoughGPUsAreFree",
        fires={
            _of_controller("class_pending", **{"class": "h200"}): always(1),
            _of_controller("class_free", **{"class": "h200"}): always(1),
        },
        quiet={
            _of_controller("class_pending", **{"class": "h200"}): always(1),
            _of_controller("class_free", **{"class": "h200"}): always(0),
        },
        minute=61,
        labels={**CONTROLLER, "pod": "a", "class": "h200"},
    ),
    Case(
        alert="GPUTrespassers",
        fires={_of_controller("trespassers"): always(1)},
        quiet={_of_controller("trespassers"): always(0)},
        minute=16,
    ),
)

OF_SELF: Final = (
    Case(
        alert="GPUWebhooksCAHasExpired",
        fires={_moment("ca_expiry"): always(100)},
        quiet={_moment("ca_expiry"): always(_BOUNDARY)},
        minute=6,
    ),
    Case(
        alert="GPUWebhooksCAIsNotReplaced",
        fires={_moment("ca_due"): always(600), _moment("ca_expiry"): always(1800)},
        quiet={_moment("ca_due"): always(1500), _moment("ca_expiry"): always(1800)},
        minute=32,
    ),
    Case(
        alert="GPUWebhooksBundleDoesNotVerify",
        fires={_moment("bundle_expiry", configuration=_MUTATING): always(0)},
        quiet={_moment("bundle_expiry", configuration=_MUTATING): always(_BOUNDARY)},
        minute=4,
        labels={"configuration": _MUTATING},
    ),
    Case(
        alert="GPUWebhooksCertificateWorkFails",
        fires={_of_pair("certificate_failing", part="bundle"): always(1)},
        quiet={_of_pair("certificate_failing", part="bundle"): always(0)},
        minute=16,
        labels={"part": "bundle"},
    ),
)

OF_A_SECRET: Final = (
    Case(
        alert="GPUWebhooksFilesAreBad",
        fires={_of_pair("certificate_failing", part="files"): always(1)},
        quiet={_of_pair("certificate_failing", part="files"): always(0)},
        minute=6,
    ),
)
