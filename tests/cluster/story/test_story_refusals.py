"""What a tenant can't have, and what the person who asked for it is told."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from actors import Tenant
from controlplane.client import Client, ref
from gpukinds import API_VERSION, L40S, gpu_class, hold
from machines import DEVICE_REFERENCE, DEVICE_TEMPLATE, device, vm, vmi
from refusals import NO_FIELDS, Refused, known, refused
from waiting import eventually, gone

LABEL = f"metadata.labels[{DEVICE_REFERENCE}]"
ANNOTATION = f"metadata.annotations[{DEVICE_TEMPLATE}]"
MUTATING = "virtualmachineinstances.gpu.cozystack.io"
ORDERS = "gpudevices.gpu.cozystack.io"


@pytest.fixture
async def retired(kube: Client) -> AsyncIterator[str]:
    """A class that is being deleted, and kept by its finalizer."""
    name = "t4"
    of = gpu_class(name)
    of["metadata"]["finalizers"] = ["gpu.cozystack.io/class-protection"]
    await kube.create(of)
    await kube.delete(of)
    yield name
    await kube.patch(of, {"metadata": {"finalizers": None}})
    await gone(kube, of)


async def no_device_was_built(tenant: Tenant) -> bool:
    return not await tenant.kube.list(API_VERSION, "GPUDevice", tenant.namespace)


async def ordered(tenant: Tenant, virt_controller: Client, **order: Any) -> tuple[Refused, Refused]:
    """What is said to an order by the annotation of a VMI, and by a device of one's own."""
    by_annotation = await refused(virt_controller.create(vmi(tenant.namespace, orders=order)))
    by_device = await refused(
        tenant.kube.create(device(tenant.namespace, of=order["className"], count=order.get("count", 1)))
    )
    assert await no_device_was_built(tenant)
    return by_annotation, by_device


async def test_a_class_that_is_not_there(tenant: Tenant, virt_controller: Client) -> None:
    by_annotation, by_device = await ordered(tenant, virt_controller, className="h100")

    said = "there is no GPUClass 'h100'; choose one of: h200, l40s"
    where = f"{ANNOTATION}.className"
    assert by_annotation == (422, "Invalid", MUTATING, f"{where}: {said}", [where])
    assert by_device == (422, "Invalid", ORDERS, f"spec.className: {said}", ["spec.className"])


async def test_a_class_in_other_letters(tenant: Tenant, virt_controller: Client) -> None:
    by_annotation, _ = await ordered(tenant, virt_controller, className="H200")

    assert by_annotation.said == (f"{ANNOTATION}.className: there is no GPUClass 'H200'; did you mean 'h200'?")


async def test_a_class_that_is_being_deleted(tenant: Tenant, virt_controller: Client, retired: str) -> None:
    policy = "class-deletion.gpu.cozystack.io"
    await known(lambda: virt_controller.create(vmi(tenant.namespace, orders={"className": retired}), dry_run=True))
    await known(lambda: tenant.kube.create(device(tenant.namespace, of=retired), dry_run=True), by=policy)
    by_annotation, by_device = await ordered(tenant, virt_controller, className=retired)

    said = "GPUClass 't4' is being deleted and takes no new orders; choose one of: h200, l40s"
    where = f"{ANNOTATION}.className"
    assert by_annotation == (403, "Forbidden", MUTATING, f"{where}: {said}", [where])
    told = (
        "spec.className: GPUClass t4 is being deleted and takes no new orders; choose another: kubectl get gpuclasses"
    )
    assert by_device == (403, "Forbidden", policy, told, NO_FIELDS)


async def test_more_than_a_device_may_order(tenant: Tenant, virt_controller: Client) -> None:
    by_annotation, by_device = await ordered(tenant, virt_controller, className="h200", count=3)

    said = "GPUClass 'h200' sells 1 to 2 GPUs a device, not 3; order less, or several devices for several VMs"
    where = f"{ANNOTATION}.count"
    assert by_annotation == (422, "Invalid", MUTATING, f"{where}: {said}", [where])
    assert by_device == (422, "Invalid", ORDERS, f"spec.count: {said}", ["spec.count"])


async def test_an_annotation_that_cannot_be_read(tenant: Tenant, virt_controller: Client) -> None:
    machine = vmi(tenant.namespace)
    machine["metadata"]["annotations"] = {DEVICE_TEMPLATE: "className: h200"}

    refusal = await refused(virt_controller.create(machine))

    said = f'{ANNOTATION}: must be JSON such as {{"className":"h200","count":1}}'
    assert refusal == (422, "Invalid", MUTATING, said, [ANNOTATION])


async def test_a_device_that_is_not_there(tenant: Tenant, virt_controller: Client) -> None:
    refusal = await refused(virt_controller.create(vmi(tenant.namespace, refers_to="my-gpu")))

    said = (
        f"{LABEL}: there is no GPUDevice 'my-gpu' in namespace '{tenant.namespace}'; "
        "order it there first, or name one of: kubectl get gpudevices"
    )
    assert refusal == (422, "Invalid", MUTATING, said, [LABEL])


async def test_a_device_that_is_being_deleted(kube: Client, tenant: Tenant, virt_controller: Client) -> None:
    ordered = device(tenant.namespace)
    ordered["metadata"]["finalizers"] = ["gpu.cozystack.io/device"]
    await kube.create(ordered)
    await tenant.kube.delete(ordered)

    machine = vmi(tenant.namespace, refers_to="my-gpu")
    await known(lambda: virt_controller.create(machine, dry_run=True))
    refusal = await refused(virt_controller.create(machine))

    said = f"{LABEL}: GPUDevice 'my-gpu' is being deleted; refer to another, or wait and order it anew"
    assert refusal == (403, "Forbidden", MUTATING, said, [LABEL])
    await kube.patch(ordered, {"metadata": {"finalizers": None}})


async def test_a_device_of_another_vmi(kube: Client, tenant: Tenant, virt_controller: Client) -> None:
    ordered = await tenant.kube.create(device(tenant.namespace))
    await hold(kube, ordered, await virt_controller.create(vmi(tenant.namespace, refers_to="my-gpu")))

    guest = vmi(tenant.namespace, "guest", refers_to="my-gpu")
    await known(lambda: virt_controller.create(guest, dry_run=True))
    refusal = await refused(virt_controller.create(guest))

    said = (
        f"{LABEL}: GPUDevice 'my-gpu' is in use by VirtualMachineInstance 'desk'; "
        "stop that VM first, or order another device"
    )
    assert refusal == (409, "Conflict", MUTATING, said, [LABEL])


async def test_a_device_of_another_namespace(kube: Client, tenant: Tenant, virt_controller: Client) -> None:
    """A label can't name a namespace, so what is there under that name elsewhere does not count."""
    await kube.create(device("default", "elsewhere"))

    refusal = await refused(virt_controller.create(vmi(tenant.namespace, refers_to="elsewhere")))

    assert refusal.code == 422
    await kube.delete(ref(API_VERSION, "GPUDevice", "elsewhere", "default"))


async def test_more_entries_than_the_device_grants(tenant: Tenant, virt_controller: Client) -> None:
    await tenant.kube.create(device(tenant.namespace))
    gpus = [{"name": name, "deviceName": L40S} for name in ("a", "b")]

    refusal = await refused(virt_controller.create(vmi(tenant.namespace, refers_to="my-gpu", gpus=gpus)))

    said = (
        "spec.domain.devices.gpus[1]: is GPU entry 2 of 2, and the device grants 1; "
        "take entries out, or order a device of more GPUs"
    )
    assert refusal == (403, "Forbidden", MUTATING, said, ["spec.domain.devices.gpus[1]"])


async def test_more_than_the_quota(kube: Client, tenant: Tenant, virt_controller: Client) -> None:
    """The API server's own message reaches the person, though it was the pair that it refused."""
    hard = {"count/gpudevices.gpu.cozystack.io": "1"}
    metadata = {"name": "two-gpus", "namespace": tenant.namespace}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}}
    await kube.create(quota)

    async def counts() -> bool:
        return "used" in (await kube.get(quota)).get("status", {})

    await eventually(counts)
    first = await virt_controller.create(vmi(tenant.namespace, orders={"className": "h200"}))
    assert first["metadata"]["labels"][DEVICE_REFERENCE]

    second = vmi(tenant.namespace, "guest", orders={"className": "h200"})
    refusal = await refused(virt_controller.create(second))

    assert refusal[:3] == (403, "Forbidden", MUTATING)
    assert refusal.said.startswith(f"{ANNOTATION}: its device can't be created: gpudevices.gpu.cozystack.io \"guest-")
    assert refusal.said.endswith(
        "is forbidden: exceeded quota: two-gpus, requested: count/gpudevices.gpu.cozystack.io=1, "
        "used: count/gpudevices.gpu.cozystack.io=1, limited: count/gpudevices.gpu.cozystack.io=1"
    )
    assert refusal == await refused(virt_controller.create(second, dry_run=True))
    written = await tenant.kube.create(vm(tenant.namespace, "guest", orders={"className": "h200"}))
    assert "exceeded quota: two-gpus" in written.warnings[0]
    assert len(await tenant.kube.list(API_VERSION, "GPUDevice", tenant.namespace)) == 1


@pytest.mark.parametrize("mark", ["label", "annotation"])
async def test_another_device_for_a_vmi_that_is_there(tenant: Tenant, virt_controller: Client, mark: str) -> None:
    await tenant.kube.create(device(tenant.namespace))
    asks: dict[str, Any] = {"refers_to": "my-gpu"} if mark == "label" else {"orders": {"className": "h200"}}
    machine = await virt_controller.create(vmi(tenant.namespace, **asks))
    change, where = {
        "label": ({"labels": {DEVICE_REFERENCE: None}}, LABEL),
        "annotation": ({"annotations": {DEVICE_TEMPLATE: '{"className":"l40s"}'}}, ANNOTATION),
    }[mark]

    refusal = await refused(tenant.kube.patch(machine, {"metadata": change}))

    said = f"{where}: can't be added, changed or dropped on a VMI; set it on the VM's template and restart the VM"
    assert refusal == (403, "Forbidden", "vmi-reference.gpu.cozystack.io", said, NO_FIELDS)


OF_THE_PLATFORM: dict[str, dict[str, Any]] = {
    "metadata.finalizers": {"finalizers": ["gpu.cozystack.io/device"]},
    "metadata.labels[gpu.cozystack.io/template-device]": {"labels": {"gpu.cozystack.io/template-device": "true"}},
}
LEAVE_IT = {
    "metadata.finalizers": (
        "are set and taken off by the platform alone; leave them as they are, "
        "and delete the GPUDevice to give its GPUs back"
    ),
    "metadata.labels[gpu.cozystack.io/template-device]": (
        "marks the devices that the platform builds from a device-template annotation; leave the label as it is"
    ),
}


@pytest.mark.parametrize("part", OF_THE_PLATFORM)
async def test_what_the_platform_alone_writes_on_an_order(tenant: Tenant, part: str) -> None:
    order = device(tenant.namespace)
    order["metadata"] |= OF_THE_PLATFORM[part]

    refusal = await refused(tenant.kube.create(order))

    said = f"{part}: {LEAVE_IT[part]}"
    assert refusal == (403, "Forbidden", "device-protection.gpu.cozystack.io", said, NO_FIELDS)
