"""What goes through without the service being called: counted by the API server itself."""

from typing import Any

import pytest
from actors import HOST_LABEL, MakeNamespace, Tenant, bind_pod
from controlplane.client import Client, Object, ref
from gpukinds import API_VERSION, H200, hold
from installed import Installed
from machines import DEVICE_REFERENCE, device, launcher, plain_pod, vm, vmi
from refusals import Calls, refused

LAUNCHER_LIMITS = {"devices.kubevirt.io/kvm": "1", "devices.kubevirt.io/tun": "1", "cpu": "1", "memory": "1Gi"}


@pytest.fixture
async def machine(kube: Client, tenant: Tenant, virt_controller: Client) -> Object:
    """A running VMI of the tenant, its device held and bound, with KubeVirt's finalizer."""
    order = await tenant.kube.create(device(tenant.namespace))
    machine = vmi(tenant.namespace, refers_to="my-gpu")
    machine["metadata"]["finalizers"] = ["foregroundDeleteVirtualMachine"]
    created = await virt_controller.create(machine)
    await hold(kube, order, created)
    return created


async def report(virt_handler: Client, machine: Object, **status: Any) -> Object:
    """Virt-handler's way: the whole object, read and put, since there is no status subresource."""
    stored = await virt_handler.get(machine)
    return await virt_handler.update({**stored, "status": {**stored.get("status", {}), **status}})


async def test_what_becomes_of_a_vmi(
    tenant: Tenant, virt_controller: Client, virt_handler: Client, machine: Object, calls: Calls
) -> None:
    async with calls():
        for phase in ("Scheduling", "Scheduled", "Running"):
            await report(virt_handler, machine, phase=phase, nodeName="node-a")
        await virt_controller.patch(machine, [{"op": "add", "path": "/metadata/labels/a", "value": "b"}])
        await tenant.kube.patch(machine, {"metadata": {"annotations": {"note": "mine"}}})
        await tenant.kube.delete(machine)
        await report(virt_handler, machine, phase="Succeeded")
        assert (await virt_controller.get(machine))["metadata"]["deletionTimestamp"]
        await virt_controller.patch(machine, {"metadata": {"finalizers": None}})
    assert (await refused(tenant.kube.get(machine))).code == 404


async def test_the_deletion_of_all_vmis_at_once(kube: Client, tenant: Tenant, machine: Object, calls: Calls) -> None:
    async with calls():
        await kube.raw("DELETE", f"/apis/kubevirt.io/v1/namespaces/{tenant.namespace}/virtualmachineinstances")
    assert (await kube.get(machine))["metadata"]["deletionTimestamp"]


async def test_another_device_for_it_is_refused_before_the_service_is_asked(
    tenant: Tenant, machine: Object, calls: Calls
) -> None:
    async with calls():
        change = {"metadata": {"labels": {DEVICE_REFERENCE: "another"}}}
        refusal = await refused(tenant.kube.patch(machine, change))
    assert (refusal.code, refusal.by) == (403, "vmi-reference.gpu.cozystack.io")


async def test_that_it_is_made_is_another_matter(tenant: Tenant, virt_controller: Client, calls: Calls) -> None:
    """What is asked about, which shows that the calls are counted."""
    await tenant.kube.create(device(tenant.namespace))
    async with calls(
        ("mutate", "virtualmachineinstances", "CREATE"), ("validate", "create.virtualmachineinstances", "CREATE")
    ):
        await virt_controller.create(vmi(tenant.namespace, refers_to="my-gpu"))


async def test_what_becomes_of_a_device_and_of_a_launcher(
    kube: Client, tenant: Tenant, virt_controller: Client, machine: Object, calls: Calls
) -> None:
    order = ref(API_VERSION, "GPUDevice", "my-gpu", tenant.namespace)
    pod = await virt_controller.create(launcher(machine))
    async with calls():
        await bind_pod(kube, pod, "node-a")
        await kube.patch(pod, {"status": {"phase": "Running"}}, subresource="status")
        await virt_controller.patch(pod, {"metadata": {"annotations": {"note": "a"}}})
        await kube.delete(pod, grace=0)
        await kube.patch(order, {"metadata": {"finalizers": ["gpu.cozystack.io/device"]}})
        await kube.patch(order, {"status": {"binding": None, "phase": "Held"}}, subresource="status")
        await tenant.kube.delete(order)
        await kube.patch(order, {"metadata": {"finalizers": None}})


async def test_plain_vms_and_pods(tenant: Tenant, virt_controller: Client, calls: Calls) -> None:
    async with calls():
        assert await tenant.kube.create(
            plain_pod(tenant.namespace, limits={"cpu": "1", "hugepages-2Mi": "2Mi", "memory": "1Gi"})
        )
        machine = await virt_controller.create(
            vmi(tenant.namespace, owner=await tenant.kube.create(vm(tenant.namespace)), limits={"cpu": "2"})
        )
        pod = launcher(machine)
        pod["spec"]["containers"][0]["resources"] = {"limits": LAUNCHER_LIMITS}
        assert await virt_controller.create(pod)


async def test_whatever_is_in_a_namespace_of_the_platforms(
    kube: Client, installed: Installed, make_namespace: MakeNamespace, calls: Calls
) -> None:
    """Also where it has a tenant's label: the release's, KubeVirt's and kube-system are out whatever they have."""
    another = await make_namespace(tenant=False)
    own = (installed.namespace, "kubevirt", "kube-system")
    for name in own:
        await kube.patch(ref("v1", "Namespace", name), {"metadata": {"labels": {HOST_LABEL: "a"}}})
    async with calls():
        for namespace in (another, *own):
            pod = plain_pod(namespace, limits={H200: "1"}, serviceAccountName="default")
            assert await kube.create(pod, dry_run=True)
            assert await kube.create(vmi(namespace, refers_to="nothing", limits={H200: "1"}), dry_run=True)
    for name in own:
        await kube.patch(ref("v1", "Namespace", name), {"metadata": {"labels": {HOST_LABEL: None}}})
