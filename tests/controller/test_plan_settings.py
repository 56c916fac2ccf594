"""What is published: names that count as GPUs, made whole again whatever happens to them."""

import pytest
from gpuworld import H200, RELEASE, World

from cluster import kinds

GUARDED = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"


def published(world: World) -> dict[str, str]:
    data: dict[str, str] = world.found(kinds.CONFIG_MAPS, "gpu-settings", RELEASE)["data"]
    return data


def test_the_names_of_classes_values_and_device_classes_are_published() -> None:
    world = World(
        resource_names=frozenset({"vendor.io/gpu"}), device_class_names=frozenset({"mig.nvidia.com", "gpu.nvidia.com"})
    )
    world.gpu_class()
    device_class = {"metadata": {"name": "gpu.nvidia.com"}, "spec": {"extendedResourceName": "backed.io/gpu"}}
    world.api.create(kinds.DEVICE_CLASSES, device_class)
    other = {"metadata": {"name": "other"}, "spec": {"extendedResourceName": "other.io/gpu"}}
    world.api.create(kinds.DEVICE_CLASSES, other)

    world.run()

    mig = "deviceclass.resource.kubernetes.io/mig.nvidia.com"
    assert published(world) == {
        "resourceNames": ",".join(sorted(["backed.io/gpu", GUARDED, mig, H200, "vendor.io/gpu"])),
        "deviceClassNames": "gpu.nvidia.com,mig.nvidia.com",
    }


@pytest.fixture
def world() -> World:
    world = World()
    world.gpu_class()
    world.gpu_class("l40s", resource="nvidia.com/L40S")
    world.run()
    return world


BOTH = f"{H200},nvidia.com/L40S"


@pytest.mark.parametrize(
    "edit",
    [
        {"data": None},
        {"data": {"resourceNames": ""}},
        {"data": {"resourceNames": f"{H200}, nvidia.com/L40S"}},
        {"data": {"resourceNames": f"nvidia.com/L40S,{H200}"}},
        {"data": {"resourceNames": f"{BOTH},cpu.io/x"}},
        {"data": {"deviceClassNames": "x"}},
    ],
)
def test_settings_that_are_edited_are_put_right(world: World, edit: dict[str, object]) -> None:
    world.api.patch(kinds.CONFIG_MAPS, "gpu-settings", edit, RELEASE)

    world.run()

    assert published(world) == {"resourceNames": BOTH, "deviceClassNames": ""}


def test_settings_that_are_made_immutable_and_wrong_are_made_anew(world: World) -> None:
    edit = {"immutable": True, "data": {"resourceNames": "a.b/c"}}
    world.api.patch(kinds.CONFIG_MAPS, "gpu-settings", edit, RELEASE)

    world.run()

    assert published(world)["resourceNames"] == BOTH


@pytest.mark.parametrize("lost", ["nothing", "the settings", "the Lease's annotation"])
def test_a_name_stays_when_its_class_goes(world: World, lost: str) -> None:
    world.api.delete(kinds.GPU_CLASSES, "l40s")
    world.run()
    assert not world.exists(kinds.GPU_CLASSES, "l40s", "")
    if lost == "the settings":
        world.api.remove(kinds.CONFIG_MAPS, "gpu-settings", RELEASE)
    elif lost != "nothing":
        world.api.patch(kinds.LEASES, world.config.lease, {"metadata": {"annotations": None}}, RELEASE)

    world.run()

    assert published(world)["resourceNames"] == BOTH
    lease = world.found(kinds.LEASES, world.config.lease, RELEASE)
    assert lease["metadata"]["annotations"]["gpu.cozystack.io/resource-names"] == BOTH


def test_a_class_goes_only_when_its_names_are_remembered() -> None:
    world = World()
    world.gpu_class()
    world.apply(write for write in world.plan().writes if write.kind == kinds.GPU_CLASSES)
    world.api.delete(kinds.GPU_CLASSES, "h200")

    world.apply(write for write in world.plan().writes if write.kind == kinds.GPU_CLASSES)
    assert world.exists(kinds.GPU_CLASSES, "h200", "")
    world.run()

    assert not world.exists(kinds.GPU_CLASSES, "h200", "")
    assert published(world)["resourceNames"] == H200


def test_the_old_name_of_a_class_stays(world: World) -> None:
    plugin = {"resourceName": "nvidia.com/new"}
    world.api.patch(kinds.GPU_CLASSES, "l40s", {"spec": {"source": {"devicePlugin": plugin}}})

    world.run()

    assert published(world)["resourceNames"] == f"{BOTH},nvidia.com/new"
    status = world.found(kinds.GPU_CLASSES, "l40s")["status"]
    assert status["resourceNames"] == ["nvidia.com/L40S", "nvidia.com/new"]


def test_a_name_that_is_taken_off_the_lease_is_forgotten_unless_it_is_given(world: World) -> None:
    world.api.delete(kinds.GPU_CLASSES, "l40s")
    world.run()
    forgotten = {"metadata": {"annotations": {"gpu.cozystack.io/resource-names": ""}}}
    world.api.patch(kinds.LEASES, world.config.lease, forgotten, RELEASE)

    world.run()

    assert published(world)["resourceNames"] == H200


def test_a_write_on_the_lease_is_made_only_on_what_was_read(world: World) -> None:
    world.gpu_class("new", resource="nvidia.com/new")
    planned = world.plan()
    world.api.patch(kinds.LEASES, world.config.lease, {"spec": {"holderIdentity": "x"}}, RELEASE)

    world.apply(planned.writes)

    lease = world.found(kinds.LEASES, world.config.lease, RELEASE)
    assert "nvidia.com/new" not in lease["metadata"]["annotations"]["gpu.cozystack.io/resource-names"]


def test_what_was_published_stays_though_its_class_sells_another_before_the_lease_has_it(world: World) -> None:
    world.gpu_class("new", resource="nvidia.com/new")
    planned = world.plan()
    # The Lease is renewed in between, so that what is to be remembered there is not written.
    world.api.patch(kinds.LEASES, world.config.lease, {"spec": {"holderIdentity": "x"}}, RELEASE)
    world.apply(write for write in planned.writes if write.kind in (kinds.LEASES, kinds.CONFIG_MAPS))
    before = set(published(world)["resourceNames"].split(","))
    newer = {"spec": {"source": {"devicePlugin": {"resourceName": "nvidia.com/newer"}}}}
    world.api.patch(kinds.GPU_CLASSES, "new", newer)

    world.run()

    assert set(published(world)["resourceNames"].split(",")) >= before | {"nvidia.com/newer"}


def test_a_renewal_of_the_lease_is_no_news(world: World) -> None:
    before = world.state().remembered
    world.api.patch(kinds.LEASES, world.config.lease, {"spec": {"renewTime": "x"}}, RELEASE)

    assert world.state().remembered == before
