"""``gpu-webhooks audit`` of what runs in a cluster."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from actors import VIRT_CONTROLLER, Tenant, owner_reference
from click.testing import CliRunner, Result
from controlplane.client import Client
from controlplane.plane import ControlPlane
from controlplane.versions import NEWEST

from webhooks.cli import main

pytestmark = pytest.mark.parametrize("plane", [NEWEST], indirect=True)

CATALOG = Path(__file__).parents[2] / "examples" / "catalog"
H200 = "nvidia.com/GH100_H200_SXM_141GB"


async def audit(plane: ControlPlane, *arguments: str, user: str | None = None, output: str = "json") -> Result:
    command = ["audit", "--kubeconfig", str(plane.kubeconfig(user)), "-o", output, *arguments]
    # In a thread: the command has a loop of its own.
    return await asyncio.to_thread(CliRunner().invoke, main, command)


def of(result: Result, namespace: str) -> list[dict[str, Any]]:
    found = [one for one in json.loads(result.stdout)["namespaces"] if one["namespace"] == namespace]
    return list(found[0]["refused"]) if found else []


def vm(namespace: str, name: str, devices: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    template = {"metadata": metadata, "spec": {"domain": {"devices": devices}}}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"runStrategy": "Always", "template": template},
    }


async def raw_vm(kube: Client, tenant: Tenant) -> None:
    """A VM with a raw GPU that runs: its VMI, and the launcher pod."""
    devices = {"gpus": [{"name": "gpu", "deviceName": H200}]}
    stored = await kube.create(vm(tenant.namespace, "greedy", devices))
    controller = kube.as_(VIRT_CONTROLLER)
    vmi = await controller.create(
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": {
                "name": "greedy",
                "namespace": tenant.namespace,
                "ownerReferences": [owner_reference(stored)],
            },
            "spec": {"domain": {"devices": devices}},
        }
    )
    await controller.create(pod(tenant.namespace, "launcher", {H200: "1"}, ownerReferences=[owner_reference(vmi)]))


def pod(namespace: str, name: str, resources: dict[str, str], **metadata: Any) -> dict[str, Any]:
    container = {"name": "compute", "image": "launcher", "resources": {"limits": resources, "requests": resources}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"containers": [container]},
    }


async def test_what_runs_with_raw_gpus_is_listed_under_its_vm(
    plane: ControlPlane, kube: Client, tenant: Tenant
) -> None:
    await raw_vm(kube, tenant)
    await kube.create(pod(tenant.namespace, "web", {"cpu": "1"}))

    result = await audit(plane, "--catalog", str(CATALOG))

    [finding] = of(result, tenant.namespace)
    assert result.exit_code == 1
    assert (finding["kind"], finding["name"], finding["code"]) == ("VirtualMachine", "greedy", 403)
    assert (finding["file"], finding["line"]) == (None, None)
    assert [(run["kind"], run["name"]) for run in finding["runsAs"]] == [
        ("VirtualMachineInstance", "greedy"),
        ("Pod", "launcher"),
    ]
    assert json.loads(result.stdout)["objects"] >= 4


async def test_a_person_reads_which_field_is_to_blame(plane: ControlPlane, kube: Client, tenant: Tenant) -> None:
    await raw_vm(kube, tenant)

    result = await audit(plane, "--catalog", str(CATALOG), output="text")

    lines = result.stdout.splitlines()
    told = lines[lines.index(tenant.namespace) :][:4]
    assert told[1] == "  VirtualMachine greedy"
    assert told[2].startswith(
        "    spec.template.spec.domain.devices.gpus[0]: asks for 'nvidia.com/GH100_H200_SXM_141GB'"
    )
    assert told[3] == "    runs as VirtualMachineInstance greedy, Pod launcher (Pending)"


async def test_namespaces_that_are_no_tenants_are_left_out(
    plane: ControlPlane, make_namespace: Any, kube: Client
) -> None:
    namespace = await make_namespace(tenant=False)
    await kube.create(pod(namespace, "theirs", {H200: "1"}))

    result = await audit(plane, "--catalog", str(CATALOG))

    assert of(result, namespace) == []
    assert json.loads(result.stdout)["leftOut"]["notTenants"] >= 1


async def test_an_instancetype_of_the_cluster_counts(plane: ControlPlane, kube: Client, tenant: Tenant) -> None:
    instancetype = {
        "apiVersion": "instancetype.kubevirt.io/v1beta1",
        "kind": "VirtualMachineInstancetype",
        "metadata": {"name": "gpu-large", "namespace": tenant.namespace},
        "spec": {"cpu": {"guest": 4}, "memory": {"guest": "4Gi"}, "gpus": [{"name": "gpu", "deviceName": H200}]},
    }
    await kube.create(instancetype)
    ordered = vm(tenant.namespace, "sized", {})
    ordered["spec"]["instancetype"] = {"name": "gpu-large", "kind": "VirtualMachineInstancetype"}
    await kube.create(ordered)

    result = await audit(plane, "--catalog", str(CATALOG))

    [finding] = of(result, tenant.namespace)
    assert finding["name"] == "sized"
    assert finding["reasons"][0]["of"] == "VirtualMachineInstancetype gpu-large"


async def test_without_a_class_it_is_said_how_to_be_judged_by_those_to_come(
    plane: ControlPlane, tenant: Tenant
) -> None:
    result = await audit(plane)

    assert "the cluster has no GPUClass" in result.stderr
    assert tenant.namespace not in result.stdout


async def test_what_may_not_be_listed_is_an_error_that_says_who_may_not(plane: ControlPlane, tenant: Tenant) -> None:
    result = await audit(plane, user=tenant.user)

    assert result.exit_code == 2
    assert f'User "{tenant.user}" cannot' in result.stderr
    assert "Traceback" not in result.stderr
