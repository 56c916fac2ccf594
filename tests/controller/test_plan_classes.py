"""GPUClasses: their finalizer and their status."""

import pytest
from gpuworld import H200, TENANT, World

from cluster import kinds
from controller.writes import Figures


@pytest.fixture
def world() -> World:
    world = World()
    world.gpu_class()
    world.node("n1", 4)
    world.node("n2", 2)
    return world


def status(world: World, name: str = "h200") -> dict[str, object]:
    found: dict[str, object] = world.found(kinds.GPU_CLASSES, name)["status"]
    return found


def ready(world: World, name: str = "h200") -> str:
    (condition,) = world.found(kinds.GPU_CLASSES, name)["status"]["conditions"]
    return f"{condition['status']} {condition['reason']}"


def test_it_tells_capacity_held_and_free(world: World) -> None:
    world.order(count=3)
    world.order("waits", 8)
    world.pod("other", "n2")

    world.run()

    found = status(world)
    assert (found["capacity"], found["held"], found["free"]) == (6, 3, 2)
    assert (found["resourceNames"], ready(world)) == ([H200], "True Offered")
    assert world.last.classes == {"h200": Figures(capacity=6, held=3, free=2, pending=8)}


def test_what_can_not_be_used_is_capacity_but_not_free(world: World) -> None:
    world.cordon("n1")
    world.ready("n2", is_ready=False)

    world.run()

    assert (status(world)["capacity"], status(world)["free"]) == (6, 0)


def test_over_used_nodes_do_not_make_others_less_free(world: World) -> None:
    world.order(count=4)
    world.run()
    world.pod("other", "n1", gpus=4)

    world.run()

    assert status(world)["free"] == 2


def test_two_classes_of_one_resource_have_the_same_free(world: World) -> None:
    world.gpu_class("again")
    world.order(count=4)

    world.run()

    assert (status(world)["held"], status(world)["free"]) == (4, 2)
    assert (status(world, "again")["held"], status(world, "again")["free"]) == (0, 2)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [({"gpu": "none"}, "False NoNodes"), ({"source": {"dra": {}}}, "False SourceNotSupported")],
)
def test_a_class_that_can_not_be_ordered_says_why(world: World, spec: dict[str, str], reason: str) -> None:
    world.gpu_class("odd", **spec)

    world.run()

    assert ready(world, "odd") == reason


def test_a_class_goes_when_nothing_is_held_of_it(world: World) -> None:
    world.order()
    world.order("waits", 8)
    world.run()
    world.api.delete(kinds.GPU_CLASSES, "h200")
    world.run()
    assert ready(world) == "False Deleting"
    assert world.status()["phase"] == "Held"
    world.api.delete(kinds.GPU_DEVICES, "d", TENANT)

    world.run()

    assert not world.exists(kinds.GPU_CLASSES, "h200", "")
    assert world.reason("waits") == "ClassNotFound"


def test_a_status_that_is_edited_is_put_right(world: World) -> None:
    world.run()
    world.api.patch(kinds.GPU_CLASSES, "h200", {"status": {"free": 99, "conditions": []}}, status=True)

    world.run()

    assert (status(world)["free"], ready(world)) == (6, "True Offered")
