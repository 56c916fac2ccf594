"""The virt-launcher pods of a VMI: let in once its device is held and bound, on the device's node."""

from typing import Any

import pytest
from actors import Tenant
from controlplane.client import Client, Object
from gpukinds import H200, hold
from installed import Installed
from machines import device, launcher, migration, plain_pod, vmi
from rawroads import pod_says
from refusals import NO_FIELDS, Answered, answered, refused

WEBHOOK = "pods.gpu.cozystack.io"
POLICY = "pod-raw-names.gpu.cozystack.io"


@pytest.fixture
async def order(tenant: Tenant) -> Object:
    """The tenant's device."""
    return await tenant.kube.create(device(tenant.namespace, count=2))


@pytest.fixture
async def machine(tenant: Tenant, virt_controller: Client, order: Object) -> Object:
    """The tenant's VMI, which refers to it."""
    return await virt_controller.create(vmi(tenant.namespace, refers_to=order["metadata"]["name"]))


def pinned_to(pod: Object) -> list[Any]:
    affinity: Any = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    return [term["matchFields"] for term in terms]


def on(node: str) -> list[Any]:
    return [[{"key": "metadata.name", "operator": "In", "values": [node]}]]


async def test_before_its_device_is_held_it_waits(virt_controller: Client, machine: Object) -> None:
    refusal = await refused(virt_controller.create(launcher(machine)))

    said = "GPUDevice 'my-gpu' is not held yet: it waits for a free GPU; virt-controller tries again by itself"
    assert refusal == (403, "Forbidden", WEBHOOK, said, [])


async def test_what_the_device_waits_for_is_told(
    kube: Client, virt_controller: Client, order: Object, machine: Object
) -> None:
    condition = {
        "type": "Held",
        "status": "False",
        "reason": "NoCapacity",
        "message": "all 8 GPUs of the class are held",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    await kube.patch(order, {"status": {"phase": "Pending", "conditions": [condition]}}, subresource="status")

    refusal = await refused(virt_controller.create(launcher(machine)))

    assert "waits for a free GPU (NoCapacity: all 8 GPUs of the class are held)" in refusal.said


async def test_while_its_device_is_bound_to_nobody_it_waits(
    kube: Client, virt_controller: Client, order: Object, machine: Object
) -> None:
    await hold(kube, order, None)

    refusal = await refused(virt_controller.create(launcher(machine)))

    said = "GPUDevice 'my-gpu' is held, but not bound to this VMI yet; virt-controller tries again by itself"
    assert refusal == (403, "Forbidden", WEBHOOK, said, [])


async def test_held_and_bound_it_runs_on_the_devices_node(
    kube: Client, installed: Installed, virt_controller: Client, order: Object, machine: Object
) -> None:
    await hold(kube, order, machine, node="node-a")
    before = answered(installed)

    pod = await virt_controller.create(launcher(machine))

    assert pod["spec"]["containers"][0]["resources"]["limits"][H200] == "2"
    assert pinned_to(pod) == on("node-a")
    assert answered(installed) - before == {
        Answered("mutate", "Pod", "CREATE", "patched"): 1,
        Answered("validate", "Pod", "CREATE", "admitted"): 1,
    }


async def test_a_second_one_of_the_same_vmi_is_refused(
    kube: Client, virt_controller: Client, order: Object, machine: Object
) -> None:
    await hold(kube, order, machine)
    first = await virt_controller.create(launcher(machine))

    refusal = await refused(virt_controller.create(launcher(machine)))

    said = (
        f"pod '{first['metadata']['name']}' of the same VMI has the GPUs; "
        "wait until it is gone; virt-controller tries again by itself"
    )
    assert refusal == (409, "Conflict", WEBHOOK, said, [])


async def test_one_whose_device_is_bound_to_another_vmi_is_refused(
    kube: Client, tenant: Tenant, virt_controller: Client, order: Object, machine: Object
) -> None:
    """Two VMIs may refer to a device that neither is bound to: the one that is not chosen waits."""
    other = await virt_controller.create(vmi(tenant.namespace, "guest", refers_to="my-gpu"))
    await hold(kube, order, machine)

    refusal = await refused(virt_controller.create(launcher(other)))

    said = (
        "GPUDevice 'my-gpu' is bound to VirtualMachineInstance 'desk' of another uid; "
        "stop that VM first, or order another device"
    )
    assert refusal == (409, "Conflict", WEBHOOK, said, [])


async def test_one_with_more_gpus_than_granted_is_refused(
    kube: Client, virt_controller: Client, order: Object, machine: Object
) -> None:
    await hold(kube, order, machine)
    pod = launcher(machine)
    pod["spec"]["containers"][0]["resources"]["limits"][H200] = "3"

    refusal = await refused(virt_controller.create(pod))

    assert refusal[:3] == (403, "Forbidden", WEBHOOK)
    assert f"the pod asks for 3 of '{H200}'" in refusal.said
    assert refusal.said.endswith("the device grants 2; restart the VM, so that its GPU entries are written anew")


async def test_a_tenants_own_pod_is_refused(kube: Client, tenant: Tenant, order: Object, machine: Object) -> None:
    """As good a copy of a launcher as a tenant can make, while the device is held and bound."""
    await hold(kube, order, machine)

    refusal = await refused(tenant.kube.create(launcher(machine)))

    assert refusal == (403, "Forbidden", POLICY, pod_says("spec.containers[compute].resources.limits"), NO_FIELDS)


async def test_virt_controllers_pod_without_a_vmi_is_refused(tenant: Tenant, virt_controller: Client) -> None:
    refusal = await refused(virt_controller.create(plain_pod(tenant.namespace, limits={H200: "1"})))

    assert refusal == (403, "Forbidden", POLICY, pod_says("spec.containers[compute].resources.limits"), NO_FIELDS)


async def test_a_migrations_target_runs_on_the_node_reserved_for_it(
    kube: Client, virt_controller: Client, order: Object, machine: Object
) -> None:
    await hold(kube, order, machine, node="node-a")
    await virt_controller.create(launcher(machine))
    move = await virt_controller.create(migration(machine))
    uid = move["metadata"]["uid"]
    target = launcher(machine, migration=uid)

    early = await refused(virt_controller.create(target))
    await kube.patch(order, {"status": {"migration": {"uid": uid, "nodeName": "node-b"}}}, subresource="status")
    pod = await virt_controller.create(target)

    said = (
        "metadata.labels[kubevirt.io/migrationJobUID]: no node is reserved yet for GPUDevice 'my-gpu' in migration "
        "'move'; free a GPU on another node; virt-controller tries again by itself"
    )
    where = "metadata.labels[kubevirt.io/migrationJobUID]"
    assert early == (403, "Forbidden", WEBHOOK, said, [where])
    assert pinned_to(pod) == on("node-b")


async def test_a_migration_that_does_not_exist_gets_no_second_pod(
    kube: Client, virt_controller: Client, order: Object, machine: Object
) -> None:
    await hold(kube, order, machine)
    await virt_controller.create(launcher(machine))

    refusal = await refused(virt_controller.create(launcher(machine, migration="11111111-2222-3333-4444-555555555555")))

    assert refusal[:3] == (403, "Forbidden", WEBHOOK)
    assert "names a migration that does not exist in this namespace" in refusal.said
