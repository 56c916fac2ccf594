"""VMs: bound to their device, their launcher refused before and let in after, kept over a stop."""

import json
from typing import Any

import pytest
from controlled import TEMPLATE_KEPT, TEMPLATE_UNCLAIMED
from controlplane.client import Client, Object, ref
from gpukinds import API_VERSION
from machines import DEVICE_REFERENCE, DEVICE_TEMPLATE, launcher, replica_set, vm, vmi
from pooled import Pool, pinned
from refusals import refused
from waiting import eventually, exists, gone


def uid(obj: Object) -> str:
    return str(obj["metadata"]["uid"])


def one_of(pool: Pool) -> dict[str, Any]:
    """What a device-template annotation orders."""
    return {"className": pool.name, "count": 1}


async def test_by_reference_the_launcher_is_refused_before_the_hold_and_let_in_after(kube: Client, pool: Pool) -> None:
    await pool.order("others")
    await pool.becomes("others", phase="Held")
    await pool.order()
    machine = await pool.machine(refers_to="my-gpu")
    await pool.becomes(reason="NoCapacity")

    refusal = await refused(pool.virt_controller.create(launcher(machine)))
    assert "NoCapacity" in refusal.said

    await pool.tenant.kube.delete(pool.device("others"))
    status = await pool.becomes(phase="InUse", vm=uid(machine))

    async def touched() -> Object:
        found = await kube.get(machine)
        assert found["metadata"]["resourceVersion"] != machine["metadata"]["resourceVersion"]
        return found

    await eventually(touched, seconds=5)
    pod = await pool.runs(machine)
    assert pinned(pod) == status["nodeName"]


@pytest.mark.parametrize("of_a_set", [False, True], ids=["of a VM", "of a replica set"])
async def test_by_template_a_device_is_built_held_and_bound(pool: Pool, *, of_a_set: bool) -> None:
    """An annotation of an instancetype reaches the VMI as one of a VM's template does."""
    make = replica_set if of_a_set else vm
    owner = await pool.tenant.kube.create(make(pool.namespace, orders=one_of(pool)))
    machine = await pool.machine("farm", owner=owner, orders=one_of(pool), generated=of_a_set)
    name = machine["metadata"]["labels"][DEVICE_REFERENCE]

    await pool.becomes(name, phase="InUse", vm=uid(machine))

    pod = await pool.runs(machine)
    assert pinned(pod) == pool.node_name("a")


async def test_over_a_short_stop_a_template_keeps_its_gpu_and_over_a_long_one_it_goes(kube: Client, pool: Pool) -> None:
    owner = await pool.tenant.kube.create(vm(pool.namespace, orders=one_of(pool)))
    first = await pool.machine(owner=owner, orders=one_of(pool))
    name = first["metadata"]["labels"][DEVICE_REFERENCE]
    held = await pool.becomes(name, phase="InUse", vm=uid(first))
    rival = await pool.machine("rival", orders=one_of(pool))
    waiting = rival["metadata"]["labels"][DEVICE_REFERENCE]
    await pool.becomes(waiting, reason="NoCapacity")

    await pool.virt_controller.delete(first)
    await gone(kube, first)
    second = await pool.machine(owner=owner, orders=one_of(pool))

    assert second["metadata"]["labels"][DEVICE_REFERENCE] == name
    kept = await pool.becomes(name, phase="InUse", vm=uid(second))
    assert (kept["nodeName"], kept["heldAt"]) == (held["nodeName"], held["heldAt"])
    await pool.virt_controller.delete(second)
    await gone(kube, pool.device(name), seconds=TEMPLATE_KEPT + 5)
    await pool.becomes(waiting, phase="InUse", vm=uid(rival))


async def test_over_a_stop_a_device_of_ones_own_stays_and_binds_the_next_vmi(kube: Client, pool: Pool) -> None:
    await pool.order()
    owner = await pool.tenant.kube.create(vm(pool.namespace, refers_to="my-gpu"))
    first = await pool.machine(owner=owner, refers_to="my-gpu")
    held = await pool.becomes(phase="InUse", vm=uid(first))
    pod = await pool.runs(first)

    await pool.virt_controller.delete(first, propagation="Background")
    await gone(kube, first)
    # The guest may run on until its pod is gone.
    await pool.becomes(phase="InUse", vm=uid(first))
    await kube.delete(pod, grace=0)
    await pool.becomes(phase="Held")
    second = await eventually(lambda: pool.machine(owner=owner, refers_to="my-gpu"))

    kept = await pool.becomes(phase="InUse", vm=uid(second))
    assert (kept["nodeName"], kept["heldAt"]) == (held["nodeName"], held["heldAt"])


async def test_an_instancetypes_annotation_orders_a_device(pool: Pool) -> None:
    """What stands in its spec.annotations, virt-controller gives to the VMI, and the VM itself says nothing of it."""
    annotations = {DEVICE_TEMPLATE: json.dumps(one_of(pool))}
    gives = {"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}, "annotations": annotations}
    kind = ref("instancetype.kubevirt.io/v1beta1", "VirtualMachineInstancetype", "gpu", pool.namespace)
    await pool.tenant.kube.create({**kind, "spec": gives})
    owner = vm(pool.namespace)
    owner["spec"]["instancetype"] = {"kind": kind["kind"], "name": "gpu"}
    owner = await pool.tenant.kube.create(owner)
    assert DEVICE_TEMPLATE not in json.dumps(owner["spec"])

    made = vmi(pool.namespace, owner=owner)
    made["metadata"]["annotations"] = (await pool.virt_controller.get(kind))["spec"]["annotations"]
    machine = await pool.virt_controller.create(made)

    await pool.becomes(machine["metadata"]["labels"][DEVICE_REFERENCE], phase="InUse", vm=uid(machine))
    await pool.runs(machine)


async def test_a_template_device_whose_vmi_never_came_takes_no_gpu_and_goes(kube: Client, pool: Pool) -> None:
    unstorable = vmi(pool.namespace, orders=one_of(pool))
    unstorable["spec"]["hostname"] = 5
    refusal = await refused(pool.virt_controller.create(unstorable))
    assert (refusal.code, refusal.by) == (422, "")
    [made] = await kube.list(API_VERSION, "GPUDevice", pool.namespace)

    await pool.order()
    await pool.becomes(phase="Held")

    assert await exists(kube, made)
    await gone(kube, made, seconds=TEMPLATE_UNCLAIMED + 5)
    assert await exists(kube, pool.device())


async def test_a_dry_run_and_a_refused_vmi_hold_nothing(kube: Client, pool: Pool) -> None:
    await pool.virt_controller.create(vmi(pool.namespace, orders=one_of(pool)), dry_run=True)
    await refused(pool.machine(orders={"className": pool.name, "count": 99}))

    assert await kube.list(API_VERSION, "GPUDevice", pool.namespace) == []
    await pool.order()
    await pool.becomes(phase="Held")
    assert await exists(kube, pool.device())
