"""What becomes of devices that are deleted, and of those that were made for a VMI."""

import pytest
from gpuworld import TENANT, World

from cluster import kinds


def offered() -> World:
    world = World()
    world.gpu_class()
    world.node("n1")
    return world


@pytest.fixture
def world() -> World:
    """A device with a VM that runs."""
    world = offered()
    world.order()
    world.vmi()
    world.run()
    world.launch()
    world.run()
    return world


@pytest.fixture
def made() -> World:
    """A template device, held for a VMI without a pod."""
    world = offered()
    world.order(template=True)
    world.vmi(owner="a-vm")
    world.run()
    assert world.status()["phase"] == "InUse"
    return world


def there(world: World) -> bool:
    return world.exists(kinds.GPU_DEVICES, "d")


def test_a_device_that_nobody_uses_goes_when_it_is_deleted() -> None:
    world = offered()
    world.order()
    world.run()
    world.api.delete(kinds.GPU_DEVICES, "d", TENANT)

    world.run()

    assert not there(world)
    assert not world.exists(kinds.WORKLOADS, "gpu-d")
    assert world.told("Released") == ["GPUDevice d: its 1 GPUs on node n1 are free"]


def test_a_device_that_is_used_stays_whole_until_vmi_and_pods_are_gone(world: World) -> None:
    before = world.status()
    world.api.delete(kinds.GPU_DEVICES, "d", TENANT)

    world.run()
    assert world.status() == {**before, "phase": "Releasing"}
    assert world.exists(kinds.WORKLOADS, "gpu-d")
    world.vmi_gone()
    world.run()
    assert world.status() == {**before, "phase": "Releasing"}
    world.api.remove(kinds.PODS, "virt-launcher-vm", TENANT)
    world.run()

    assert not there(world)
    assert not world.exists(kinds.WORKLOADS, "gpu-d")


def test_a_pod_that_memory_does_not_know_of_yet_keeps_a_deleted_device() -> None:
    world = offered()
    world.order()
    vmi = world.vmi()
    world.run()
    world.api.delete(kinds.GPU_DEVICES, "d", TENANT)
    world.vmi_gone()
    planned = world.plan()
    world.pod("late", "n1", vmi=vmi)

    world.apply(planned.writes)

    assert there(world)


def test_the_finalizers_of_others_are_left(world: World) -> None:
    finalizers = ["a.b/c", "gpu.cozystack.io/device"]
    world.api.patch(kinds.GPU_DEVICES, "d", {"metadata": {"finalizers": finalizers}}, TENANT)
    world.vmi_gone()
    world.api.remove(kinds.PODS, "virt-launcher-vm", TENANT)
    world.api.delete(kinds.GPU_DEVICES, "d", TENANT)

    world.run()

    assert world.found(kinds.GPU_DEVICES, "d", TENANT)["metadata"]["finalizers"] == ["a.b/c"]


def test_a_finalizer_that_was_taken_off_is_put_back(world: World) -> None:
    world.api.patch(kinds.GPU_DEVICES, "d", {"metadata": {"finalizers": None}}, TENANT)

    world.run()

    assert world.found(kinds.GPU_DEVICES, "d", TENANT)["metadata"]["finalizers"] == ["gpu.cozystack.io/device"]


def test_a_template_device_goes_15_seconds_after_its_vmi(made: World) -> None:
    made.vmi_gone()
    made.run()
    assert there(made)
    made.api.pass_time(14)
    made.run()
    assert there(made)
    assert made.last.again is not None
    assert (made.last.again - made.api.now).total_seconds() == 1
    made.api.pass_time(1)

    made.run()

    assert not there(made)


def test_the_15_seconds_begin_when_the_last_pod_is_gone(made: World) -> None:
    made.launch()
    made.vmi_gone()
    made.run()
    made.api.pass_time(60)
    made.run()
    made.api.remove(kinds.PODS, "virt-launcher-vm", TENANT)
    made.run()
    assert there(made)
    made.api.pass_time(15)

    made.run()

    assert not there(made)


def test_a_vm_that_is_started_within_15_seconds_keeps_its_gpu(made: World) -> None:
    made.vmi_gone()
    made.run()
    made.api.pass_time(14)
    made.run()
    made.vmi(owner="a-vm")
    made.run()
    made.api.pass_time(600)

    made.run()

    assert (made.status()["phase"], made.status()["nodeName"]) == ("InUse", "n1")


def take_over(world: World) -> None:
    stamp = {"gpu.cozystack.io/taken-over": world.api.now.isoformat()}
    world.api.patch(kinds.GPU_DEVICES, "d", {"metadata": {"annotations": stamp}}, TENANT)


def test_to_be_taken_over_begins_the_15_seconds_anew(made: World) -> None:
    made.vmi_gone()
    made.run()
    made.api.pass_time(14)
    take_over(made)
    made.api.pass_time(14)
    made.run()
    assert there(made)
    made.api.pass_time(1)

    made.run()

    assert not there(made)


def test_a_delete_that_meets_the_taking_over_is_not_made(made: World) -> None:
    made.vmi_gone()
    made.run()
    made.api.pass_time(15)
    planned = made.plan()
    assert [write.verb for write in planned.writes] == ["delete"]
    take_over(made)

    made.apply(planned.writes)

    assert there(made)
    assert "deletionTimestamp" not in made.found(kinds.GPU_DEVICES, "d", TENANT)["metadata"]


def test_after_a_restart_the_15_seconds_begin_anew(made: World) -> None:
    made.vmi_gone()
    made.run()
    made.api.pass_time(14)
    made.restart()
    made.run()
    made.api.pass_time(14)
    made.run()
    assert there(made)
    made.api.pass_time(1)

    made.run()

    assert not there(made)


def test_a_template_device_whose_vmi_never_came_goes_after_two_minutes() -> None:
    world = offered()
    world.order(template=True)
    world.run()
    world.api.pass_time(119)
    world.run()
    assert there(world)
    world.api.pass_time(1)

    world.run()

    assert not there(world)


def test_how_long_template_devices_are_kept_is_set() -> None:
    world = World(template_kept=30, template_unclaimed=40)
    world.gpu_class()
    world.node("n1")
    world.order("used", template=True)
    world.vmi(device="used")
    world.order("unclaimed", template=True)
    world.run()
    world.vmi_gone()
    world.run()
    for seconds, left in ((29, ["unclaimed", "used"]), (1, ["unclaimed"]), (9, ["unclaimed"]), (1, [])):
        world.api.pass_time(seconds)
        world.run()
        assert [name for name in ("unclaimed", "used") if world.exists(kinds.GPU_DEVICES, name)] == left


def test_to_be_taken_over_begins_the_two_minutes_anew() -> None:
    world = offered()
    world.order(template=True)
    world.run()
    world.api.pass_time(100)
    take_over(world)
    world.api.pass_time(100)
    world.run()
    assert there(world)
    world.api.pass_time(20)

    world.run()

    assert not there(world)


def test_a_device_that_waited_with_its_vmi_goes_with_it() -> None:
    world = World()
    world.gpu_class()
    world.order(template=True)
    world.vmi()
    world.run()
    world.vmi_gone()
    world.run()
    world.api.pass_time(15)

    world.run()

    assert not there(world)


def test_a_tenants_own_device_stays_without_a_vmi(world: World) -> None:
    world.vmi_gone()
    world.api.remove(kinds.PODS, "virt-launcher-vm", TENANT)
    world.run()
    world.api.pass_time(3600)

    world.run()

    assert (world.status()["phase"], world.status()["nodeName"]) == ("Held", "n1")
