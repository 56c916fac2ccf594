"""Held devices that can't stay where they are, and launchers that can't start there."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from gpuworld import H200, TENANT, World

from cluster import kinds


@pytest.fixture
def world() -> World:
    """A device that is held on n1; n2 is smaller, so that it is taken next."""
    world = World()
    world.gpu_class()
    world.node("n1", 1, zone="east")
    world.order()
    world.run()
    assert world.status()["nodeName"] == "n1"
    return world


LOSSES: dict[str, Callable[[World], object]] = {
    "the node is gone": lambda world: world.api.remove(kinds.NODES, "n1"),
    "the node is cordoned": lambda world: world.cordon("n1"),
    "the node is not ready": lambda world: world.ready("n1", is_ready=False),
    "the node is not the class's any more": lambda world: world.api.patch(
        kinds.NODES, "n1", {"metadata": {"labels": {"gpu": None}}}
    ),
    "the class moved": lambda world: world.api.patch(
        kinds.GPU_CLASSES, "h200", {"spec": {"source": {"devicePlugin": {"nodeSelector": {"zone": "west"}}}}}
    ),
    "it does not suit the VMI": lambda world: world.vmi(nodeSelector={"zone": "west"}),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_device_without_a_pod_moves_to_a_node_with_room(world: World, loss: str) -> None:
    world.node("n2", 2, zone="west")
    since = world.status()["heldAt"]
    world.api.pass_time(10)
    LOSSES[loss](world)

    world.run()

    assert (world.status()["nodeName"], world.reason(), world.status()["heldAt"]) == ("n2", "Held", since)
    assert "moved from node n1 to n2" in world.told("Moved")[0]


def test_two_devices_do_not_move_to_one_gpu() -> None:
    world = World()
    world.gpu_class()
    world.node("n1", 2)
    world.order("a")
    world.order("b")
    world.run()
    world.node("n2", 1)
    world.cordon("n1")

    world.run()

    assert [world.status(name).get("nodeName") for name in "ab"] == ["n2", None]


@pytest.mark.parametrize("loss", LOSSES)
def test_it_waits_where_no_other_node_has_room(world: World, loss: str) -> None:
    LOSSES[loss](world)

    world.run()

    status = world.status()
    assert (status["phase"], world.reason()) == ("Pending", "NoCapacity")
    assert not {"nodeName", "resourceName", "heldAt"} & status.keys()
    assert [condition["type"] for condition in status["conditions"]] == ["Held", "Displaced"]
    assert not world.exists(kinds.WORKLOADS, "gpu-d")
    assert world.told("Displaced")


def test_a_device_that_lost_its_node_goes_before_older_orders(world: World) -> None:
    world.api.pass_time(-100)
    world.order("older")
    world.api.pass_time(200)
    world.cordon("n1")
    world.run()
    world.node("n2", 1, zone="east")

    world.run()

    assert (world.status()["nodeName"], world.reason("older")) == ("n2", "NoCapacity")
    assert [condition["type"] for condition in world.status()["conditions"]] == ["Held"]


def test_it_comes_back_when_its_node_does(world: World) -> None:
    world.cordon("n1")
    world.run()
    world.cordon("n1", cordoned=False)

    world.run()

    assert (world.status()["nodeName"], world.reason()) == ("n1", "Held")


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if "suit" not in loss])
def test_a_device_whose_vmi_has_a_pod_stays(world: World, loss: str) -> None:
    world.vmi()
    world.run()
    world.launch()
    world.node("n2", 2, zone="west")
    LOSSES[loss](world)

    world.run()

    assert world.status()["nodeName"] == "n1"


@pytest.mark.parametrize("loss", ["the node is cordoned"])
def test_a_device_that_is_bound_moves_while_there_is_no_pod_and_its_vmi_is_touched(world: World, loss: str) -> None:
    world.vmi()
    world.run()
    before = world.found(kinds.VMIS, "vm", TENANT)["metadata"]["annotations"]
    world.node("n2", 2)
    LOSSES[loss](world)

    world.run()

    assert world.status()["nodeName"] == "n2"
    assert world.found(kinds.VMIS, "vm", TENANT)["metadata"]["annotations"] != before


def test_a_pod_that_memory_does_not_know_of_yet_keeps_the_device(world: World) -> None:
    world.vmi()
    world.run()
    world.node("n2", 2)
    world.cordon("n1")
    planned = world.plan()
    world.launch()

    world.apply(planned.writes)

    assert world.status()["nodeName"] == "n1"


class TestAnotherResourceName:
    new = "nvidia.com/H200-new"

    @pytest.fixture
    def world(self, world: World) -> World:
        world.node("n2", 1, resource=self.new)
        return world

    def sell(self, world: World) -> None:
        plugin = {"resourceName": self.new}
        world.api.patch(kinds.GPU_CLASSES, "h200", {"spec": {"source": {"devicePlugin": plugin}}})
        world.run()

    def test_a_device_that_no_vmi_refers_to_is_held_by_it(self, world: World) -> None:
        self.sell(world)

        assert (world.status()["nodeName"], world.status()["resourceName"]) == ("n2", self.new)

    def test_a_device_that_a_vmi_refers_to_keeps_the_old_one(self, world: World) -> None:
        world.vmi()
        self.sell(world)

        assert (world.status()["nodeName"], world.status()["resourceName"]) == ("n1", H200)

    def test_it_changes_when_the_vmi_has_gone(self, world: World) -> None:
        world.vmi()
        self.sell(world)
        world.vmi_gone()

        world.run()

        assert world.status()["resourceName"] == self.new


class TestAnUnschedulableLauncher:
    @pytest.fixture
    def world(self, world: World) -> World:
        world.vmi(owner="a-vm")
        world.run()
        world.launch(scheduled=False)
        world.unschedulable("virt-launcher-vm")
        world.node("n2", 2)
        return world

    def test_the_pod_is_deleted_and_the_device_moves_after_a_minute(self, world: World) -> None:
        world.run()
        assert world.last.again is not None
        assert world.status()["nodeName"] == "n1"
        world.api.pass_time(60)

        world.run()

        assert world.status()["nodeName"] == "n2"
        assert not world.exists(kinds.PODS, "virt-launcher-vm")

    def test_how_long_it_may_wait_is_set(self, world: World) -> None:
        world.config = replace(world.config, launcher_patience=5)
        world.api.pass_time(5)

        world.run()

        assert world.status()["nodeName"] == "n2"

    def test_it_stays_where_no_other_node_has_room(self, world: World) -> None:
        world.pod("other", "n2", gpus=2)
        world.api.pass_time(60)

        world.run()

        assert world.status()["nodeName"] == "n1"
        assert world.exists(kinds.PODS, "virt-launcher-vm")

    def test_it_moves_when_a_gpu_is_freed_later(self, world: World) -> None:
        world.pod("other", "n2", gpus=2)
        world.api.pass_time(60)
        world.run()
        world.api.remove(kinds.PODS, "other", "platform")

        world.run()

        assert world.status()["nodeName"] == "n2"

    def test_a_vmi_that_its_vm_would_not_make_again_is_told(self, world: World) -> None:
        vm = {"metadata": {"namespace": TENANT, "name": "vm", "uid": "a-vm"}, "spec": {"runStrategy": "Manual"}}
        world.api.create(kinds.VMS, vm)
        world.api.pass_time(60)

        world.run()

        assert world.status()["nodeName"] == "n1"
        assert world.exists(kinds.PODS, "virt-launcher-vm")
        assert "restart the VM" in world.told("LauncherWaits")[0]

    def test_a_pod_that_waits_for_a_node_where_its_device_is_not_any_more_is_deleted(self, world: World) -> None:
        world.api.patch(kinds.GPU_DEVICES, "d", {"status": {"nodeName": "n2"}}, TENANT, status=True)

        world.run()

        assert world.status()["nodeName"] == "n2"
        assert not world.exists(kinds.PODS, "virt-launcher-vm")


def test_a_vmi_without_an_owner_is_told_too(world: World) -> None:
    world.vmi()
    world.run()
    world.launch(scheduled=False)
    world.unschedulable("virt-launcher-vm")
    world.node("n2", 2)
    world.api.pass_time(60)

    world.run()

    assert world.exists(kinds.PODS, "virt-launcher-vm")
    assert world.told("LauncherWaits")


def test_two_stuck_launchers_do_not_move_to_one_gpu() -> None:
    world = World()
    world.gpu_class()
    world.node("n1", 2)
    for name in ("a", "b"):
        world.order(name)
        world.vmi(f"vm-{name}", name, owner=name)
    world.run()
    for name in ("a", "b"):
        world.launch(f"vm-{name}", name, scheduled=False)
        world.unschedulable(f"virt-launcher-vm-{name}")
    world.node("n2", 1)
    world.api.pass_time(60)

    world.run()

    assert sorted(world.status(name)["nodeName"] for name in ("a", "b")) == ["n1", "n2"]
