"""What the chart passes to the programs that it starts."""

from typing import Any

import click
import pytest
from controlplane.plane import ControlPlane
from controlplane.versions import NEWEST
from release import rendered

from webhooks.cli import main

pytestmark = pytest.mark.parametrize("plane", [NEWEST], indirect=True)

EVERYTHING = {
    "doctor": {"tenantNamespace": "tenant-a"},
    "platform": {"groups": ["a:b"], "users": ["c:d"]},
    "certificates": {"mode": "cert-manager"},
    "settings": {"resourceNames": ["a.example/b"], "deviceClassNames": ["c.example"]},
}


def arguments(objects: list[dict[str, Any]], kind: str) -> list[list[str]]:
    specs = [obj["spec"] for obj in objects if obj["kind"] == kind]
    pods = [spec["template"]["spec"] if "template" in spec else spec for spec in specs]
    return [container["args"] for pod in pods for container in pod["containers"]]


@pytest.mark.parametrize("kind", ["Deployment", "Pod", "Job"])
@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_every_argument_is_one_that_the_command_has(plane: ControlPlane, kind: str, values: dict[str, Any]) -> None:
    found = arguments(rendered(plane, values), kind)

    assert found
    for command, *given in found:
        known = main.commands[command]
        # An option that it does not have, or a value that it does not take, is raised.
        context = known.make_context(command, given, parent=click.Context(main, **main.context_settings))
        assert context.params.get("kubevirt_namespace", "kubevirt") == "kubevirt"
