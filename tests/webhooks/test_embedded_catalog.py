"""The embedded catalog, and the in-memory one of the kit: what they hold, and when they say no."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpu.errors import BuildRefused, Changed, FieldError, NameTaken
from gpu.template import DeviceTemplate
from webhooks.embedded import EmbeddedCatalog
from webhooks.manifests import ManifestError
from webhooks.testing import InMemoryCatalog

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
H200 = "nvidia.com/GH100_H200_SXM_141GB"
DESK_UID = "3c1d1d2e-52f4-4c2a-9d3e-0f6f1f4a7b01"
WANTED = DeviceTemplate("h200", 1)
NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def catalog(clock: Clock) -> InMemoryCatalog:
    return InMemoryCatalog.from_directory(EXAMPLES / "catalog", clock=clock)


def gpu_class(name: str = "h200", resource_name: str = H200, **spec: Any) -> dict[str, Any]:
    plugin = {"resourceName": resource_name, "nodeSelector": {}}
    fields = {"vendor": "NVIDIA", "model": "H200", "mode": "Passthrough", "memory": "141Gi", "maxCount": 8}
    return {
        "apiVersion": "gpu.cozystack.io/v1alpha1",
        "kind": "GPUClass",
        "metadata": {"name": name},
        "spec": {**fields, "source": {"devicePlugin": plugin}, **spec},
    }


def device(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "gpu.cozystack.io/v1alpha1",
        "kind": "GPUDevice",
        "metadata": {"name": name, "namespace": "tenant-a", **metadata},
        "spec": {"className": "h200"},
    }


def quota(most: object, namespace: str = "tenant-a") -> dict[str, Any]:
    hard = {} if most is None else {"count/gpudevices.gpu.cozystack.io": most}
    return {"kind": "ResourceQuota", "metadata": {"name": "gpus", "namespace": namespace}, "spec": {"hard": hard}}


def test_the_examples_are_read(catalog: InMemoryCatalog) -> None:
    offer = catalog.offer

    assert catalog.synced
    assert sorted(offer.classes) == ["h200", "l40s-24q"]
    assert offer.names == {
        H200,
        "nvidia.com/L40S-24Q",
        "nvidia.com/GA100_A100_PCIE_40GB",
        "deviceclass.resource.kubernetes.io/gpu.nvidia.com",
    }
    assert offer.device_class_names == {"gpu.nvidia.com"}
    assert sorted(found.name for found in catalog.devices("tenant-a")) == ["desk-gpu", "lab-gpu", "my-gpu"]
    assert [vmi.name for vmi in catalog.referrers("tenant-a", "desk-gpu")] == ["desk"]
    assert catalog.devices("tenant-b") == []


def test_other_kinds_and_other_config_maps_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "kind: Deployment\nmetadata: {name: a}\n---\n"
        "kind: ConfigMap\nmetadata: {name: other, namespace: x}\ndata: {resourceNames: [1]}\n---\n"
        "kind: Secret\nmetadata: {name: s}\n"
    )

    catalog = EmbeddedCatalog.from_directory(tmp_path)

    assert catalog.offer.classes == {}
    assert catalog.offer.names == frozenset()


@pytest.mark.parametrize(
    ("text", "telling"),
    [
        ("kind: GPUClass\nmetadata: {name: h200}\nspec: {mode: Half}\n", "3: GPUClass 'h200': spec.mode: must be"),
        ("kind: GPUClass\nmetadata: {name: h200}\n", "1: GPUClass 'h200': spec: is required"),
        ("kind: GPUClass\nspec: {}\n", "1: GPUClass: metadata: is required"),
        ("kind: GPUClass\nmetadata: h200\n", "2: GPUClass: metadata: must be an object, not a string"),
        ("kind: GPUClass\nmetadata: {name: [a]}\n", "2: GPUClass: metadata.name: must be a string"),
        ("kind: GPUDevice\nmetadata: {name: a.b}\nspec: {className: x}\n", "2: GPUDevice 'a.b': metadata.name: must"),
        ("kind: GPUDevice\nmetadata: {name: a, namespace: }\n", "2: GPUDevice 'a': metadata.namespace: is required"),
        ("kind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {count/gpudevices.gpu.cozystack.io: x}}\n",
         "3: ResourceQuota 'q': spec.hard[count/gpudevices.gpu.cozystack.io]: must be a quantity"),
    ],
    ids=["mode", "no spec", "no metadata", "metadata", "name", "device name", "namespace", "quota"],
)  # fmt: skip
def test_a_malformed_object_is_an_error_with_file_line_object_and_field(
    tmp_path: Path, text: str, telling: str
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text)

    with pytest.raises(ManifestError) as error:
        EmbeddedCatalog.from_directory(tmp_path)

    assert str(error.value).startswith(f"{file}, line {telling}")


def test_without_settings_the_names_are_those_of_the_classes() -> None:
    catalog = EmbeddedCatalog()
    catalog.add(gpu_class(resource_name="nvidia.com/A"))
    catalog.add(gpu_class("b", resource_name="nvidia.com/B"))

    assert catalog.offer.settings is not None
    assert catalog.offer.settings.resource_names == {"nvidia.com/A", "nvidia.com/B"}

    catalog.remove("GPUClass", "", "b")

    assert catalog.offer.settings.resource_names == {"nvidia.com/A"}


def test_an_object_that_is_put_in_takes_the_place_of_the_one_of_its_name() -> None:
    catalog = EmbeddedCatalog()
    catalog.add(gpu_class())
    catalog.add(gpu_class(maxCount=2))

    assert catalog.offer.classes["h200"].max_count == 2


def test_an_object_that_cannot_be_read_changes_nothing(catalog: InMemoryCatalog) -> None:
    with pytest.raises(FieldError):
        catalog.add(gpu_class(maxCount=99))

    assert catalog.offer.classes["h200"].max_count == 8


def test_what_is_taken_out_is_gone_and_taking_out_what_is_not_there_is_no_error(catalog: InMemoryCatalog) -> None:
    catalog.remove("GPUDevice", "tenant-a", "my-gpu")
    catalog.remove("GPUDevice", "tenant-a", "my-gpu")
    catalog.remove("Unheard", "tenant-a", "my-gpu")

    assert catalog.device("tenant-a", "my-gpu") is None


async def test_migrations_and_claims_are_looked_up(catalog: InMemoryCatalog) -> None:
    migration = {"name": "m", "namespace": "tenant-a", "uid": "m-1"}
    asked = {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}}
    catalog.add({"kind": "VirtualMachineInstanceMigration", "metadata": migration})
    catalog.add({"kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "tenant-a"}, **asked})
    catalog.add({"kind": "ResourceClaimTemplate", "metadata": {"name": "t", "namespace": "tenant-a"}, "spec": asked})

    found = catalog.migration("tenant-a", "m-1")

    assert found is not None
    assert found.name == "m"
    assert catalog.migration("tenant-b", "m-1") is None
    assert await catalog.claimed_classes("tenant-a", claim="c", template=None) == {"gpu.nvidia.com"}
    assert await catalog.claimed_classes("tenant-a", claim=None, template="t") == {"gpu.nvidia.com"}
    assert await catalog.claimed_classes("tenant-a", claim="t", template=None) == frozenset()
    assert await catalog.claimed_classes("tenant-a", claim=None, template=None) == frozenset()


async def test_a_device_is_built_as_a_template_device_created_now(catalog: InMemoryCatalog) -> None:
    built = await catalog.build_device("tenant-a", "vm-1", WANTED)

    assert (built.name, built.class_name, built.count, built.from_template) == ("vm-1", "h200", 1, True)
    assert built.touched == NOW
    assert built.uid
    assert catalog.device("tenant-a", "vm-1") == built


async def test_a_taken_name_is_told(catalog: InMemoryCatalog) -> None:
    with pytest.raises(NameTaken, match="'my-gpu' already exists"):
        await catalog.build_device("tenant-a", "my-gpu", WANTED)


async def test_a_quota_is_kept_in_its_namespace_and_told_as_the_api_does(catalog: InMemoryCatalog) -> None:
    catalog.add(quota("3"))

    with pytest.raises(
        BuildRefused, match=r"exceeded quota: gpus, requested: .*=1, used: .*=3, limited: .*=3"
    ) as error:
        await catalog.build_device("tenant-a", "vm-1", WANTED)
    elsewhere = await catalog.build_device("tenant-b", "vm-1", WANTED)

    assert (error.value.code, error.value.reason) == (403, "Forbidden")
    assert elsewhere.namespace == "tenant-b"


@pytest.mark.parametrize("most", ["4", 4, "4k", None], ids=str)
async def test_a_quota_with_room_or_for_other_things_lets_build(catalog: InMemoryCatalog, most: object) -> None:
    catalog.add(quota("0"))
    catalog.add(quota(most))

    built = await catalog.build_device("tenant-a", "vm-1", WANTED)

    assert built.name == "vm-1"


async def test_taking_over_writes_the_time_and_a_new_version(catalog: InMemoryCatalog) -> None:
    built = await catalog.build_device("tenant-a", "vm-1", WANTED)

    taken = await catalog.take_over(built, at=NOW + timedelta(minutes=1))

    assert taken.touched == NOW + timedelta(minutes=1)
    assert taken.resource_version != built.resource_version
    assert (taken.uid, taken.from_template) == (built.uid, True)


async def test_taking_over_what_was_changed_or_deleted_since_raises_changed(catalog: InMemoryCatalog) -> None:
    built = await catalog.build_device("tenant-a", "vm-1", WANTED)
    await catalog.take_over(built, at=NOW)

    with pytest.raises(Changed):
        await catalog.take_over(built, at=NOW)
    catalog.remove("GPUDevice", "tenant-a", "vm-1")
    with pytest.raises(Changed):
        await catalog.take_over(built, at=NOW)


async def test_a_template_device_that_no_vmi_came_for_goes_after_two_minutes(
    catalog: InMemoryCatalog, clock: Clock
) -> None:
    await catalog.build_device("tenant-a", "vm-1", WANTED)
    clock.now = NOW + timedelta(minutes=2)
    until_then = [found.name for found in await catalog.fresh_devices("tenant-a")]

    clock.now = NOW + timedelta(minutes=2, seconds=1)
    then = [found.name for found in await catalog.fresh_devices("tenant-a")]

    assert "vm-1" in until_then
    assert then == ["desk-gpu", "lab-gpu", "my-gpu"]


@pytest.mark.parametrize("how", ["referred to", "bound"])
async def test_a_template_device_that_a_vmi_uses_stays(catalog: InMemoryCatalog, clock: Clock, how: str) -> None:
    vmi = {"kind": "VirtualMachineInstance", "metadata": {"name": "vm", "namespace": "tenant-a", "uid": "u-1"}}
    if how == "referred to":
        vmi["metadata"]["labels"] = {"gpu.cozystack.io/device-reference": "vm-1"}  # type: ignore[index]
    await catalog.build_device("tenant-a", "vm-1", WANTED)
    catalog.add(vmi)
    if how == "bound":
        catalog.hold("tenant-a", "vm-1", node="n", vmi=vmi)

    clock.now = NOW + timedelta(hours=1)

    assert "vm-1" in [found.name for found in await catalog.fresh_devices("tenant-a")]


def test_hold_gives_a_device_what_the_controller_would(catalog: InMemoryCatalog) -> None:
    vmi = {"metadata": {"name": "vm", "uid": "u-1"}}
    waiting = catalog.device("tenant-a", "lab-gpu")

    catalog.hold("tenant-a", "lab-gpu", node="gpu-node-9", vmi=vmi, phase="InUse")

    held = catalog.device("tenant-a", "lab-gpu")
    assert waiting is not None
    assert not waiting.held
    assert held is not None
    assert (held.held, held.phase, held.node_name, held.resource_name) == (True, "InUse", "gpu-node-9", H200)
    assert held.binding is not None
    assert held.binding.uid == "u-1"
    assert held.count == 2


async def test_within_stale_memory_stays_as_it_was_and_fresh_reads_tell_the_truth(catalog: InMemoryCatalog) -> None:
    with catalog.stale():
        catalog.add(device("new-gpu"))
        catalog.remove("GPUDevice", "tenant-a", "my-gpu")
        catalog.add(gpu_class(maxCount=1))
        catalog.remove("VirtualMachineInstance", "tenant-a", "desk")

        assert catalog.device("tenant-a", "new-gpu") is None
        assert catalog.device("tenant-a", "my-gpu") is not None
        assert catalog.offer.classes["h200"].max_count == 8
        assert len(catalog.devices("tenant-a")) == 3
        assert len(catalog.referrers("tenant-a", "desk-gpu")) == len(catalog.vmis("tenant-a")) - 1 == 1
        assert catalog.vmi("tenant-a", "desk") is not None

        assert await catalog.fresh_device("tenant-a", "new-gpu") is not None
        assert await catalog.fresh_device("tenant-a", "my-gpu") is None
        assert (await catalog.fresh_offer()).classes["h200"].max_count == 1
        assert await catalog.fresh_vmi("tenant-a", "desk") is None
        assert await catalog.fresh_referrers("tenant-a", "desk-gpu") == []
        assert [vmi.name for vmi in await catalog.fresh_vmis("tenant-a")] == ["lab"]

    assert catalog.device("tenant-a", "new-gpu") is not None
    assert catalog.device("tenant-a", "my-gpu") is None


async def test_pods_are_found_by_the_uid_of_their_vmi_and_stale_memory_knows_no_new_ones(
    catalog: InMemoryCatalog,
) -> None:
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "uid": DESK_UID, "controller": True}
    pod = {"kind": "Pod", "metadata": {"name": "p", "namespace": "tenant-a", "ownerReferences": [owner]}}

    with catalog.stale():
        catalog.add(pod)

        assert catalog.pods("tenant-a", DESK_UID) == []
        assert [found.name for found in await catalog.fresh_pods("tenant-a", DESK_UID)] == ["p"]
    assert [found.name for found in catalog.pods("tenant-a", DESK_UID)] == ["p"]
    assert catalog.pods("tenant-b", DESK_UID) == []
