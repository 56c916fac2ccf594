"""Which VMI a held device is for, and that it is told."""

import pytest
from gpuworld import TENANT, World

from cluster import kinds


@pytest.fixture
def world() -> World:
    world = World()
    world.gpu_class()
    world.node("n1")
    world.order()
    world.run()
    return world


def bound(world: World) -> str:
    return str(world.status().get("binding", {}).get("name"))


def told(world: World, name: str = "vm") -> str:
    annotations = world.found(kinds.VMIS, name, TENANT)["metadata"].get("annotations") or {}
    return str(annotations.get("gpu.cozystack.io/device-held", ""))


def test_a_held_device_is_bound_to_the_vmi_that_refers_to_it(world: World) -> None:
    vmi = world.vmi()

    world.run()

    assert world.status()["binding"] == {"name": "vm", "uid": vmi["metadata"]["uid"]}
    assert world.status()["phase"] == "InUse"
    assert len(world.told("Bound")) == 2


def test_the_vmi_is_touched_when_its_device_is_held_and_bound(world: World) -> None:
    world.vmi()

    world.run()

    assert told(world) == f"n1 {world.status()['heldAt']}"


def test_a_vmi_with_a_pod_is_not_touched(world: World) -> None:
    vmi = world.vmi()
    world.pod("p", "n1", vmi=vmi)

    world.run()

    assert bound(world) == "vm"
    assert told(world)  # touched together with the binding, before its pod is known to be its
    world.api.patch(kinds.VMIS, "vm", {"metadata": {"annotations": None}}, TENANT)
    world.run()
    assert not told(world)


def test_nothing_is_bound_before_it_is_held() -> None:
    world = World()
    world.gpu_class()
    world.order()
    world.vmi()

    world.run()

    assert "binding" not in world.status()
    assert not told(world)


def test_the_oldest_vmi_goes_first_and_the_other_is_told_which_has_it(world: World) -> None:
    world.vmi("young")
    world.api.pass_time(-10)
    world.vmi("old")
    world.api.pass_time(20)

    world.run()

    assert bound(world) == "old"
    assert "in use by VirtualMachineInstance old" in world.told("DeviceInUse")[0]
    assert world.told("DeviceInUse")[0].startswith("VirtualMachineInstance young")


def test_it_is_never_bound_to_another_while_the_vmi_or_a_pod_of_it_is_there(world: World) -> None:
    world.vmi()
    world.run()
    world.launch()
    world.vmi("other")
    world.run()
    assert bound(world) == "vm"

    world.vmi_gone()
    world.run()
    assert bound(world) == "vm"
    world.api.remove(kinds.PODS, "virt-launcher-vm", TENANT)
    world.run()

    assert bound(world) == "other"


@pytest.mark.parametrize("restarted", [False, True])
def test_a_restarted_vm_goes_before_an_older_vmi(world: World, *, restarted: bool) -> None:
    world.vmi(owner="a-vm")
    world.run()
    world.vmi("older", owner="another")
    world.api.pass_time(5)
    world.vmi_gone()
    world.vmi(owner="a-vm")
    if restarted:
        world.restart()

    world.run()

    assert bound(world) == "vm"


def test_a_vmi_of_the_same_replica_set_goes_before_an_older_one(world: World) -> None:
    world.vmi("farm-1", owner="farm", owner_kind="VirtualMachineInstanceReplicaSet")
    world.run()
    world.vmi("older", owner="another")
    world.api.pass_time(5)
    world.vmi_gone("farm-1")
    world.vmi("farm-2", owner="farm", owner_kind="VirtualMachineInstanceReplicaSet")

    world.run()

    assert bound(world) == "farm-2"


@pytest.mark.parametrize("end", ["deleted", "failed", "succeeded"])
def test_a_vmi_on_its_way_out_is_not_bound(world: World, end: str) -> None:
    world.vmi()
    if end == "deleted":
        world.api.delete(kinds.VMIS, "vm", TENANT)
    else:
        world.api.patch(kinds.VMIS, "vm", {"status": {"phase": end.capitalize()}}, TENANT)

    world.run()

    assert bound(world) == "None"


def test_a_device_that_is_deleted_is_bound_to_nobody_new(world: World) -> None:
    world.vmi()
    world.run()
    world.api.delete(kinds.GPU_DEVICES, "d", TENANT)
    world.vmi("other")
    world.run()
    assert (bound(world), world.status()["phase"]) == ("vm", "Releasing")

    world.vmi_gone()
    world.run()

    assert not world.exists(kinds.GPU_DEVICES, "d")


def test_two_bindings_at_once_can_not_both_be_written(world: World) -> None:
    world.vmi()
    first = world.plan().writes
    world.vmi_gone()
    world.vmi("other")
    second = world.plan().writes

    world.apply(first)
    world.apply(second)

    assert bound(world) == "vm"


def test_a_pod_that_memory_does_not_know_of_yet_keeps_the_binding(world: World) -> None:
    vmi = world.vmi()
    world.run()
    world.vmi("other")
    world.vmi_gone()
    planned = world.plan()
    world.pod("late", "n1", vmi=vmi)

    world.apply(planned.writes)

    assert bound(world) == "vm"


def test_a_label_alone_uses_nothing(world: World) -> None:
    world.vmi()
    world.run()
    world.vmi_gone()
    world.pod("p", "n1", gpus=0, namespace=TENANT, labels={"gpu.cozystack.io/device-reference": "d"})

    world.run()

    assert world.status()["phase"] == "Held"
