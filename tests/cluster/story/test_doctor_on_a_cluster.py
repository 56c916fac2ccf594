"""``gpu-webhooks doctor`` beside an installation, and where there is none."""

import asyncio
import json
from typing import Any

import pytest
from actors import Tenant
from click.testing import CliRunner, Result
from controlplane.client import Client, ref
from controlplane.plane import ControlPlane
from controlplane.versions import NEWEST
from gpukinds import H200
from installed import Installed

from webhooks.cli import main

pytestmark = pytest.mark.parametrize("installed", [NEWEST], indirect=True)


async def doctor(plane: ControlPlane, *arguments: str, user: str | None = None) -> Result:
    command = ["doctor", "--kubeconfig", str(plane.kubeconfig(user)), "-o", "json", *arguments]
    # In a thread: the command has a loop of its own.
    return await asyncio.to_thread(CliRunner().invoke, main, command)


def said(result: Result, subject: str) -> list[dict[str, Any]]:
    return [one for one in json.loads(result.stdout)["findings"] if one["subject"] == subject]


def levels(result: Result) -> dict[str, str]:
    return {one["subject"]: one["level"] for one in json.loads(result.stdout)["findings"]}


async def test_an_installation_that_works_is_told_to_work(plane: ControlPlane, tenant: Tenant) -> None:
    result = await doctor(plane, "--tenant-namespace", tenant.namespace)

    found = levels(result)
    assert result.exit_code == 0, result.stdout
    assert found[f"dry run with a template in {tenant.namespace}"] == "ok"
    assert found[f"dry run with a raw name in {tenant.namespace}"] == "ok"
    assert [found[subject] for subject in ("Kubernetes", "kinds", "webhooks", "caBundle", "tenants", "classes")] == [
        "ok"
    ] * 6
    assert said(result, "ConfigMap gpu-settings") == [
        {"level": "ok", "subject": "ConfigMap gpu-settings", "seen": "2 resource names", "todo": None}
    ]


async def test_a_dry_run_leaves_nothing(plane: ControlPlane, kube: Client, tenant: Tenant) -> None:
    await doctor(plane, "--tenant-namespace", tenant.namespace)

    assert await kube.list("gpu.cozystack.io/v1alpha1", "GPUDevice", tenant.namespace) == []
    assert await kube.list("kubevirt.io/v1", "VirtualMachineInstance", tenant.namespace) == []


async def test_what_its_account_may_not_see_or_do_is_a_warning_that_says_so(
    plane: ControlPlane, tenant: Tenant
) -> None:
    result = await doctor(plane, "--namespace", "gpu-system", user=tenant.user)

    [nodes] = said(result, "nodes")
    assert result.exit_code == 0
    assert nodes["level"] == "warning"
    assert f'User "{tenant.user}" cannot list resource "nodes"' in nodes["seen"]
    assert "ConfigMap gpu-settings" not in levels(result)


async def test_a_namespace_whose_vms_nobody_checks_is_a_failure(
    plane: ControlPlane, make_namespace: Any, installed: Installed
) -> None:
    free = await make_namespace(tenant=False)

    result = await doctor(plane, "--tenant-namespace", free, "--namespace", installed.namespace)

    [template] = said(result, f"dry run with a template in {free}")
    [raw] = said(result, f"dry run with a raw name in {free}")
    assert result.exit_code == 1
    assert (template["level"], raw["level"]) == ("failure", "failure")
    assert "the pair was not asked" in template["seen"]
    assert "was let in: a tenant can take a GPU without a device" in raw["seen"]


async def test_without_webhooks_of_that_name_nothing_is_said_to_be_checked(plane: ControlPlane) -> None:
    result = await doctor(plane, "--webhook-configuration", "other")

    told = [one["seen"] for one in said(result, "webhooks")]
    assert result.exit_code == 1
    assert len(told) == 2
    assert all("nothing is checked" in one for one in told)


async def test_kubevirts_configuration_is_held_against_the_classes(plane: ControlPlane, kube: Client) -> None:
    permitted = {"pciVendorSelector": "10DE:2335", "resourceName": H200}
    kubevirt = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "KubeVirt",
        "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
        "spec": {"configuration": {"permittedHostDevices": {"pciHostDevices": [permitted]}}},
    }
    await kube.create(kubevirt)
    try:
        result = await doctor(plane)
    finally:
        await kube.delete(ref("kubevirt.io/v1", "KubeVirt", "kubevirt", "kubevirt"))

    lacking = [one["seen"] for one in said(result, "GPUClass l40s") if one["level"] == "failure"]
    assert len(lacking) == 1
    assert "permittedHostDevices lacks" in lacking[0]
    assert said(result, "KubeVirt")[0]["level"] == "warning"


async def test_a_cluster_that_can_not_be_reached_ends_it_with_2(plane: ControlPlane) -> None:
    result = await asyncio.to_thread(
        CliRunner().invoke, main, ["doctor", "--kubeconfig", str(plane.kubeconfig(server="https://127.0.0.1:1"))]
    )

    assert result.exit_code == 2
    assert "the cluster can't be read" in result.stderr
    assert "Traceback" not in result.output
