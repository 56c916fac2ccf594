"""The chart's alerts, run by promtool, and its dashboard, beside the metrics that there are."""

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from controlplane.plane import ControlPlane
from controlplane.versions import NEWEST
from markdown import anchor
from prometheus_client.metrics_core import Metric
from release import EVERYTHING, rendered
from rulecases import OF_A_SECRET, OF_BOTH_MODES, OF_SELF, Case

import controller.metrics
import webhooks.metrics
from certs import Authority, CertificateMetrics, ClientAuthorities, Figures, ServingContext
from certs.figures import Life
from cluster.metrics import WatchMetrics

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

pytestmark = pytest.mark.parametrize("plane", [NEWEST], indirect=True)

SECRET = {
    "mode": "secret",
    "secretName": "tls",
    "caBundle": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
}
MODES = {"self": (EVERYTHING, OF_SELF), "secret": ({**EVERYTHING, "certificates": SECRET}, OF_A_SECRET)}
OURS = re.compile(r"\bgpu_(?:webhooks|controller)_\w+")
NOW = datetime(2031, 5, 17, tzinfo=UTC)


class Everything:
    """A source of certificates that has something to tell of everything."""

    def figures(self) -> Figures:
        return Figures(
            leaf=Life(NOW, NOW),
            renewed_at=NOW,
            ca=Life(NOW, NOW),
            rotated_at=NOW,
            injected_at=NOW,
            bundles={"a": NOW},
            failures={"a": 1},
        )


@pytest.fixture
def exported(tmp_path: Path) -> set[str]:
    """The names of the series that service and controller have."""
    service, replica = webhooks.metrics.Metrics(), controller.metrics.Metrics()
    clients = tmp_path / "clients.crt"
    clients.write_bytes(Authority.create(common_name="clients", now=NOW, lifetime=timedelta(days=1)).certificate_pem)
    service.registry.register(WatchMetrics(()))
    service.registry.register(CertificateMetrics(Everything()))
    # Which it registers where it is given a file of clients' authorities.
    service.registry.register(ClientAuthorities(clients, ServingContext()))
    registries: tuple[CollectorRegistry, ...] = (service.registry, replica.registry)
    return {name for registry in registries for family in registry.collect() for name in _series(family)}


def _series(family: Metric) -> list[str]:
    if family.type == "histogram":
        return [f"{family.name}_{part}" for part in ("bucket", "sum", "count")]
    return [f"{family.name}_total" if family.type == "counter" else family.name]


def groups_in(objects: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The groups of rules of all PrometheusRules."""
    return [group for obj in objects if obj["kind"] == "PrometheusRule" for group in obj["spec"]["groups"]]


def alerts_in(objects: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for group in groups_in(objects) for rule in group["rules"]}


def promtool_test(case: Case, rule: dict[str, Any], *, fires: bool) -> dict[str, Any]:
    """What promtool has to check: that an alert fires with all that it says, or that it does not."""

    def filled(text: str) -> str:
        for label, value in case.labels.items():
            text = text.replace(f"{{{{ $labels.{label} }}}}", value)
        return re.sub(r"\{\{ \$value.*?\}\}", case.value, text)

    said = {name: filled(text) for name, text in rule["annotations"].items()}
    expected = {"exp_labels": {**case.labels, **rule["labels"]}, "exp_annotations": said}
    return {
        "interval": "1m",
        "name": f"{case.alert} {'fires' if fires else 'is quiet'}",
        "input_series": [
            {"series": series, "values": values} for series, values in (case.fires if fires else case.quiet).items()
        ],
        "alert_rule_test": [
            {"eval_time": f"{case.minute}m", "alertname": case.alert, "exp_alerts": [expected] if fires else []}
        ],
    }


@pytest.mark.parametrize(("values", "own"), MODES.values(), ids=MODES.keys())
def test_every_alert_fires_when_it_should_and_says_what_is_wrong(
    plane: ControlPlane, promtool: Path, tmp_path: Path, values: dict[str, Any], own: tuple[Case, ...]
) -> None:
    # Given the rules as rendered, and for each alert series on which it fires and some on which it does not
    objects = rendered(plane, values)
    alerts = alerts_in(objects)
    assert {case.alert for case in (*OF_BOTH_MODES, *own)} == set(alerts)
    # Those of both modes once: they are the same
    cases = (*OF_BOTH_MODES, *own) if own is OF_SELF else own
    # Each with its own rule alone, since all rules are evaluated at every minute of every test
    files = []
    for number, case in enumerate(cases):
        rule = alerts[case.alert]
        rules, file = tmp_path / f"rules-{number}.yaml", tmp_path / f"tests-{number}.yaml"
        rules.write_text(json.dumps({"groups": [{"name": "one", "rules": [rule]}]}))
        tests = [promtool_test(case, rule, fires=fires) for fires in (True, False)]
        file.write_text(json.dumps({"rule_files": [rules.name], "evaluation_interval": "1m", "tests": tests}))
        files.append(file)
    # When promtool runs them, then it finds nothing else
    ran = subprocess.run([promtool, "test", "rules", *files], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(("values", "_"), MODES.values(), ids=MODES.keys())
def test_every_metric_of_the_alerts_is_one_that_there_is(
    plane: ControlPlane, exported: set[str], values: dict[str, Any], _: Any
) -> None:
    alerts = alerts_in(rendered(plane, values))
    asked_for = {name for rule in alerts.values() for name in OURS.findall(rule["expr"])}
    assert len(asked_for) > 10
    assert asked_for - exported == set()


@pytest.mark.parametrize(("values", "_"), MODES.values(), ids=MODES.keys())
def test_every_alert_leads_to_its_entry_in_the_runbook(plane: ControlPlane, values: dict[str, Any], _: Any) -> None:
    page = "https://example.org/runbook.md"
    rule = {**values["prometheusRule"], "runbookURL": page}
    led = {
        name: alert["annotations"]["runbook_url"]
        for name, alert in alerts_in(rendered(plane, {**values, "prometheusRule": rule})).items()
    }
    assert led == {name: f"{page}#{anchor(name)}" for name in led}
    nowhere = alerts_in(rendered(plane, {**values, "prometheusRule": {**rule, "runbookURL": ""}}))
    assert set(nowhere) == set(led)
    assert not any("runbook_url" in alert["annotations"] for alert in nowhere.values())


def test_no_alert_is_on_a_pair_that_runs_elsewhere(plane: ControlPlane) -> None:
    found = alerts_in(rendered(plane, {**EVERYTHING, "webhooks": {"url": "https://127.0.0.1:9443"}}))
    assert found
    assert [name for name in found if name.startswith("GPUWebhooks")] == []


def dashboard(plane: ControlPlane, **values: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The ConfigMap, and the dashboard in it."""
    objects = rendered(plane, {"grafanaDashboard": {"enabled": True, **values}})
    [found] = [obj for obj in objects if obj["kind"] == "ConfigMap" and obj["metadata"]["name"].endswith("-dashboard")]
    [text] = found["data"].values()
    return found, json.loads(text)


def expressions(board: dict[str, Any]) -> Iterator[str]:
    for panel in board["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    yield from (variable["query"] for variable in board["templating"]["list"] if variable["type"] == "query")


def test_every_metric_of_the_dashboard_is_one_that_there_is(plane: ControlPlane, exported: set[str]) -> None:
    _, board = dashboard(plane)
    asked_for = {name for expression in expressions(board) for name in OURS.findall(expression)}
    assert len(asked_for) > 20
    assert asked_for - exported == set()


def test_the_dashboard_is_one_that_grafana_reads(plane: ControlPlane, promtool: Path, tmp_path: Path) -> None:
    found, board = dashboard(plane, annotations={"grafana_folder": "GPUs"})
    # Given its ConfigMap, then Grafana's sidecar finds it
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert found["metadata"]["annotations"] == {"grafana_folder": "GPUs"}
    # And every panel has a place and a number of its own, and asks for something
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert taken.isdisjoint(cells), panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert panel["type"] == "row" or panel["targets"], panel["title"]
    # And what it asks for is PromQL
    rules = [
        {
            "record": f"panel:{number}",
            "expr": expression.replace("$__rate_interval", "5m").replace("$namespace", "gpus"),
        }
        for number, expression in enumerate(expressions(board))
        if not expression.startswith("label_values")
    ]
    file = tmp_path / "rules.yaml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    ran = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_there_is_no_dashboard_unless_it_is_wanted(plane: ControlPlane) -> None:
    assert not [obj for obj in rendered(plane, {}) if obj["metadata"]["name"].endswith("-dashboard")]
