"""How many GPUs of a node are free: what others have is counted, whoever they are."""

from typing import Any

import pytest
from gpuworld import H200, World

from controller.plan.ledger import Ledger


@pytest.fixture
def world() -> World:
    world = World()
    world.node("n1", 8)
    world.gpu_class()
    return world


def free(world: World, node: str = "n1") -> int:
    return Ledger.of(world.state()).free(node, H200)


def held(world: World, count: int = 2) -> None:
    world.order(count=count)
    world.vmi()
    world.run()


def test_all_of_a_node_is_free_at_first(world: World) -> None:
    assert (free(world), free(world, "n2")) == (8, 0)


def test_what_is_held_is_not_free(world: World) -> None:
    world.order(count=3)
    world.run()

    assert free(world) == 5


def test_the_pod_of_the_vmi_that_a_device_is_held_for_costs_nothing_more(world: World) -> None:
    held(world)
    world.launch()

    assert free(world) == 6


@pytest.mark.parametrize("namespace", ["platform", "tenant-a"])
def test_another_pod_is_counted_whatever_its_namespace(world: World, namespace: str) -> None:
    held(world)
    world.pod("other", "n1", gpus=3, namespace=namespace)

    assert free(world) == 3


def test_a_pod_that_is_finished_is_not_counted(world: World) -> None:
    pod = world.pod("other", "n1", gpus=3)
    world.api.objects[next(iter(k for k in world.api.objects if k.name == "Pod"))]["platform", "other"] = {
        **pod, "status": {"phase": "Succeeded"}
    }  # fmt: skip

    assert free(world) == 8


def test_a_pod_that_terminates_is_counted_until_it_is_gone(world: World) -> None:
    from cluster import kinds

    world.pod("other", "n1", gpus=3)
    world.api.delete(kinds.PODS, "other", "platform")

    assert free(world) == 5


def test_a_pod_that_waits_for_one_node_is_counted_there(world: World) -> None:
    world.pod("other", pinned="n1", gpus=3)

    assert free(world) == 5


def test_what_a_vmi_asks_for_beyond_its_device_is_counted(world: World) -> None:
    held(world)
    vmi = world.found(next(k for k in world.api.objects if k.name == "VirtualMachineInstance"), "vm", "tenant-a")
    world.pod("a", "n1", gpus=2, vmi=vmi)
    world.pod("b", "n1", gpus=2, vmi=vmi)

    assert free(world) == 4


def test_a_pod_on_another_node_than_its_device_is_counted_there(world: World) -> None:
    held(world)
    world.node("n2", 8)
    vmi = world.found(next(k for k in world.api.objects if k.name == "VirtualMachineInstance"), "vm", "tenant-a")
    world.pod("a", "n2", gpus=2, vmi=vmi)

    assert (free(world), free(world, "n2")) == (6, 6)


def test_a_pod_older_than_the_class_is_counted() -> None:
    world = World()
    world.node("n1", 2)
    world.pod("older", "n1", gpus=2)
    world.gpu_class()
    world.order()

    world.run()

    assert world.reason() == "NoCapacity"


def test_two_classes_of_one_resource_share_its_gpus(world: World) -> None:
    world.gpu_class("h200-again")
    world.order("a", 5)
    world.order("b", 5, of="h200-again")

    world.run()

    assert [world.reason("a"), world.reason("b")] == ["Held", "NoCapacity"]


def test_what_is_over_used_is_below_nothing(world: World) -> None:
    world.order(count=8)
    world.run()
    world.pod("other", "n1", gpus=3)

    assert free(world) == -3


@pytest.mark.parametrize(
    ("containers", "inits", "needed"),
    [
        ([1, 2], [], 3),
        ([1], [3], 3),
        ([2], [1, 1], 2),
        ([1], [(2, "Always")], 3),
        ([1], [(2, "Always"), 3], 5),
    ],
)
def test_a_pod_needs_what_the_scheduler_counts(containers: list[int], inits: list[Any], needed: int) -> None:
    from gpu.pod import Pod

    def container(amount: Any) -> dict[str, Any]:
        count, restart = amount if isinstance(amount, tuple) else (amount, None)
        found: dict[str, Any] = {"resources": {"limits": {H200: count}, "requests": {H200: count}}}
        return {**found, "restartPolicy": restart} if restart else found

    spec = {"containers": [container(one) for one in containers], "initContainers": [container(one) for one in inits]}

    pod = Pod.from_dict({"metadata": {"namespace": "a", "name": "p"}, "spec": {**spec, "overhead": {"cpu": 1}}})

    assert pod.resources == {H200: needed}
