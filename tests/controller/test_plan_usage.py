"""Usage records: they come with the hold, go with the release, and are put right."""

from typing import Any

import pytest
from gpuworld import TENANT, World

from cluster import kinds

MONITOR = {"workloads.cozystack.io/monitor": "gpu-usage"}


def offered(**options: Any) -> World:
    world = World(**options)
    world.gpu_class()
    world.node("n1")
    world.order(count=2)
    return world


@pytest.fixture
def world() -> World:
    world = offered()
    world.run()
    return world


def record(world: World) -> dict[str, Any]:
    return world.found(kinds.WORKLOADS, "gpu-d", TENANT)


def is_right(world: World) -> bool:
    found, monitor = record(world), world.found(kinds.WORKLOAD_MONITORS, "gpu-usage", TENANT)
    usage = {"h200.gpuclass.gpu.cozystack.io/requests.devices": "2"}
    return (
        found["metadata"]["labels"] == MONITOR
        and not found["metadata"].get("ownerReferences")
        and found["status"] == {"kind": "gpu", "type": "h200", "resources": usage, "operational": True}
        and monitor["spec"] == {"selector": {"gpu.cozystack.io/usage-monitor": "true"}, "replicas": 0}
    )


def test_a_held_device_has_a_record(world: World) -> None:
    assert is_right(world)


def test_a_device_that_waits_has_none() -> None:
    world = offered()
    world.cordon("n1")

    world.run()

    assert not world.exists(kinds.WORKLOADS, "gpu-d")
    assert not world.exists(kinds.WORKLOAD_MONITORS, "gpu-usage")


def test_there_is_no_record_of_a_hold_that_was_not_written() -> None:
    world = offered()
    world.apply(world.plan().writes)
    planned = world.plan()
    world.api.delete(kinds.GPU_DEVICES, "d", TENANT)

    world.apply(planned.writes)

    assert not world.exists(kinds.WORKLOADS, "gpu-d")


@pytest.mark.parametrize(
    "edit",
    [
        {"metadata": {"labels": None}},
        {"metadata": {"labels": {"workloads.cozystack.io/monitor": "other"}}},
        {"metadata": {"ownerReferences": [{"uid": "x", "kind": "GPUDevice"}]}},
    ],
)
def test_a_record_that_is_edited_is_put_right(world: World, edit: dict[str, Any]) -> None:
    world.api.patch(kinds.WORKLOADS, "gpu-d", edit, TENANT)

    world.run()

    assert is_right(world)


@pytest.mark.parametrize(
    "edit",
    [{"type": "l40s"}, {"resources": {"h200.gpuclass.gpu.cozystack.io/requests.devices": "1"}},
     {"resources": {"cpu": "1"}}, {"operational": False}, {"kind": "cpu"}],
)  # fmt: skip
def test_what_a_record_tells_is_put_right(world: World, edit: dict[str, Any]) -> None:
    world.api.patch(kinds.WORKLOADS, "gpu-d", {"status": edit}, TENANT, status=True)

    world.run()

    assert is_right(world)


@pytest.mark.parametrize("edit", [{"selector": {"app": "x"}}, {"replicas": 1}, {"selector": None}])
def test_the_monitor_is_put_right(world: World, edit: dict[str, Any]) -> None:
    world.api.patch(kinds.WORKLOAD_MONITORS, "gpu-usage", {"spec": edit}, TENANT)

    world.run()

    assert is_right(world)


def test_what_is_deleted_comes_back(world: World) -> None:
    world.api.delete(kinds.WORKLOADS, "gpu-d", TENANT)
    world.api.delete(kinds.WORKLOAD_MONITORS, "gpu-usage", TENANT)

    world.run()

    assert is_right(world)


def test_record_and_monitor_go_with_the_device(world: World) -> None:
    world.api.delete(kinds.GPU_DEVICES, "d", TENANT)

    world.run()

    assert not world.exists(kinds.WORKLOADS, "gpu-d")
    assert not world.exists(kinds.WORKLOAD_MONITORS, "gpu-usage")


def test_a_record_without_a_device_goes_and_others_stay(world: World) -> None:
    orphan = {"metadata": {"namespace": TENANT, "name": "gpu-orphan", "labels": MONITOR}}
    world.api.create(kinds.WORKLOADS, orphan)
    world.api.create(kinds.WORKLOADS, {"metadata": {"namespace": TENANT, "name": "gpu-others"}})
    world.api.create(kinds.WORKLOADS, {"metadata": {"namespace": TENANT, "name": "pod-x", "labels": MONITOR}})

    world.run()

    assert not world.exists(kinds.WORKLOADS, "gpu-orphan")
    assert world.exists(kinds.WORKLOADS, "gpu-others")
    assert world.exists(kinds.WORKLOADS, "pod-x")


def test_where_the_kinds_are_not_served_nothing_is_written_of_them() -> None:
    world = offered(served=())

    world.run()

    assert world.status()["phase"] == "Held"
    assert not world.exists(kinds.WORKLOADS, "gpu-d")


def test_nothing_is_made_in_a_namespace_that_is_being_deleted() -> None:
    world = offered()
    body = {"metadata": {"finalizers": ["kubernetes"]}}
    world.api.patch(kinds.NAMESPACES, TENANT, body)
    world.api.delete(kinds.NAMESPACES, TENANT)

    world.run()

    assert not world.exists(kinds.WORKLOADS, "gpu-d")
