"""Every road to a GPU but a GPUDevice is shut, for VMIs and for pods, whoever makes them."""

from typing import Any

import pytest
from actors import Tenant
from controlplane.client import Client
from gpukinds import GUARDED, H200, L40S
from installed import Installed
from machines import device, plain_pod, pool, replica_set, vm, vmi
from refusals import Answered, answered, refused
from waiting import eventually, gone

NEW_VMIS = "create.virtualmachineinstances.gpu.cozystack.io"
NEW_PODS = "pods.gpu.cozystack.io"
ORDER = (
    "order a GPUDevice and refer to it by the label gpu.cozystack.io/device-reference, "
    "or set the annotation gpu.cozystack.io/device-template on the VM's template"
)
RAW = f"asks for '{H200}' by its raw name"
CLAIM = {"name": "gpu", "resourceClaimTemplateName": "raw"}
BY_CLAIM = {"name": "a", "claimName": "gpu", "requestName": "gpu"}

VMIS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "gpus": (
        {"gpus": [{"name": "a", "deviceName": H200}]},
        {"spec.domain.devices.gpus[0]": RAW},
    ),
    "gpus of any name": (
        {"gpus": [{"name": "a", "deviceName": "nvidia.com/unknown"}]},
        {"spec.domain.devices.gpus[0]": "asks for 'nvidia.com/unknown' by its raw name"},
    ),
    "hostDevices": (
        {"host_devices": [{"name": "a", "deviceName": H200}]},
        {"spec.domain.devices.hostDevices[0]": RAW},
    ),
    "requests": (
        {"requests": {H200: "1"}},
        {f"spec.domain.resources.requests[{H200}]": RAW},
    ),
    "limits": (
        {"limits": {H200: "1"}},
        {f"spec.domain.resources.limits[{H200}]": RAW},
    ),
    "claims": (
        {"gpus": [BY_CLAIM], "claims": [CLAIM]},
        {"spec.domain.devices.gpus[0]": "asks for a GPU by a resource claim"},
    ),
    "several at once": (
        {"gpus": [{"name": "a", "deviceName": H200}], "limits": {L40S: "0"}},
        {
            "spec.domain.devices.gpus[0]": RAW,
            f"spec.domain.resources.limits[{L40S}]": f"asks for '{L40S}' by its raw name",
        },
    ),
}


@pytest.mark.parametrize("road", VMIS)
async def test_a_vmi_without_a_device_is_refused(tenant: Tenant, virt_controller: Client, road: str) -> None:
    asks, problems = VMIS[road]
    machine = vmi(tenant.namespace, **asks)

    refusal = await refused(virt_controller.create(machine))

    said = "; ".join([*(f"{where}: {problem}" for where, problem in problems.items()), ORDER])
    assert refusal == (403, "Forbidden", NEW_VMIS, said, list(problems))
    assert await refused(tenant.kube.create(machine)) == refusal


async def test_what_a_device_plugin_of_others_sells_is_let_in(tenant: Tenant, virt_controller: Client) -> None:
    machine = vmi(tenant.namespace, host_devices=[{"name": "nic", "deviceName": "intel.com/sriov"}])

    assert (await virt_controller.create(machine))["spec"] == machine["spec"]


def in_container(**more: Any) -> dict[str, Any]:
    return {
        "name": "side",
        "image": "example.org/image",
        "resources": {"requests": {H200: "1"}, "limits": {H200: "1"}},
        **more,
    }


PODS: dict[str, tuple[dict[str, Any], str]] = {
    "containers": ({"containers": [in_container()]}, "spec.containers[0]"),
    "initContainers": ({"initContainers": [in_container()]}, "spec.initContainers[0]"),
    "sidecars": ({"initContainers": [in_container(restartPolicy="Always")]}, "spec.initContainers[0]"),
}


@pytest.mark.parametrize("place", PODS)
async def test_a_pod_is_refused(tenant: Tenant, place: str) -> None:
    spec, container = PODS[place]

    refusal = await refused(tenant.kube.create(plain_pod(tenant.namespace, **spec)))

    where = f"{container}.resources.limits[{H200}]"
    do = "run a VM that refers to a GPUDevice by the label gpu.cozystack.io/device-reference"
    assert refusal == (403, "Forbidden", NEW_PODS, f"{where}: {RAW}; {do}", [where])


async def test_a_pods_own_resources_cannot_name_a_gpu(tenant: Tenant) -> None:
    """The API server itself refuses extended resources there, before it asks anybody."""
    pod = plain_pod(tenant.namespace, resources={"limits": {H200: "1"}, "requests": {H200: "1"}})

    refusal = await refused(tenant.kube.create(pod))

    assert refusal[:2] == (422, "Invalid")
    assert f"spec.resources.limits[{H200}]" in refusal.fields


async def test_what_a_controller_makes_of_a_tenants_object_is_refused(kube: Client, tenant: Tenant) -> None:
    """It acts on what tenants wrote: being the platform's does not exempt it."""
    template = plain_pod(tenant.namespace, limits={H200: "1"})
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {**template["spec"], "restartPolicy": "Always"}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": "web", "namespace": tenant.namespace}
    web = await tenant.kube.create({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": spec})

    async def failure() -> str:
        conditions = (await tenant.kube.get(web)).get("status", {}).get("conditions", ())
        return next((found["message"] for found in conditions if found["type"] == "ReplicaFailure"), "")

    assert RAW in await eventually(failure)
    await tenant.kube.delete(web, propagation="Background")
    await gone(kube, web)


REQUESTS: dict[str, dict[str, Any]] = {
    "exactly": {"name": "gpu", "exactly": {"deviceClassName": GUARDED}},
    "firstAvailable": {
        "name": "gpu",
        "firstAvailable": [
            {"name": "other", "deviceClassName": "other.example.org"},
            {"name": "guarded", "deviceClassName": GUARDED},
        ],
    },
}


def claim(namespace: str, kind: str, request: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = {"devices": {"requests": [request]}}
    if kind == "ResourceClaimTemplate":
        spec = {"spec": spec}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "raw", "namespace": namespace},
        "spec": spec,
    }


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
@pytest.mark.parametrize("request_", REQUESTS)
async def test_a_pod_with_a_claim_of_a_guarded_class_is_refused(
    kube: Client, tenant: Tenant, kind: str, request_: str
) -> None:
    await kube.create(claim(tenant.namespace, kind, REQUESTS[request_]))
    claims = [{"name": "gpu", f"{kind[0].lower()}{kind[1:]}Name": "raw"}]

    refusal = await refused(tenant.kube.create(plain_pod(tenant.namespace, resourceClaims=claims)))

    assert refusal[:3] == (403, "Forbidden", NEW_PODS)
    assert refusal.said == (
        f"spec.resourceClaims[0]: the claim 'raw' asks for the DeviceClass '{GUARDED}' by name; order a GPUDevice and "
        "refer to it by the label gpu.cozystack.io/device-reference on a VM"
    )


async def test_a_pod_with_a_claim_of_another_class_is_let_in(kube: Client, tenant: Tenant) -> None:
    request = {"name": "nic", "exactly": {"deviceClassName": "nics.example.org"}}
    await kube.create(claim(tenant.namespace, "ResourceClaim", request))
    claims = [{"name": "nic", "resourceClaimName": "raw"}]

    assert await tenant.kube.create(plain_pod(tenant.namespace, resourceClaims=claims))


FAMILY = {
    "VirtualMachine": (vm, "spec.template"),
    "VirtualMachineInstanceReplicaSet": (replica_set, "spec.template"),
    "VirtualMachinePool": (pool, "spec.virtualMachineTemplate.spec.template"),
}


@pytest.mark.parametrize("kind", FAMILY)
async def test_who_writes_a_vm_is_told_what_would_be_refused(installed: Installed, tenant: Tenant, kind: str) -> None:
    make, template = FAMILY[kind]
    before = answered(installed)

    created = await tenant.kube.create(make(tenant.namespace, gpus=[{"name": "a", "deviceName": H200}]))

    assert created["kind"] == kind
    assert created.warnings == [
        f"would be refused at start: {template}.spec.domain.devices.gpus[0]: {RAW}",
        f"to have it start: {ORDER}",
    ]
    # Nobody is told again what an update did not change.
    changed = await tenant.kube.patch(created, {"metadata": {"labels": {"a": "b"}}, "spec": {"paused": True}})
    assert not [line for line in changed.warnings if "refused" in line]
    assert answered(installed) - before == {Answered("validate", kind, "CREATE", "admitted"): 1}


@pytest.mark.parametrize("kind", FAMILY)
async def test_who_writes_a_vm_without_gpus_is_told_nothing(installed: Installed, tenant: Tenant, kind: str) -> None:
    before = answered(installed)

    created = await tenant.kube.create(FAMILY[kind][0](tenant.namespace))

    assert created.warnings == []
    assert answered(installed) == before


@pytest.mark.parametrize("kind", ["VirtualMachineInstanceReplicaSet", "VirtualMachinePool"])
async def test_one_device_for_many_is_told(tenant: Tenant, kind: str) -> None:
    make, template = FAMILY[kind]
    await tenant.kube.create(device(tenant.namespace))

    created = await tenant.kube.create(make(tenant.namespace, refers_to="my-gpu", replicas=2))

    (told,) = created.warnings
    assert told == (
        f"{template}.metadata.labels[gpu.cozystack.io/device-reference]: one device starts one of 2 replicas; "
        "the annotation gpu.cozystack.io/device-template has a device built for each"
    )


async def test_that_a_stop_may_lose_the_gpu_is_told(tenant: Tenant) -> None:
    created = await tenant.kube.create(vm(tenant.namespace, orders={"className": "h200"}))

    (told,) = created.warnings
    assert told.startswith("spec.template.metadata.annotations[gpu.cozystack.io/device-template]: a stop of over 15 s")
