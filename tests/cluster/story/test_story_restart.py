"""A VM that is stopped and started again: its next VMI has another uid, and the same GPUs."""

import pytest
from actors import Tenant, bind_pod
from controlplane.client import Client, Object
from gpukinds import API_VERSION, hold
from machines import DEVICE_REFERENCE, device, launcher, vm, vmi
from refusals import known, refused
from waiting import eventually, gone

ONE = {"className": "h200", "count": 1}


@pytest.fixture
async def machine(tenant: Tenant) -> Object:
    """A VM of the tenant."""
    return await tenant.kube.create(vm(tenant.namespace))


async def test_by_the_annotation_it_takes_its_device_over(
    kube: Client, tenant: Tenant, virt_controller: Client, machine: Object
) -> None:
    """The device is held and bound still, since the controller gives it back after a while only."""
    start = vmi(tenant.namespace, owner=machine, orders=ONE)
    first = await virt_controller.create(start)
    (built,) = await kube.list(API_VERSION, "GPUDevice", tenant.namespace)
    await hold(kube, built, first)
    await virt_controller.delete(first)

    second = await virt_controller.create(start)

    (kept,) = await kube.list(API_VERSION, "GPUDevice", tenant.namespace)
    name = built["metadata"]["name"]
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert second["metadata"]["labels"][DEVICE_REFERENCE] == name
    assert kept["metadata"]["uid"] == built["metadata"]["uid"]
    assert second.warnings[0] == f"took over GPUDevice {name}: 1 of class h200"
    # A delete that rests on what the controller knew before is refused.
    known = {"resourceVersion": built["metadata"]["resourceVersion"]}
    assert (await refused(kube.delete(built, preconditions=known))).code == 409


async def test_by_the_label_it_has_the_same_device(
    kube: Client, tenant: Tenant, virt_controller: Client, machine: Object
) -> None:
    held = await tenant.kube.create(device(tenant.namespace, "my-gpu"))
    start = vmi(tenant.namespace, owner=machine, refers_to="my-gpu")
    first = await virt_controller.create(start)
    await hold(kube, held, first)
    await virt_controller.delete(first)

    second = await virt_controller.create(start)

    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert second["spec"] == first["spec"]


async def test_while_the_pod_of_its_last_run_is_there_it_waits(
    kube: Client, tenant: Tenant, virt_controller: Client, machine: Object
) -> None:
    """A guest can run on after its VMI is gone: a launcher with a finalizer stands for one here."""
    held = await tenant.kube.create(device(tenant.namespace, "my-gpu"))
    start = vmi(tenant.namespace, owner=machine, refers_to="my-gpu")
    first = await virt_controller.create(start)
    await hold(kube, held, first)
    pod = launcher(first)
    pod["metadata"]["finalizers"] = ["example.com/guest-runs-on"]
    pod = await virt_controller.create(pod)
    await bind_pod(kube, pod, "node-a")
    await virt_controller.delete(first, propagation="Background")
    await gone(kube, first)
    await known(lambda: virt_controller.create(start, dry_run=True))

    refusal = await refused(virt_controller.create(start))

    assert refusal[:2] == (409, "Conflict")
    assert refusal.said == (
        f"metadata.labels[{DEVICE_REFERENCE}]: GPUDevice 'my-gpu' is in use by VirtualMachineInstance 'desk'; "
        "its pod of an earlier run still runs: virt-controller tries again once it is gone"
    )
    await kube.patch(pod, {"metadata": {"finalizers": None}})
    await kube.delete(pod, grace=0)

    async def starts() -> bool:
        return bool(await virt_controller.create(start))

    assert await eventually(starts)


async def test_another_vm_does_not_take_its_device_over(
    kube: Client, tenant: Tenant, virt_controller: Client, machine: Object
) -> None:
    first = await virt_controller.create(vmi(tenant.namespace, owner=machine, orders=ONE))
    await virt_controller.delete(first)
    other = await tenant.kube.create(vm(tenant.namespace, "other"))

    second = await virt_controller.create(vmi(tenant.namespace, owner=other, orders=ONE))

    assert second["metadata"]["labels"][DEVICE_REFERENCE] != first["metadata"]["labels"][DEVICE_REFERENCE]
    assert len(await kube.list(API_VERSION, "GPUDevice", tenant.namespace)) == 2
