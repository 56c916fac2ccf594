"""How a VMI that virt-controller creates comes by its GPUs: by the label, the annotation, both or none."""

from typing import Any

import pytest
from actors import Tenant
from controlplane.client import Client
from gpukinds import API_VERSION, H200
from installed import Installed
from machines import DEVICE_REFERENCE, device, replica_set, vmi
from refusals import Answered, answered, refused

JUDGED = {
    Answered("mutate", "VirtualMachineInstance", "CREATE", "patched"): 1,
    Answered("validate", "VirtualMachineInstance", "CREATE", "admitted"): 1,
}
TWO = {"className": "h200", "count": 2}


def gpus(obj: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = obj["spec"]["domain"]["devices"].get("gpus", [])
    return found


async def devices(tenant: Tenant) -> list[dict[str, Any]]:
    return await tenant.kube.list(API_VERSION, "GPUDevice", tenant.namespace)


async def test_by_the_label_it_gets_what_the_device_grants(
    kube: Client, installed: Installed, tenant: Tenant, virt_controller: Client
) -> None:
    await tenant.kube.create(device(tenant.namespace, "my-gpu"))
    before = answered(installed)

    created = await virt_controller.create(vmi(tenant.namespace, refers_to="my-gpu"))

    assert gpus(created) == [{"name": "gpu-0", "deviceName": H200}]
    assert created.warnings == [f"spec.domain.devices.gpus: added 1 of {H200}"]
    assert gpus(await kube.get(created)) == gpus(created)
    assert answered(installed) - before == JUDGED


async def test_entries_of_its_own_ask_for_what_the_device_grants(tenant: Tenant, virt_controller: Client) -> None:
    await tenant.kube.create(device(tenant.namespace, "my-gpu", count=2))
    entry = {"name": "screen", "deviceName": "nvidia.com/anything", "tag": "a"}
    machine = vmi(tenant.namespace, refers_to="my-gpu", gpus=[entry], limits={H200: "8"})

    created = await virt_controller.create(machine)

    assert gpus(created) == [{**entry, "deviceName": H200}, {"name": "gpu-0", "deviceName": H200}]
    assert created["spec"]["domain"]["resources"]["limits"] == {}


async def test_by_the_annotation_a_device_is_built_for_it(
    installed: Installed, tenant: Tenant, virt_controller: Client
) -> None:
    before = answered(installed)

    created = await virt_controller.create(vmi(tenant.namespace, orders=TWO))

    (built,) = await devices(tenant)
    assert built["metadata"]["labels"] == {"gpu.cozystack.io/template-device": "true"}
    assert built["spec"] == TWO
    assert created["metadata"]["labels"][DEVICE_REFERENCE] == built["metadata"]["name"]
    assert gpus(created) == [{"name": f"gpu-{number}", "deviceName": H200} for number in (0, 1)]
    assert created.warnings[0] == f"built GPUDevice {built['metadata']['name']}: 2 of class h200"
    # The API server does not ask about the device that the pair itself builds.
    assert answered(installed) - before == JUDGED


async def test_a_label_of_nothing_beside_the_annotation_is_replaced(tenant: Tenant, virt_controller: Client) -> None:
    created = await virt_controller.create(vmi(tenant.namespace, refers_to="lost-in-a-restore", orders=TWO))

    (built,) = await devices(tenant)
    assert created["metadata"]["labels"][DEVICE_REFERENCE] == built["metadata"]["name"] != "lost-in-a-restore"


async def test_a_label_of_the_template_device_beside_the_annotation_keeps_it(
    kube: Client, tenant: Tenant, virt_controller: Client
) -> None:
    first = await virt_controller.create(vmi(tenant.namespace, orders=TWO))
    name = first["metadata"]["labels"][DEVICE_REFERENCE]
    await kube.delete(first)

    second = await virt_controller.create(vmi(tenant.namespace, "restored", refers_to=name, orders=TWO))

    assert second["metadata"]["labels"][DEVICE_REFERENCE] == name
    assert [found["metadata"]["name"] for found in await devices(tenant)] == [name]


async def test_a_label_of_ones_own_device_beside_the_annotation_is_refused(
    tenant: Tenant, virt_controller: Client
) -> None:
    await tenant.kube.create(device(tenant.namespace, "my-gpu"))

    refusal = await refused(virt_controller.create(vmi(tenant.namespace, refers_to="my-gpu", orders=TWO)))

    said = (
        "metadata.labels[gpu.cozystack.io/device-reference]: refers to GPUDevice 'my-gpu' while the annotation "
        "gpu.cozystack.io/device-template orders another; use one of the two"
    )
    where = "metadata.labels[gpu.cozystack.io/device-reference]"
    assert refusal == (403, "Forbidden", "virtualmachineinstances.gpu.cozystack.io", said, [where])
    assert [found["metadata"]["name"] for found in await devices(tenant)] == ["my-gpu"]


async def test_a_template_device_of_another_vm_is_not_for_a_label_alone(
    tenant: Tenant, virt_controller: Client
) -> None:
    first = await virt_controller.create(vmi(tenant.namespace, orders=TWO))
    name = first["metadata"]["labels"][DEVICE_REFERENCE]

    refusal = await refused(virt_controller.create(vmi(tenant.namespace, "guest", refers_to=name)))

    assert refusal[:2] == (403, "Forbidden")
    assert refusal.said == (
        f"metadata.labels[{DEVICE_REFERENCE}]: GPUDevice '{name}' was built from another VM's template and can't be "
        "referred to by name; order a GPUDevice of your own, or use the annotation yourself"
    )


async def test_with_neither_it_is_left_alone(installed: Installed, tenant: Tenant, virt_controller: Client) -> None:
    before = answered(installed)
    machine = vmi(tenant.namespace)

    created = await virt_controller.create(machine)

    assert created["spec"] == machine["spec"]
    assert created.warnings == []
    assert answered(installed) == before


async def test_each_replica_gets_a_device_of_its_own_under_a_generated_name(
    tenant: Tenant, virt_controller: Client
) -> None:
    farm = await tenant.kube.create(replica_set(tenant.namespace, "farm", replicas=2, orders={"className": "h200"}))
    machine = vmi(tenant.namespace, "farm", generated=True, owner=farm, orders={"className": "h200"})

    created = [await virt_controller.create(machine) for _ in range(2)]

    assert all(one["metadata"]["name"].startswith("farm") for one in created)
    referred = {one["metadata"]["labels"][DEVICE_REFERENCE] for one in created}
    assert referred == {found["metadata"]["name"] for found in await devices(tenant)}
    assert len(referred) == 2
    assert all(name.startswith("farm-") for name in referred)


async def test_by_the_label_a_generated_name_is_as_good_as_any(tenant: Tenant, virt_controller: Client) -> None:
    await tenant.kube.create(device(tenant.namespace, "my-gpu"))

    created = await virt_controller.create(vmi(tenant.namespace, "farm", generated=True, refers_to="my-gpu"))

    assert gpus(created) == [{"name": "gpu-0", "deviceName": H200}]


async def test_a_dry_run_builds_nothing_and_shows_what_would_be(
    kube: Client, tenant: Tenant, virt_controller: Client
) -> None:
    tried = await virt_controller.create(vmi(tenant.namespace, orders=TWO), dry_run=True)
    assert await devices(tenant) == []
    created = await virt_controller.create(vmi(tenant.namespace, orders=TWO))

    assert tried["spec"] == created["spec"]
    assert tried["metadata"]["labels"] == created["metadata"]["labels"]
    name = created["metadata"]["labels"][DEVICE_REFERENCE]
    assert tried.warnings[0] == f"would have built GPUDevice {name}: 2 of class h200"

    await kube.delete(created)
    (before,) = await devices(tenant)
    again = await virt_controller.create(vmi(tenant.namespace, orders=TWO), dry_run=True)
    assert again.warnings[0] == f"would have taken over GPUDevice {name}: 2 of class h200"
    assert await devices(tenant) == [before]


async def test_a_dry_run_under_a_generated_name_is_let_in(tenant: Tenant, virt_controller: Client) -> None:
    tried = await virt_controller.create(vmi(tenant.namespace, "farm", generated=True, orders=TWO), dry_run=True)

    assert len(gpus(tried)) == 2
    assert await devices(tenant) == []


@pytest.mark.parametrize(
    ("machine", "code"),
    [
        ({"orders": {"className": "h100"}}, 422),
        ({"orders": {"className": "h200", "count": 3}}, 422),
        ({"refers_to": "missing"}, 422),
        ({"gpus": [{"name": "a", "deviceName": H200}]}, 403),
    ],
)
async def test_a_dry_run_is_refused_as_the_creation_is(
    tenant: Tenant, virt_controller: Client, machine: dict[str, Any], code: int
) -> None:
    tried = await refused(virt_controller.create(vmi(tenant.namespace, **machine), dry_run=True))

    assert tried.code == code
    assert tried == await refused(virt_controller.create(vmi(tenant.namespace, **machine)))
    assert await devices(tenant) == []
