"""``gpu-webhooks doctor`` with the rights that the chart's test has."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from click.testing import CliRunner
from controlplane.client import Client, ref
from controlplane.plane import ControlPlane
from controlplane.versions import NEWEST
from release import NAME, NAMESPACE, plain, rendered, standing
from waiting import gone

from gpu import names
from webhooks.cli import main

pytestmark = pytest.mark.parametrize("plane", [NEWEST], indirect=True)

ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{NAME}-doctor"
ADMISSION = "admissionregistration.k8s.io/v1"


async def findings(plane: ControlPlane) -> list[dict[str, Any]]:
    """What it says; in a thread, since the command has a loop of its own."""
    command = ["doctor", "--kubeconfig", str(plane.kubeconfig(ACCOUNT)), "--namespace", NAMESPACE, "-o", "json"]
    result = await asyncio.to_thread(CliRunner().invoke, main, command)
    found: list[dict[str, Any]] = json.loads(result.stdout)["findings"]
    return found


@pytest.fixture
async def rights(plane: ControlPlane, kube: Client) -> AsyncIterator[None]:
    """The release, and the rights of its test as while it runs."""
    given = [
        obj
        for obj in rendered(plane, {})
        if obj["metadata"].get("labels", {}).get("app.kubernetes.io/component") == "doctor" and obj["kind"] != "Pod"
    ]
    standing.on(plane, plain)
    for obj in given:
        await kube.apply(obj)
    yield
    for obj in given:
        await kube.delete(obj)
    # Without policies that were taken away it is not as others would have it.
    standing.clear(plane)


@pytest.mark.usefixtures("rights")
async def test_the_charts_test_may_read_all_that_it_looks_at_and_knows_every_policy(
    plane: ControlPlane, kube: Client
) -> None:
    # given the release as it was installed
    found = await findings(plane)
    # then everything can be read, and every policy is as it has to be
    assert [one for one in found if "could not be read" in one["seen"]] == []
    [policies] = [one for one in found if one["subject"] == "policies"]
    assert policies["level"] == "ok", policies
    # when one is taken away, and the binding of another
    missing, unbound = names.TENANT_POLICIES[0], names.CLUSTER_POLICIES[0]
    for kind, name in (("ValidatingAdmissionPolicy", missing), ("ValidatingAdmissionPolicyBinding", unbound)):
        await kube.delete(ref(ADMISSION, kind, name))
        await gone(kube, ref(ADMISSION, kind, name))
    # then it is said of both, and of no other
    failing = {one["subject"] for one in await findings(plane) if one["subject"].endswith(names.GROUP)}
    assert failing == {missing, unbound}
