"""Every road to a GPU but a GPUDevice is shut, for VMIs and for pods, whoever makes them."""

from typing import Any

import pytest
from actors import HOST_LABEL, Tenant
from controlplane.client import Client, ref
from gpukinds import GUARDED, H200
from installed import Installed
from machines import device, plain_pod, pool, replica_set, vm, vmi
from rawroads import ORDER, PODS, RAW, VMIS, pod_says
from refusals import NO_FIELDS, Answered, answered, known, refused
from waiting import eventually, gone

POLICY_OF_VMIS = "vmi-raw-names.gpu.cozystack.io"
POLICY_OF_PODS = "pod-raw-names.gpu.cozystack.io"


@pytest.mark.parametrize("road", VMIS)
async def test_a_vmi_without_a_device_is_refused(tenant: Tenant, virt_controller: Client, road: str) -> None:
    machine = vmi(tenant.namespace, **VMIS[road].asks)

    refusal = await refused(virt_controller.create(machine))

    assert refusal == (403, "Forbidden", POLICY_OF_VMIS, VMIS[road].policy_says, NO_FIELDS)
    assert await refused(tenant.kube.create(machine)) == refusal


async def test_what_a_device_plugin_of_others_sells_is_let_in(tenant: Tenant, virt_controller: Client) -> None:
    machine = vmi(tenant.namespace, host_devices=[{"name": "nic", "deviceName": "intel.com/sriov"}])

    assert (await virt_controller.create(machine))["spec"] == machine["spec"]


@pytest.mark.parametrize("place", PODS)
async def test_a_pod_is_refused(tenant: Tenant, place: str) -> None:
    spec, _ = PODS[place]
    field = f"spec.{'containers' if place == 'containers' else 'initContainers'}[side].resources.limits"

    refusal = await refused(tenant.kube.create(plain_pod(tenant.namespace, **spec)))

    assert refusal == (403, "Forbidden", POLICY_OF_PODS, pod_says(field), NO_FIELDS)


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

    said = await eventually(failure)
    assert f"ValidatingAdmissionPolicy '{POLICY_OF_PODS}'" in said
    assert said.endswith(pod_says("spec.containers[compute].resources.limits"))
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
async def test_a_claim_of_a_guarded_class_is_refused(kube: Client, tenant: Tenant, kind: str, request_: str) -> None:
    refusal = await refused(kube.create(claim(tenant.namespace, kind, REQUESTS[request_])))

    said = f"devices.requests: asks for the DeviceClass {GUARDED} by name, in exactly or firstAvailable; {ORDER}"
    assert refusal == (403, "Forbidden", "claims.gpu.cozystack.io", said, NO_FIELDS)


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
@pytest.mark.parametrize("request_", REQUESTS)
async def test_a_pod_with_such_a_claim_from_before_is_refused(
    kube: Client, tenant: Tenant, kind: str, request_: str
) -> None:
    """The claim is older than the label that makes its namespace a tenant's."""
    namespace = ref("v1", "Namespace", tenant.namespace)
    await kube.patch(namespace, {"metadata": {"labels": {HOST_LABEL: None}}})
    await eventually(lambda: kube.create(claim(tenant.namespace, kind, REQUESTS[request_])))
    await kube.patch(namespace, {"metadata": {"labels": {HOST_LABEL: "a"}}})
    await known(lambda: tenant.kube.create(plain_pod(tenant.namespace, limits={H200: "1"}), dry_run=True))
    claims = [{"name": "gpu", f"{kind[0].lower()}{kind[1:]}Name": "raw"}]

    refusal = await refused(tenant.kube.create(plain_pod(tenant.namespace, resourceClaims=claims)))

    assert refusal[:3] == (403, "Forbidden", "pods.gpu.cozystack.io")
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
