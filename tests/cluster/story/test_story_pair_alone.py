"""What the pair says by itself, where the policies would speak first: no policy is in force here.

So it is for whoever takes them away, and for what gets past them.
"""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from actors import Tenant
from controlplane.client import Client, Object
from gpukinds import H200, gpu_class, hold
from installed import Installed
from machines import DEVICE_REFERENCE, DEVICE_TEMPLATE, device, launcher, plain_pod, vmi
from policies.force import put_back, take_bindings_away
from rawroads import OWNER, PODS, RAW, RUN, VMIS
from refusals import Calls, known, refused
from waiting import gone

NEW_VMIS = "create.virtualmachineinstances.gpu.cozystack.io"
CHANGED_VMIS = "update.virtualmachineinstances.gpu.cozystack.io"
NEW_PODS = "pods.gpu.cozystack.io"
ORDERS = "gpudevices.gpu.cozystack.io"


@pytest.fixture(scope="module", autouse=True)
def without_policies(installed: Installed) -> Iterator[None]:
    """None of them is in force within; all are again afterwards."""

    async def taken_away() -> list[Object]:
        async with installed.plane.client() as kube:
            return await take_bindings_away(kube)

    async def given_back(bindings: list[Object]) -> None:
        async with installed.plane.client() as kube:
            await put_back(kube, bindings)

    with ThreadPoolExecutor(1) as thread:
        bindings = thread.submit(asyncio.run, taken_away()).result()
        yield
        thread.submit(asyncio.run, given_back(bindings)).result()


@pytest.mark.parametrize("road", VMIS)
async def test_a_vmi_without_a_device_is_refused(tenant: Tenant, virt_controller: Client, road: str) -> None:
    machine = vmi(tenant.namespace, **VMIS[road].asks)

    refusal = await refused(virt_controller.create(machine))

    assert refusal == (403, "Forbidden", NEW_VMIS, VMIS[road].pair_says, list(VMIS[road].pair))
    assert await refused(tenant.kube.create(machine)) == refusal


@pytest.mark.parametrize("place", PODS)
async def test_a_pod_is_refused(tenant: Tenant, place: str) -> None:
    spec, container = PODS[place]

    refusal = await refused(tenant.kube.create(plain_pod(tenant.namespace, **spec)))

    where = f"{container}.resources.limits[{H200}]"
    assert refusal == (403, "Forbidden", NEW_PODS, f"{where}: {RAW}; {RUN}", [where])


async def test_a_tenants_own_copy_of_a_launcher_is_refused(
    kube: Client, tenant: Tenant, virt_controller: Client
) -> None:
    order = await tenant.kube.create(device(tenant.namespace))
    machine = await virt_controller.create(vmi(tenant.namespace, refers_to="my-gpu"))
    await hold(kube, order, machine)

    refusal = await refused(tenant.kube.create(launcher(machine)))

    where = f"spec.containers[0].resources.limits[{H200}]"
    assert refusal[:3] == (403, "Forbidden", NEW_PODS)
    assert where in refusal.fields
    assert f"{where}: {RAW}" in refusal.said
    assert refusal.said.endswith(RUN)


async def test_virt_controllers_pod_without_a_vmi_is_refused(tenant: Tenant, virt_controller: Client) -> None:
    refusal = await refused(virt_controller.create(plain_pod(tenant.namespace, limits={H200: "1"})))

    assert refusal == (403, "Forbidden", NEW_PODS, OWNER, ["metadata.ownerReferences"])


CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "label": (
        {"refers_to": "my-gpu"},
        {"labels": {DEVICE_REFERENCE: None}},
        f"metadata.labels[{DEVICE_REFERENCE}]",
    ),
    "annotation": (
        {"orders": {"className": "h200"}},
        {"annotations": {DEVICE_TEMPLATE: '{"className":"l40s"}'}},
        f"metadata.annotations[{DEVICE_TEMPLATE}]",
    ),
}


@pytest.mark.parametrize("mark", CHANGES)
async def test_another_device_for_a_vmi_that_is_there(
    tenant: Tenant, virt_controller: Client, mark: str, calls: Calls
) -> None:
    asks, change, where = CHANGES[mark]
    await tenant.kube.create(device(tenant.namespace))
    machine = await virt_controller.create(vmi(tenant.namespace, **asks))

    async with calls(("validate", "update.virtualmachineinstances", "UPDATE")):
        refusal = await refused(tenant.kube.patch(machine, {"metadata": change}))

    said = f"{where}: can't be added, changed or dropped on a VMI; set it on the VM's template and restart the VM"
    assert refusal == (403, "Forbidden", CHANGED_VMIS, said, [where])


async def test_an_order_of_a_class_that_is_being_deleted(kube: Client, tenant: Tenant) -> None:
    retired = gpu_class("t4")
    retired["metadata"]["finalizers"] = ["gpu.cozystack.io/class-protection"]
    await kube.create(retired)
    await kube.delete(retired)
    order = device(tenant.namespace, of="t4")
    await known(lambda: tenant.kube.create(order, dry_run=True), by="is being deleted")

    refusal = await refused(tenant.kube.create(order))

    said = "spec.className: GPUClass 't4' is being deleted and takes no new orders; choose one of: h200, l40s"
    assert refusal == (403, "Forbidden", ORDERS, said, ["spec.className"])
    await kube.patch(retired, {"metadata": {"finalizers": None}})
    await gone(kube, retired)


async def test_what_the_platform_alone_writes_on_an_order(tenant: Tenant) -> None:
    order = device(tenant.namespace)
    order["metadata"] |= {
        "finalizers": ["gpu.cozystack.io/device"],
        "labels": {"gpu.cozystack.io/template-device": "true"},
    }

    refusal = await refused(tenant.kube.create(order))

    assert refusal[:3] == (403, "Forbidden", ORDERS)
    assert refusal.fields == ["metadata.finalizers", "metadata.labels[gpu.cozystack.io/template-device]"]
