"""Held devices whose node goes, does not suit their VM or is not their class's any more; launchers that can't start."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from actors import make_node
from controlplane.client import Answer, Client, Object, ref
from gpukinds import API_VERSION
from machines import launcher, vm, vmi
from pooled import POOL, Pool, pinned
from waiting import eventually, exists, gone

ZONE: Final = "topology.kubernetes.io/zone"
PATIENCE: Final = 60.0
"""Seconds that a launcher may be unschedulable."""


def node(name: str) -> Object:
    return ref("v1", "Node", name)


async def ready(kube: Client, name: str, status: str) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "Ready", "status": status, "reason": "Kubelet", "message": ""}
    conditions = [{**condition, "lastHeartbeatTime": now, "lastTransitionTime": now}]
    await kube.patch(node(name), {"status": {"conditions": conditions}}, subresource="status")


async def test_an_unused_device_leaves_a_node_that_is_not_ready_and_comes_back_to_one_that_returns(
    kube: Client, pool: Pool
) -> None:
    first, second = pool.node_name("a"), await pool.node("b")
    await pool.order()
    await pool.becomes(phase="Held", nodeName=first)

    await ready(kube, first, "Unknown")
    await pool.becomes(phase="Held", nodeName=second)
    await kube.delete(node(second))
    await pool.becomes(phase="Pending", reason="NoCapacity", nodeName=None)
    await pool.node("b")
    await pool.becomes(phase="Held", nodeName=second)
    await kube.delete(node(second))
    await pool.becomes(phase="Pending", nodeName=None)
    await ready(kube, first, "True")
    await pool.becomes(phase="Held", nodeName=first)


async def test_a_device_whose_vm_runs_stays_on_a_node_that_is_deleted_and_returns(kube: Client, pool: Pool) -> None:
    await pool.order()
    machine = await pool.machine(refers_to="my-gpu")
    held = await pool.becomes(phase="InUse")
    await pool.runs(machine)
    await pool.order("another")
    await pool.becomes("another", reason="NoCapacity")

    await kube.delete(node(held["nodeName"]))
    await pool.node("b")
    await pool.becomes("another", phase="Held", nodeName=pool.node_name("b"))
    await pool.node("a")
    await pool.order("next")

    await pool.becomes("next", reason="NoCapacity")
    await pool.becomes(phase="InUse", nodeName=held["nodeName"], binding=held["binding"])


async def test_a_vm_of_a_drained_node_waits_and_gets_the_gpu_that_is_freed_later(kube: Client, pool: Pool) -> None:
    await pool.order()
    owner = await pool.tenant.kube.create(vm(pool.namespace, refers_to="my-gpu"))
    first = await pool.machine(owner=owner, refers_to="my-gpu")
    drained = (await pool.becomes(phase="InUse"))["nodeName"]
    pod = await pool.runs(first)
    other = await pool.node("b")
    await pool.order("others")
    await pool.becomes("others", phase="Held", nodeName=other)

    await kube.patch(node(drained), {"spec": {"unschedulable": True}})
    eviction = {**ref("policy/v1", "Eviction", pod["metadata"]["name"], pool.namespace), "deleteOptions": {}}
    await kube.post(pod, "eviction", eviction)
    await kube.delete(pod, grace=0)
    await pool.virt_controller.delete(first)
    await gone(kube, first)
    second = await eventually(lambda: pool.machine(owner=owner, refers_to="my-gpu"))
    await pool.becomes(phase="Pending", reason="NoCapacity", nodeName=None)
    await pool.order("younger")
    await pool.becomes("younger", reason="NoCapacity")

    await pool.tenant.kube.delete(pool.device("others"))

    await pool.becomes(phase="InUse", nodeName=other, vm=second["metadata"]["uid"])
    assert pinned(await pool.runs(second)) == other
    await pool.becomes("younger", reason="NoCapacity")


def needs_label(zone: str) -> dict[str, Any]:
    """A required node affinity."""
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


async def volume_in(pool: Pool, zone: str) -> dict[str, Any]:
    """A volume that only one zone can reach, and what a VMI says that has it."""
    size, name = {"storage": "1Gi"}, f"disk-{pool.name}"
    modes = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local"}
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    reach = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}
    source = {"local": {"path": "/disk"}, "capacity": size, **modes, **reach}
    claim = {"volumeName": name, "resources": {"requests": size}, **modes}
    await pool.kube.create({**ref("v1", "PersistentVolume", name), "spec": source})
    await pool.tenant.kube.create({**ref("v1", "PersistentVolumeClaim", "disk", pool.namespace), "spec": claim})
    return {"volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}]}


async def test_a_device_moves_to_where_the_vm_that_refers_to_it_can_run(kube: Client, pool: Pool) -> None:
    tolerates = {"tolerations": [{"key": "maintenance", "operator": "Exists"}]}
    held_on = await pool.node("first", gpus=6)
    await kube.patch(node(pool.node_name("a")), {"spec": {"unschedulable": True}})
    nodes = {name: pool.node_name(name) for name in ("selected", "affine", "reached")}
    wishes: dict[str, tuple[dict[str, Any], str | None]] = {
        "selector": ({"nodeSelector": {ZONE: "selected"}, **tolerates}, nodes["selected"]),
        "affinity": ({**needs_label("affine"), **tolerates}, nodes["affine"]),
        "volume": ({**await volume_in(pool, "reached"), **tolerates}, nodes["reached"]),
        "intolerant": ({"nodeSelector": {POOL: pool.name}}, None),
        "tolerant": (tolerates, held_on),
        "nowhere": ({"nodeSelector": {ZONE: "nowhere"}}, ""),
    }
    for name in wishes:
        await pool.order(name)
    await asyncio.gather(*(pool.becomes(name, phase="Held", nodeName=held_on) for name in wishes))
    taints = [{"key": "maintenance", "effect": "NoSchedule"}]
    await kube.patch(node(held_on), {"spec": {"taints": taints}})
    for zone, name in nodes.items():
        labels = {POOL: pool.name, ZONE: zone}
        await make_node(kube, name, allocatable={pool.resource: "6"}, labels=labels)

    async def starts(name: str, wish: Mapping[str, Any], where: str | None) -> None:
        made = vmi(pool.namespace, name, refers_to=name)
        made["spec"] |= wish
        machine = await pool.virt_controller.create(made)
        if where == "":
            status = await pool.becomes(name, phase="Pending", reason="NoCapacity", nodeName=None)
            assert f"suits VirtualMachineInstance {name}" in status["conditions"][0]["message"]
            return
        expected: dict[str, Any] = {"nodeName": where} if where else {}
        vm_uid = machine["metadata"]["uid"]

        async def moved() -> str:
            status = await pool.becomes(name, phase="InUse", vm=vm_uid, **expected)
            assert where or status["nodeName"] != held_on
            return str(status["nodeName"])

        at = await eventually(moved)
        assert pinned(await pool.runs(machine)) == at

    await asyncio.gather(*(starts(name, *wish) for name, wish in wishes.items()))


async def unschedulable(pool: Pool, machine: Object, *, seconds: float) -> Answer:
    """virt-controller makes the launcher, and the scheduler has found no room on its node for so long."""
    pod = await eventually(lambda: pool.virt_controller.create(launcher(machine)))
    since = (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    why = {"reason": "Unschedulable", "message": "0/1 nodes are available: 1 Insufficient memory."}
    condition = {"type": "PodScheduled", "status": "False", "lastTransitionTime": since, **why}
    await pool.kube.patch(pod, {"status": {"conditions": [condition]}}, subresource="status")
    return pod


async def test_a_launcher_that_is_unschedulable_for_a_minute_moves_with_its_device_where_it_is_made_again(
    kube: Client, pool: Pool
) -> None:
    crowded = await pool.node("crowded", gpus=2)
    await kube.patch(node(pool.node_name("a")), {"spec": {"unschedulable": True}})
    machines: dict[str, Answer] = {}
    for name, strategy in (("again", "Always"), ("once", "Manual")):
        await pool.order(name)
        owner = vm(pool.namespace, name, refers_to=name)
        owner["spec"]["runStrategy"] = strategy
        owner = await pool.tenant.kube.create(owner)
        machines[name] = await pool.machine(name, owner=owner, refers_to=name)
        await pool.becomes(name, phase="InUse", nodeName=crowded)
    roomy = await pool.node("roomy", gpus=2)

    pods = {name: await unschedulable(pool, machine, seconds=PATIENCE - 2) for name, machine in machines.items()}
    # Something happens, so that there is a plan that knows of it.
    await kube.patch(node(crowded), {"metadata": {"labels": {"something": "else"}}})
    await pool.order("meanwhile")
    await pool.becomes("meanwhile", phase="Held", nodeName=roomy)
    assert await exists(kube, pods["again"])

    await gone(kube, pods["again"], seconds=10)
    await pool.becomes("again", phase="InUse", nodeName=roomy)
    assert pinned(await pool.runs(machines["again"])) == roomy

    async def told() -> str:
        for event in await kube.list("events.k8s.io/v1", "Event", pool.namespace):
            if (event["regarding"]["name"], event["reason"]) == ("once", "LauncherWaits"):
                return str(event["note"])
        return ""

    await pool.tenant.kube.delete(pool.device("meanwhile"))
    assert "restart the VM" in await eventually(told)
    assert await exists(kube, pods["once"])
    await pool.becomes("once", phase="InUse", nodeName=crowded)


async def test_a_class_that_is_sold_elsewhere_takes_its_unused_devices_along(kube: Client, pool: Pool) -> None:
    """To other nodes, and then by another resource name. Where a VM runs, its device stays, under its old name."""
    offer = ref(API_VERSION, "GPUClass", pool.name)
    first = await pool.node("first", gpus=2)
    await kube.patch(node(pool.node_name("a")), {"spec": {"unschedulable": True}})
    await pool.order("used")
    machine = await pool.machine(refers_to="used")
    used = await pool.becomes("used", phase="InUse", nodeName=first)
    await pool.runs(machine)
    await pool.order("unused")
    await pool.becomes("unused", phase="Held", nodeName=first)
    renamed, elsewhere = f"{pool.resource}-new", {POOL: f"{pool.name}-elsewhere"}

    await kube.patch(offer, {"spec": {"source": {"devicePlugin": {"nodeSelector": elsewhere}}}})
    await pool.becomes("unused", phase="Pending", reason="NoCapacity")
    second = pool.node_name("second")
    await make_node(kube, second, allocatable={pool.resource: "1"}, labels=elsewhere)
    await pool.becomes("unused", phase="Held", nodeName=second, resourceName=pool.resource)

    await kube.patch(offer, {"spec": {"source": {"devicePlugin": {"resourceName": renamed}}}})
    await pool.becomes("unused", phase="Pending", reason="NoCapacity")
    amounts = {pool.resource: "1", renamed: "1"}
    await kube.patch(node(second), {"status": {"allocatable": amounts, "capacity": amounts}}, subresource="status")
    await pool.becomes("unused", phase="Held", nodeName=second, resourceName=renamed)

    assert {**await pool.status("used"), "conditions": None} == {**used, "conditions": None}
