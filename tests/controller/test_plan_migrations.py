"""Migrations: reserve, follow, give back."""

import pytest
from gpuworld import H200, TENANT, World

from cluster import kinds
from controller.plan.ledger import Ledger


@pytest.fixture
def world() -> World:
    """A VM that runs on n1 with two GPUs; n2 has room."""
    world = World()
    world.gpu_class()
    world.node("n1", 2)
    world.order(count=2)
    world.vmi()
    world.run()
    world.launch()
    world.node("n2", 3, rack="a")
    world.node("n3", 4, rack="b")
    world.run()
    return world


def free(world: World) -> list[int]:
    ledger = Ledger.of(world.state())
    return [ledger.free(node, H200) for node in ("n1", "n2", "n3")]


def target(world: World, name: str = "target") -> None:
    reserved = world.status()["migration"]
    world.pod(
        name, reserved["nodeName"], gpus=2, vmi=world.found(kinds.VMIS, "vm", TENANT), pinned=reserved["nodeName"],
        labels={"kubevirt.io/migrationJobUID": reserved["uid"]},
    )  # fmt: skip


def test_a_migration_reserves_gpus_on_a_second_node(world: World) -> None:
    migration = world.migration()

    world.run()

    assert world.status()["migration"] == {"uid": migration["metadata"]["uid"], "nodeName": "n2"}
    assert world.status()["nodeName"] == "n1"
    assert free(world) == [0, 1, 4]


def test_the_device_follows_the_vmi_and_the_rest_is_given_back(world: World) -> None:
    world.migration()
    world.run()
    target(world)
    world.run()
    assert free(world) == [0, 1, 4]
    world.api.patch(kinds.VMIS, "vm", {"status": {"nodeName": "n2"}}, TENANT)

    world.run()

    assert world.status()["nodeName"] == "n2"
    assert free(world) == [0, 1, 4], "the source still terminates"
    world.api.remove(kinds.PODS, "virt-launcher-vm", TENANT)
    world.migration_phase("Succeeded")
    world.run()
    assert "migration" not in world.status()
    assert free(world) == [2, 1, 4]


@pytest.mark.parametrize("end", ["Failed", "gone"])
def test_a_migration_that_fails_gives_the_reserved_node_back(world: World, end: str) -> None:
    world.migration()
    world.run()
    target(world)
    if end == "Failed":
        world.migration_phase("Failed")
    else:
        world.api.remove(kinds.MIGRATIONS, "move", TENANT)

    world.run()

    assert (world.status()["nodeName"], "migration" in world.status()) == ("n1", False)
    assert free(world) == [0, 1, 4], "the target's pod is still there"
    world.api.remove(kinds.PODS, "target", TENANT)
    assert free(world) == [0, 3, 4]


def test_nothing_is_reserved_where_no_other_node_has_room_and_the_vmi_is_told(world: World) -> None:
    world.pod("other", "n2", gpus=2)
    world.cordon("n3")
    world.migration()

    world.run()

    assert "migration" not in world.status()
    assert "migration move waits" in world.told("MigrationWaits")[0]


def test_the_target_suits_the_migration(world: World) -> None:
    world.migration(addedNodeSelector={"rack": "b"})

    world.run()

    assert world.status()["migration"]["nodeName"] == "n3"


def test_a_reserved_node_that_is_lost_is_replaced(world: World) -> None:
    world.migration()
    world.run()
    world.cordon("n2")

    world.run()

    assert world.status()["migration"]["nodeName"] == "n3"


def test_a_reserved_node_where_the_target_is_stays(world: World) -> None:
    world.migration()
    world.run()
    target(world)
    world.cordon("n2")

    world.run()

    assert world.status()["migration"]["nodeName"] == "n2"


@pytest.mark.parametrize("what", ["another VMI's", "another cluster's", "ended", "a pod's label"])
def test_what_is_no_migration_of_its_vmi_reserves_nothing(world: World, what: str) -> None:
    match what:
        case "another VMI's":
            world.migration("other")
        case "another cluster's":
            world.migration(sendTo={"migrationID": "x", "connectURL": "y"})
        case "ended":
            world.migration()
            world.migration_phase("Succeeded")
        case _:
            world.pod("forged", namespace=TENANT, labels={"kubevirt.io/migrationJobUID": "x"})

    world.run()

    assert "migration" not in world.status()


def test_a_device_that_is_deleted_still_follows(world: World) -> None:
    world.api.delete(kinds.GPU_DEVICES, "d", TENANT)
    world.migration()
    world.run()
    target(world)
    world.api.patch(kinds.VMIS, "vm", {"status": {"nodeName": "n2"}}, TENANT)

    world.run()

    assert (world.status()["phase"], world.status()["nodeName"]) == ("Releasing", "n2")


def test_a_vmi_that_only_says_that_it_is_elsewhere_is_not_followed(world: World) -> None:
    world.api.patch(kinds.VMIS, "vm", {"status": {"nodeName": "n2"}}, TENANT)

    world.run()

    assert world.status()["nodeName"] == "n1"


def test_two_migrations_do_not_reserve_one_gpu() -> None:
    world = World()
    world.gpu_class()
    world.node("n1", 2)
    for name in ("a", "b"):
        world.order(name)
        world.vmi(f"vm-{name}", name)
    world.run()
    for name in ("a", "b"):
        world.launch(f"vm-{name}", name)
        world.migration(f"vm-{name}", f"move-{name}")
    world.node("n2", 1)

    world.run()

    assert sum("migration" in world.status(name) for name in ("a", "b")) == 1
