"""Tenants' pods that ask for GPUs without a device are reported."""

import pytest
from gpuworld import H200, TENANT, World

from cluster import kinds
from controller.writes import Trespasser


@pytest.fixture
def world() -> World:
    world = World()
    world.namespace("platform", other="x")
    world.gpu_class()
    world.node("n1")
    world.order()
    world.vmi()
    world.run()
    return world


def test_a_tenants_pod_without_a_device_is_reported(world: World) -> None:
    pod = world.pod("raw", "n1", gpus=2, namespace=TENANT)

    world.run()

    uid = pod["metadata"]["uid"]
    assert world.last.trespassers == (
        Trespasser(namespace=TENANT, name="raw", uid=uid, resource_name=H200, amount=2, node="n1"),
    )
    assert "asks for 2" in world.told("GPUWithoutDevice")[0]


def test_the_launcher_of_a_vmi_with_a_device_is_none(world: World) -> None:
    world.launch()

    world.run()

    assert not world.last.trespassers


def test_what_a_vmi_has_beyond_its_device_is(world: World) -> None:
    vmi = world.found(kinds.VMIS, "vm", TENANT)
    world.pod("more", "n1", gpus=2, vmi=vmi)

    world.run()

    assert [found.name for found in world.last.trespassers] == ["more"]


@pytest.mark.parametrize("what", ["the platform's", "the release's", "another resource", "nothing"])
def test_others_are_none(world: World, what: str) -> None:
    match what:
        case "the platform's":
            world.pod("raw", "n1", namespace="platform")
        case "the release's":
            world.namespace("gpu-system")
            world.pod("raw", "n1", namespace="gpu-system")
        case "another resource":
            world.pod("raw", "n1", resource="a.b/c", namespace=TENANT)
        case _:
            world.pod("raw", "n1", gpus=0, namespace=TENANT)

    world.run()

    assert not world.last.trespassers
