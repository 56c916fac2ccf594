"""What can't be read is still there: what it has, or may have, is given to nobody, and it is told of."""

from typing import Any

import pytest
from gpuworld import H200, TENANT, World

from cluster import kinds
from cluster.kinds import Kind
from controller.unread import salvage

NOT_READ: dict[str, dict[str, Any]] = {
    "more GPUs than there may be": {"spec": {"count": 17}},
    "a count that is a text": {"spec": {"count": "two"}},
    "conditions that are no list": {"status": {"conditions": "none"}},
    "a class that is no text": {"spec": {"className": 7}},
    "a resource name that is no text": {"status": {"resourceName": 7}},
    "a node that is no text": {"status": {"nodeName": ["n1"]}},
    "a status that is no object": {"status": "Held"},
}
"""What an older CRD may have let in, by what can't be read of it."""


@pytest.fixture
def world() -> World:
    """One node of three GPUs, of which ``d`` has one; its VM runs."""
    world = World()
    world.node("n1", 3)
    world.gpu_class(maxPerNamespace=4)
    world.order()
    world.vmi(owner="vm")
    world.run()
    world.launch()
    world.run()
    return world


def store(world: World, kind: Kind, name: str, body: dict[str, Any], namespace: str = "") -> None:
    """Store what the API server would not take now, or what is right again."""
    obj = world.found(kind, name, namespace)
    for part, value in body.items():
        obj[part] = {**obj[part], **value} if isinstance(value, dict) else value
    obj["metadata"]["resourceVersion"] += "0"


@pytest.mark.parametrize("what", NOT_READ)
def test_where_a_device_that_cant_be_read_has_gpus_no_more_are_held(world: World, what: str) -> None:
    store(world, kinds.GPU_DEVICES, "d", NOT_READ[what], TENANT)
    world.order("next", namespace="tenant-b")
    world.run()

    assert world.reason("next", "tenant-b") == "NoCapacity"
    assert [line for line in world.told("Unreadable") if line.startswith("GPUDevice d: ")]

    world.node("n2", 1)
    world.run()
    node_is_known = what not in {"a node that is no text", "a status that is no object"}
    assert world.status("next", "tenant-b").get("nodeName") == ("n2" if node_is_known else None)


@pytest.mark.parametrize("what", NOT_READ)
def test_a_device_that_cant_be_read_is_left_as_it_is_and_so_are_its_record_and_its_class(
    world: World, what: str
) -> None:
    before = {record["metadata"]["name"] for record in world.api.every(kinds.WORKLOADS)}
    store(world, kinds.GPU_DEVICES, "d", NOT_READ[what], TENANT)
    spoiled = world.found(kinds.GPU_DEVICES, "d", TENANT)
    world.api.delete(kinds.GPU_DEVICES, "d", TENANT)
    world.api.delete(kinds.GPU_CLASSES, "h200")
    world.run()

    kept = world.found(kinds.GPU_DEVICES, "d", TENANT)
    assert (kept["spec"], kept["status"]) == (spoiled["spec"], spoiled["status"])
    assert {record["metadata"]["name"] for record in world.api.every(kinds.WORKLOADS)} == before == {"gpu-d"}
    assert world.exists(kinds.WORKLOAD_MONITORS, "gpu-usage")
    assert world.exists(kinds.GPU_CLASSES, "h200", "")
    assert not world.told("GPUWithoutDevice")


def test_once_it_can_be_read_again_all_goes_its_way(world: World) -> None:
    store(world, kinds.GPU_DEVICES, "d", {"spec": {"count": 17}}, TENANT)
    world.order("next")
    world.run()
    store(world, kinds.GPU_DEVICES, "d", {"spec": {"count": 1}}, TENANT)
    world.run()

    assert world.status("next")["nodeName"] == "n1"
    assert world.status()["phase"] == "InUse"


def test_an_order_that_cant_be_read_and_holds_nothing_keeps_nobody_waiting(world: World) -> None:
    world.order("odd")
    store(world, kinds.GPU_DEVICES, "odd", {"spec": {"count": 17}}, TENANT)
    world.order("next")
    world.run()

    assert world.status("next")["nodeName"] == "n1"


def test_a_device_that_cant_be_read_counts_as_all_that_its_namespace_may_have(world: World) -> None:
    world.node("n2", 4)
    store(world, kinds.GPU_DEVICES, "d", {"spec": {"count": 17}}, TENANT)
    world.order("mine")
    world.order("others", namespace="tenant-b")
    world.run()

    assert world.reason("mine") == "QuotaExceeded"
    assert world.status("others", "tenant-b")["nodeName"] == "n2"


PODS: dict[str, tuple[dict[str, Any], bool]] = {
    "an amount that is none": ({"spec": {"containers": [{"resources": {"requests": {H200: "many"}}}]}}, True),
    "half of a GPU": ({"spec": {"containers": [{"resources": {"requests": {H200: "500m"}}}]}}, True),
    "half of something else": ({"spec": {"containers": [{"resources": {"requests": {"a.io/b": "500m"}}}]}}, False),
    "containers that are no list": ({"spec": {"containers": "none"}}, True),
    "a node that is no text": ({"spec": {"nodeName": 1}}, True),
    "a spec that is no object": ({"spec": "none"}, True),
    "a label that is no text": ({"metadata": {"labels": {"kubevirt.io/migrationJobUID": 1}}}, True),
}


@pytest.mark.parametrize("what", PODS)
def test_where_a_pod_that_cant_be_read_may_have_gpus_none_are_held(world: World, what: str) -> None:
    body, may_have_gpus = PODS[what]
    world.pod("odd", "n1", gpus=1 if may_have_gpus else 0)
    store(world, kinds.PODS, "odd", body, "platform")
    world.order("next")
    world.run()

    assert world.status("next").get("nodeName") == (None if may_have_gpus else "n1")
    assert len(set(world.told("Unreadable"))) == 1

    world.api.remove(kinds.PODS, "odd", "platform")
    world.run()
    assert world.status("next")["nodeName"] == "n1"


def test_a_pod_that_cant_be_read_and_waits_for_one_node_counts_there(world: World) -> None:
    world.pod("odd", pinned="n1")
    store(world, kinds.PODS, "odd", {"metadata": {"labels": {"kubevirt.io/migrationJobUID": 1}}}, "platform")
    world.order("next")
    world.run()

    assert world.reason("next") == "NoCapacity"


def test_a_finished_pod_that_cant_be_read_has_nothing(world: World) -> None:
    world.pod("odd", "n1")
    store(world, kinds.PODS, "odd", {"spec": {"containers": "none"}, "status": {"phase": "Succeeded"}}, "platform")
    world.order("next")
    world.run()

    assert world.status("next")["nodeName"] == "n1"


@pytest.mark.parametrize(
    "body",
    [{"spec": {"containers": "none"}}, {"metadata": {"ownerReferences": "none"}}],
    ids=["its containers", "its owner"],
)
def test_while_a_pod_of_its_vm_cant_be_read_a_device_is_in_use(world: World, body: dict[str, Any]) -> None:
    store(world, kinds.PODS, "virt-launcher-vm", body, TENANT)
    world.vmi_gone()
    world.vmi("rival")
    world.api.delete(kinds.GPU_DEVICES, "d", TENANT)
    world.cordon("n1")
    before = world.status()["binding"]
    world.run()

    assert world.exists(kinds.GPU_DEVICES, "d")
    assert (world.status()["binding"], world.status()["nodeName"]) == (before, "n1")

    world.api.remove(kinds.PODS, "virt-launcher-vm", TENANT)
    world.run()
    assert not world.exists(kinds.GPU_DEVICES, "d")


def test_while_its_vmi_cant_be_read_a_device_stays_bound_to_it_and_where_it_is(world: World) -> None:
    world.api.remove(kinds.PODS, "virt-launcher-vm", TENANT)
    store(world, kinds.VMIS, "vm", {"status": {"phase": 7}}, TENANT)
    world.vmi("rival")
    world.node("n2", 2)
    world.cordon("n1")
    before = world.status()
    world.run()

    after = world.status()
    assert (after["binding"], after["nodeName"]) == (before["binding"], "n1")
    assert world.told("Unreadable") == [
        line for line in world.told("Unreadable") if "VirtualMachineInstance vm" in line
    ]


@pytest.mark.parametrize("labels", [None, "none"], ids=["a label that is read", "labels that can't be"])
def test_a_templates_device_waits_for_a_vmi_that_cant_be_read(world: World, labels: str | None) -> None:
    world.order("made", template=True)
    world.vmi("late", "made")
    store(world, kinds.VMIS, "late", {"status": {"phase": 7}}, TENANT)
    if labels:
        world.found(kinds.VMIS, "late", TENANT)["metadata"]["labels"] = labels
    world.api.pass_time(121)
    world.run()
    assert world.exists(kinds.GPU_DEVICES, "made")

    world.api.remove(kinds.VMIS, "late", TENANT)
    world.run()
    assert not world.exists(kinds.GPU_DEVICES, "made")


def test_a_migrations_reservation_stays_while_its_vmi_cant_be_read(world: World) -> None:
    world.node("n2", 2)
    world.migration()
    world.run()
    reserved = world.status()["migration"]
    store(world, kinds.VMIS, "vm", {"status": {"phase": 7}}, TENANT)
    world.run()

    assert world.status()["migration"] == reserved


NODES: dict[str, dict[str, Any]] = {
    "an amount that is no number": {"status": {"allocatable": {H200: "many"}}},
    "taints that are no list": {"spec": {"taints": "none"}},
    "labels that are no texts": {"metadata": {"labels": {"gpu": 1}}},
}


@pytest.mark.parametrize("what", NODES)
def test_on_a_node_that_cant_be_read_nothing_is_held_and_what_is_held_stays(world: World, what: str) -> None:
    world.order("unused")
    world.run()
    store(world, kinds.NODES, "n1", NODES[what])
    world.order("next")
    world.run()

    assert world.reason("next") == "NoCapacity"
    assert world.status("unused")["nodeName"] == "n1"
    assert world.status()["nodeName"] == "n1"
    assert [line for line in world.told("Unreadable") if line.startswith("Node n1: ")]

    world.api.remove(kinds.NODES, "n1")
    world.run()
    assert "nodeName" not in world.status("unused")


def test_of_a_class_that_cant_be_read_nothing_is_held_and_what_is_held_stays(world: World) -> None:
    store(world, kinds.GPU_CLASSES, "h200", {"spec": {"maxCount": 99}})
    world.order("next")
    world.run()

    assert world.reason("next") == "ClassNotReadable"
    assert "spec.maxCount" in world.found(kinds.GPU_DEVICES, "next", TENANT)["status"]["conditions"][0]["message"]
    assert world.status()["nodeName"] == "n1"


@pytest.mark.parametrize("kind", [kinds.GPU_DEVICES, kinds.PODS, kinds.VMIS, kinds.NODES, kinds.GPU_CLASSES])
@pytest.mark.parametrize("obj", [{}, {"metadata": 1, "spec": 1, "status": 1}, {"metadata": {"labels": 1, "name": 1}}])
def test_nothing_is_so_broken_that_it_is_overlooked(kind: Kind, obj: dict[str, Any]) -> None:
    found = salvage(kind, obj, "broken")

    assert found is not None
    assert found.why == "broken"
