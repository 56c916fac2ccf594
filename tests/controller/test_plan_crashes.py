"""Killed after any write and started again, the controller comes to the same end."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from gpuworld import TENANT, World

from cluster import kinds

Change = Callable[[World], object]


def begin() -> World:
    world = World()
    world.gpu_class()
    world.node("n1", 2)
    world.node("n2", 2)
    world.order("a", 2)
    world.order("b", 1)
    world.vmi("vm-a", "a", owner="vm-a")
    return world


def running(world: World) -> None:
    world.run()
    world.launch("vm-a", "a")


def started_again(world: World) -> None:
    running(world)
    world.vmi("older", "a")
    world.vmi_gone("vm-a")
    world.api.remove(kinds.PODS, "virt-launcher-vm-a", TENANT)
    world.vmi("vm-a", "a", owner="vm-a")


def lost_node(world: World) -> None:
    world.run()
    world.cordon("n1")
    world.cordon("n2")


def stuck_launcher(world: World) -> None:
    world.api.delete(kinds.GPU_DEVICES, "b", TENANT)
    world.run()
    world.launch("vm-a", "a", scheduled=False)
    world.unschedulable("virt-launcher-vm-a")
    world.api.pass_time(60)


def migrating(world: World) -> None:
    running(world)
    world.node("n3", 4)
    world.migration("vm-a")


def released(world: World) -> None:
    running(world)
    world.api.delete(kinds.GPU_DEVICES, "a", TENANT)
    world.api.delete(kinds.GPU_DEVICES, "b", TENANT)
    world.vmi_gone("vm-a")
    world.api.remove(kinds.PODS, "virt-launcher-vm-a", TENANT)
    world.api.delete(kinds.GPU_CLASSES, "h200")


def sold_anew(world: World) -> None:
    running(world)
    world.node("n3", 4, resource="nvidia.com/new")
    plugin = {"resourceName": "nvidia.com/new"}
    world.api.patch(kinds.GPU_CLASSES, "h200", {"spec": {"source": {"devicePlugin": plugin}}})


CHANGES: dict[str, Change] = {
    "the first holds": lambda world: world,
    "a VM that is started again": started_again,
    "nodes that are lost": lost_node,
    "a launcher that is stuck": stuck_launcher,
    "a migration": migrating,
    "everything released": released,
    "another resource": sold_anew,
}


def end(world: World) -> dict[Any, Any]:
    """Every object as it stands, without what each write changes."""
    objects = copy.deepcopy(world.api.objects)
    for of_kind in objects.values():
        for obj in of_kind.values():
            for key in ("resourceVersion", "uid"):
                obj["metadata"].pop(key)
            obj.get("status", {}).get("binding", {}).pop("uid", None)
            obj.get("status", {}).get("migration", {}).pop("uid", None)
    return {kind: of_kind for kind, of_kind in objects.items() if of_kind}


@pytest.mark.parametrize("change", CHANGES)
def test_killed_after_each_write_in_turn(change: str) -> None:
    whole = begin()
    CHANGES[change](whole)
    before = len(whole.made)
    whole.run()
    writes = len(whole.made) - before
    assert writes, "nothing is to be written, so nothing can be killed"
    expected = end(whole)

    for made in range(writes):
        world = begin()
        CHANGES[change](world)
        left = made
        while left >= 0:
            for _ in world.applying(world.plan().writes):
                left -= 1
                if left < 0:
                    break
        world.restart()
        world.run()

        assert end(world) == expected, f"killed after write {made + 1} of {writes}"


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_written_needs_no_second_write(change: str) -> None:
    world = begin()
    CHANGES[change](world)
    world.run()

    assert not world.plan().writes
    world.restart()
    assert not world.plan().writes
