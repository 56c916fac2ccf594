"""The authorities of callers' certificates, as the chart hands them to the service."""

import shlex
from typing import Any

import click
import pytest
from chartvalues import CHART
from controlplane.plane import ControlPlane
from controlplane.versions import NEWEST
from release import helm, rendered

from webhooks.cli import main

pytestmark = pytest.mark.parametrize("plane", [NEWEST], indirect=True)

FILE = "/etc/gpu-webhooks/client-ca/ca.crt"
ITEMS = [{"key": "front-proxy-ca.crt", "path": "ca.crt"}]


def pod(plane: ControlPlane, values: dict[str, Any]) -> dict[str, Any]:
    found = [obj for obj in rendered(plane, values) if obj["kind"] == "Deployment"]
    [spec] = [obj["spec"]["template"]["spec"] for obj in found if obj["metadata"]["name"] == "gpu-webhooks"]
    return dict(spec)


@pytest.mark.parametrize(
    ("given", "source"),
    [
        ({"configMapName": "authorities"}, {"configMap": {"name": "authorities", "items": ITEMS}}),
        ({"secretName": "authorities"}, {"secret": {"secretName": "authorities", "items": ITEMS}}),
    ],
    ids=["ConfigMap", "Secret"],
)
def test_the_one_key_is_mounted_where_the_service_reads_it(
    plane: ControlPlane, given: dict[str, Any], source: dict[str, Any]
) -> None:
    names = ["kube-apiserver", "spiffe://example.org/api server"]
    found = pod(plane, {"clientCA": {**given, "key": "front-proxy-ca.crt", "names": names}})

    [container] = found["containers"]
    command, *arguments = container["args"]
    above = click.Context(main, **main.context_settings)
    told = main.commands[command].make_context(command, arguments, parent=above).params
    assert (str(told["client_ca_file"]), list(told["client_names"])) == (FILE, names)
    [mount] = container["volumeMounts"]
    assert mount == {"name": "client-ca", "mountPath": FILE.removesuffix("/ca.crt"), "readOnly": True}
    assert found["volumes"] == [{"name": "client-ca", **source}]


def test_a_release_gets_rid_of_it_as_the_page_says(plane: ControlPlane) -> None:
    text = (CHART.parents[1] / "docs" / "client-certificates.md").read_text().replace("\\\n", " ")
    [command] = [line for line in text.splitlines() if line.startswith("helm upgrade") and "configMapName= " in line]
    flags = command.partition("--reset-then-reuse-values")[2]
    installed = {"networkPolicy": {}, "clientCA": {"configMapName": "authorities", "names": ["kube-apiserver"]}}

    said = helm(plane, "template", installed, *shlex.split(flags), "--kube-version", f"{NEWEST}.0")

    assert "serve" in said
    assert "--client" not in said
    assert "kind: NetworkPolicy" not in said


def test_without_one_nothing_is_mounted_and_nobody_is_asked(plane: ControlPlane) -> None:
    found = pod(plane, {})

    assert "volumes" not in found
    assert "volumeMounts" not in found["containers"][0]
    assert not [given for given in found["containers"][0]["args"] if given.startswith("--client")]
