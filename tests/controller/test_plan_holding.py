"""Which orders are held, where, and why not."""

from typing import Any

import pytest
from gpuworld import H200, TENANT, World

from cluster import kinds

GPU_TAINT = {"key": "gpu", "effect": "NoSchedule"}


def offered(**config: Any) -> World:
    world = World(**config)
    world.gpu_class()
    return world


def zone_affinity(zone: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
    required = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def test_an_order_is_held_where_there_is_room() -> None:
    world = offered()
    world.node("n1", 2)
    world.order(count=2)

    world.run()

    status = world.status()
    assert (status["phase"], status["nodeName"], status["resourceName"]) == ("Held", "n1", H200)
    assert status["heldAt"] == world.api.stamp
    assert world.reason() == "Held"
    assert world.told("Held") == [f"GPUDevice d: 2 of {H200} on node n1 are held"]


def test_nothing_is_held_before_both_finalizers_are_stored_and_the_name_is_published() -> None:
    world = offered()
    world.node("n1")
    world.order()
    needed = {(kinds.GPU_CLASSES, "h200"), (kinds.GPU_DEVICES, "d"), (kinds.CONFIG_MAPS, "gpu-settings")}

    while needed:
        writes = world.plan().writes
        assert writes
        for write in world.applying(writes):
            assert "nodeName" not in world.status()
            needed.discard((write.kind, write.name))
    world.apply(world.plan().writes)

    assert world.status()["nodeName"] == "n1"


@pytest.mark.parametrize("missing", ["device", "class", "name"])
def test_an_order_waits_for_each_of_the_three(missing: str) -> None:
    world = offered()
    world.node("n1")
    world.order()
    for _ in ("finalizers, and the name on the Lease", "the name in the settings"):
        world.apply(world.plan().writes)
    match missing:
        case "device":
            world.api.patch(kinds.GPU_DEVICES, "d", {"metadata": {"finalizers": None}}, TENANT)
        case "class":
            world.api.patch(kinds.GPU_CLASSES, "h200", {"metadata": {"finalizers": None}})
        case _:
            world.api.patch(kinds.CONFIG_MAPS, "gpu-settings", {"data": {"resourceNames": "a.b/c"}}, "gpu-system")

    world.apply(world.plan().writes)

    assert "nodeName" not in world.status()
    world.run()
    assert world.status()["nodeName"] == "n1"


def test_the_oldest_order_is_held_first() -> None:
    world = offered()
    world.order("young")
    world.api.pass_time(-10)
    world.order("old")
    world.api.pass_time(20)
    world.run()
    world.node("n1", 1)

    world.run()

    assert (world.status("old").get("nodeName"), world.status("young").get("nodeName")) == ("n1", None)


def test_a_small_order_may_pass_a_large_one_that_has_no_room() -> None:
    world = offered()
    world.node("n1", 1)
    world.order("large", 2)
    world.api.pass_time(1)
    world.order("small", 1)

    world.run()

    assert (world.reason("large"), world.reason("small")) == ("NoCapacity", "Held")


def test_the_node_with_the_least_room_that_is_enough_is_taken() -> None:
    world = offered()
    for name, gpus in (("n1", 8), ("n2", 2), ("n3", 1), ("n4", 4)):
        world.node(name, gpus)
    for number in range(5):
        world.order(f"d{number}", 2)
        world.api.pass_time(1)

    world.run()

    assert [world.status(f"d{number}")["nodeName"] for number in range(5)] == ["n2", "n4", "n4", "n1", "n1"]


@pytest.mark.parametrize("why", ["cordoned", "not ready", "another class's", "too small", "of another resource"])
def test_a_node_that_can_not_be_used_is_passed_over(why: str) -> None:
    world = offered()
    match why:
        case "cordoned":
            world.node("n1")
            world.cordon("n1")
        case "not ready":
            world.node("n1")
            world.ready("n1", is_ready=False)
        case "another class's":
            world.node("n1", gpu="l40s")
        case "too small":
            world.node("n1", 1)
        case _:
            world.node("n1", resource="nvidia.com/L40S")
    world.order(count=2)

    world.run()

    assert world.reason() == "NoCapacity"
    assert world.told("Waiting")


@pytest.mark.parametrize(
    ("spec", "node"),
    [
        ({"nodeSelector": {"zone": "east"}}, "east"),
        ({"nodeSelector": {"zone": "west"}}, "west"),
        ({"affinity": zone_affinity("west")}, "west"),
        ({"tolerations": [{"key": "gpu", "operator": "Exists"}]}, "tainted"),
        ({}, "east"),
        ({"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "disk"}}]}, "west"),
        ({"volumes": [{"name": "a", "dataVolume": {"name": "disk"}}]}, "west"),
        ({"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "unbound"}}]}, "east"),
        ({"nodeSelector": {"zone": "moon"}}, None),
        ({"nodeSelector": {"zone": "east"}, "affinity": zone_affinity("west")}, None),
    ],
)
def test_it_is_held_where_the_vmi_that_refers_to_it_can_run(spec: dict[str, Any], node: str | None) -> None:
    world = offered()
    world.node("tainted", 1, taints=[GPU_TAINT])
    world.node("east", 2, zone="east")
    world.node("west", 3, zone="west")
    terms = zone_affinity("west")["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    world.api.create(kinds.VOLUMES, {"metadata": {"name": "pv"}, "spec": {"nodeAffinity": {"required": terms}}})
    claim = {"metadata": {"namespace": TENANT, "name": "disk"}, "spec": {"volumeName": "pv"}}
    world.api.create(kinds.CLAIMS, claim)
    world.api.create(kinds.CLAIMS, {"metadata": {"namespace": TENANT, "name": "unbound"}, "spec": {}})
    world.order()
    world.vmi(**spec)

    world.run()

    assert world.status().get("nodeName") == node
    assert world.reason() == ("Held" if node else "NoCapacity")


def test_without_a_vmi_taints_do_not_matter() -> None:
    world = offered()
    world.node("n1", taints=[GPU_TAINT])
    world.order()

    world.run()

    assert world.reason() == "Held"


def test_that_no_node_suits_the_vmi_is_said() -> None:
    world = offered()
    world.node("n1", zone="east")
    world.order()
    world.vmi(nodeSelector={"zone": "moon"})

    world.run()

    message = world.status()["conditions"][0]["message"]
    assert "none of those with 1 free suits VirtualMachineInstance vm" in message


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (lambda world: world.order(of="unknown"), "ClassNotFound"),
        (lambda world: world.order(count=9), "CountAboveMaximum"),
        (lambda world: (world.gpu_class("few", maxPerNamespace=1), world.order(count=2, of="few")), "QuotaExceeded"),
        (lambda world: (world.gpu_class("none", gpu="none"), world.order(of="none")), "NoCapacity"),
    ],
)
def test_what_is_not_held_says_why(prepare: Any, reason: str) -> None:
    world = offered()
    world.node("n1")
    prepare(world)

    world.run()

    assert (world.status()["phase"], world.reason()) == ("Pending", reason)
    assert [told for told in world.told("Waiting") if reason in told]


def test_an_order_of_a_class_that_is_being_deleted_is_never_held() -> None:
    world = offered()
    world.node("n1", 1)
    world.order("first")
    world.run()
    world.order("second")
    world.run()
    world.api.delete(kinds.GPU_CLASSES, "h200")
    world.run()
    world.node("n2", 8)

    world.run()

    assert world.reason("second") == "ClassDeleting"


def test_a_namespace_holds_no_more_than_the_class_allows() -> None:
    world = offered()
    world.gpu_class("few", maxPerNamespace=3)
    world.namespace("tenant-b")
    world.node("n1", 16)
    for number in range(3):
        world.order(f"d{number}", 2, of="few")
        world.api.pass_time(1)
    world.order("other", 2, of="few", namespace="tenant-b")
    world.order("other-class", 2)

    world.run()

    assert [world.reason(f"d{number}") for number in range(3)] == ["Held", "QuotaExceeded", "QuotaExceeded"]
    assert (world.reason("other", "tenant-b"), world.reason("other-class")) == ("Held", "Held")
    world.api.delete(kinds.GPU_DEVICES, "d0", TENANT)
    world.run()
    assert (world.reason("d1"), world.reason("d2")) == ("Held", "QuotaExceeded")


def test_a_template_device_is_held_only_once_its_vmi_exists() -> None:
    world = offered()
    world.node("n1")
    world.order(template=True)

    world.run()

    assert "nodeName" not in world.status()
    assert not world.reason()
    world.vmi()
    world.run()
    assert (world.reason(), world.status()["phase"]) == ("Held", "InUse")


def test_a_template_device_that_waits_longer_for_its_vmi_says_so() -> None:
    world = offered()
    world.node("n1")
    world.order(template=True)
    world.run()
    assert world.last.again is not None
    world.api.pass_time(5)

    world.run()

    assert world.reason() == "NoVirtualMachine"


def test_a_held_device_is_not_taken_back_for_an_older_order() -> None:
    world = offered()
    world.node("n1", 2)
    world.order("young")
    world.run()
    world.api.pass_time(-100)
    world.order("old", 2)
    world.api.pass_time(200)

    world.run()

    assert (world.reason("young"), world.reason("old")) == ("Held", "NoCapacity")


def test_how_long_an_order_waited_is_told_with_the_hold() -> None:
    world = offered()
    world.order()
    world.run()
    world.api.pass_time(30)
    world.node("n1")

    world.run()

    assert [write.waited for write in world.made if write.waited is not None] == [30.0]


def test_a_waiting_order_is_written_once_and_not_with_every_change() -> None:
    world = offered()
    world.node("n1", 1)
    world.order("first")
    world.order("second")
    world.run()
    before = len(world.made)
    world.api.pass_time(600)
    world.pod("other", "n1")

    world.run()

    assert len(world.made) == before


def test_one_that_lost_its_gpus_waited_since_then() -> None:
    world = offered()
    world.node("n1")
    world.order()
    world.run()
    world.api.pass_time(3600)
    world.cordon("n1")
    world.run()
    world.api.pass_time(30)
    world.cordon("n1", cordoned=False)

    world.run()

    assert [write.waited for write in world.made if write.waited is not None] == [0.0, 30.0]


def test_a_vmi_whose_placement_can_not_be_read_is_there_all_the_same() -> None:
    world = offered()
    world.node("n1")
    world.order()
    world.vmi(nodeSelector="east")

    world.run()

    assert world.status()["phase"] == "InUse"
