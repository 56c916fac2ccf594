"""Every road on which a VMI can ask for a GPU is read, and a wrong type on it is told with its field path."""

from copy import deepcopy
from typing import Any

import pytest

from gpu.errors import FieldError
from gpu.vmi import VMI, VMISpec

NAMES = frozenset({"nvidia.com/A", "nvidia.com/B"})


def manifest() -> dict[str, Any]:
    return {
        "metadata": {
            "name": "vm",
            "labels": {"gpu.cozystack.io/device-reference": "my-gpu"},
            "annotations": {"gpu.cozystack.io/device-template": "{}"},
        },
        "spec": {
            "domain": {
                "devices": {
                    "gpus": [{"name": "g", "deviceName": "nvidia.com/A"}, {"name": "c", "claimName": "claim"}],
                    "hostDevices": [
                        {"name": "nic", "deviceName": "intel.com/nic"},
                        {"name": "h", "deviceName": "nvidia.com/B"},
                        {"name": "other", "claimName": "nic-claim", "requestName": "r"},
                    ],
                },
                "resources": {
                    "requests": {"memory": "1Gi", "nvidia.com/A": "0"},
                    "limits": {"nvidia.com/B": 1, "intel.com/nic": "1"},
                },
            },
            "resourceClaims": [{"name": "claim"}],
            "networks": [{"name": "pod", "pod": {}}, {"name": "n", "resourceClaim": {"claimName": "net-claim"}}],
        },
    }


def with_value(path: str, value: object) -> dict[str, Any]:
    obj = manifest()
    *parents, last = path.split("/")
    parent: Any = obj
    for key in parents:
        parent = parent[int(key)] if key.isdigit() else parent[key]
    parent[last.replace("~1", "/")] = value
    return obj


def test_the_marks_are_read() -> None:
    vmi = VMISpec.read(manifest())

    assert (vmi.name, vmi.reference, vmi.template) == ("vm", "my-gpu", "{}")


def test_every_entry_of_gpus_and_those_host_devices_that_name_a_gpu_are_gpu_entries() -> None:
    paths = [entry.path for entry in VMISpec.read(manifest()).entries(NAMES)]

    assert paths == [
        "spec.domain.devices.gpus[0]",
        "spec.domain.devices.gpus[1]",
        "spec.domain.devices.hostDevices[1]",
    ]


def test_an_entry_asks_by_name_or_by_claim() -> None:
    by_name, by_claim, _ = VMISpec.read(manifest()).entries(NAMES)

    assert (by_name.device_name, by_name.by_claim) == ("nvidia.com/A", False)
    assert (by_claim.device_name, by_claim.by_claim) == (None, True)


def test_gpu_names_in_resources_are_found_whatever_their_quantity() -> None:
    paths = [amount.path for amount in VMISpec.read(manifest()).gpu_amounts(NAMES)]

    assert paths == ["spec.domain.resources.requests[nvidia.com/A]", "spec.domain.resources.limits[nvidia.com/B]"]


def test_claims_of_networks_are_found() -> None:
    assert list(VMISpec.read(manifest()).network_claims()) == ["net-claim"]


def test_every_name_outside_gpus_is_found() -> None:
    names = list(VMISpec.read(manifest()).resource_names())

    assert names == ["intel.com/nic", "nvidia.com/B", "memory", "nvidia.com/A", "nvidia.com/B", "intel.com/nic"]


def test_reading_changes_nothing() -> None:
    obj = manifest()
    before = deepcopy(obj)

    list(VMISpec.read(obj).entries(NAMES))

    assert obj == before


def seen(vmi: VMISpec) -> tuple[object, ...]:
    return (
        (vmi.name, vmi.reference, vmi.template),
        [(entry.path, entry.device_name, entry.by_claim) for entry in vmi.entries(NAMES)],
        [amount.path for amount in vmi.gpu_amounts(NAMES)],
        list(vmi.network_claims()),
        list(vmi.resource_names()),
        list(vmi.resource_claims),
    )


@pytest.mark.parametrize(
    "path",
    [
        "metadata/name",
        "metadata/labels",
        "metadata/annotations",
        "spec",
        "spec/domain",
        "spec/domain/devices",
        "spec/domain/devices/gpus",
        "spec/domain/devices/hostDevices",
        "spec/domain/devices/gpus/0/deviceName",
        "spec/domain/resources",
        "spec/domain/resources/requests",
        "spec/domain/resources/limits",
        "spec/resourceClaims",
        "spec/networks",
    ],
)
def test_null_is_as_good_as_missing(path: str) -> None:
    missing = with_value(path, None)
    *parents, last = path.split("/")
    parent: Any = missing
    for key in parents:
        parent = parent[int(key)] if key.isdigit() else parent[key]
    del parent[last]

    of_null, of_missing = VMISpec.read(with_value(path, None)), VMISpec.read(missing)

    assert seen(of_null) == seen(of_missing)
    assert seen(of_null) != seen(VMISpec.read(manifest()))


@pytest.mark.parametrize(
    ("path", "value", "blamed"),
    [
        ("metadata", "vm", "metadata"),
        ("metadata/name", 7, "metadata.name"),
        ("metadata/labels", [], "metadata.labels"),
        ("metadata/labels/gpu.cozystack.io~1device-reference", 7, "metadata.labels[gpu.cozystack.io/device-reference]"),
        ("metadata/annotations", "x", "metadata.annotations"),
        (
            "metadata/annotations/gpu.cozystack.io~1device-template",
            {"className": "h200"},
            "metadata.annotations[gpu.cozystack.io/device-template]",
        ),
        ("spec", [], "spec"),
        ("spec/domain", "x", "spec.domain"),
        ("spec/domain/devices", [], "spec.domain.devices"),
        ("spec/domain/devices/gpus", {}, "spec.domain.devices.gpus"),
        ("spec/domain/devices/gpus", [{}, "g"], "spec.domain.devices.gpus[1]"),
        ("spec/domain/devices/gpus", [None], "spec.domain.devices.gpus[0]"),
        ("spec/domain/devices/gpus/1/name", 1, "spec.domain.devices.gpus[1].name"),
        ("spec/domain/devices/gpus/0/deviceName", ["nvidia.com/A"], "spec.domain.devices.gpus[0].deviceName"),
        ("spec/domain/devices/gpus/0/claimName", {}, "spec.domain.devices.gpus[0].claimName"),
        ("spec/domain/devices/gpus/0/requestName", True, "spec.domain.devices.gpus[0].requestName"),
        ("spec/domain/devices/hostDevices", "x", "spec.domain.devices.hostDevices"),
        ("spec/domain/devices/hostDevices/2/deviceName", [], "spec.domain.devices.hostDevices[2].deviceName"),
        ("spec/domain/resources", [], "spec.domain.resources"),
        ("spec/domain/resources/requests", ["nvidia.com/A"], "spec.domain.resources.requests"),
        ("spec/domain/resources/limits", "x", "spec.domain.resources.limits"),
        ("spec/resourceClaims", {}, "spec.resourceClaims"),
        ("spec/resourceClaims", ["claim"], "spec.resourceClaims[0]"),
        ("spec/networks", "pod", "spec.networks"),
    ],
)
def test_a_wrong_type_is_told_with_its_field_path(path: str, value: object, blamed: str) -> None:
    with pytest.raises(FieldError) as error:
        VMISpec.read(with_value(path, value))

    assert (error.value.path, error.value.reason) == (blamed, "FieldValueTypeInvalid")


def test_a_vmi_without_metadata_is_refused() -> None:
    with pytest.raises(FieldError, match="metadata: is required"):
        VMISpec.read({"spec": {}})


def test_a_vmi_that_exists_is_read() -> None:
    metadata = {
        "namespace": "a",
        "name": "vm",
        "uid": "v-1",
        "ownerReferences": [{"uid": "o-1", "controller": True}],
        "labels": {"gpu.cozystack.io/device-reference": "my-gpu"},
        "deletionTimestamp": "2026-01-01T00:00:00Z",
    }

    vmi = VMI.from_dict({"metadata": metadata})

    assert (vmi.namespace, vmi.name, vmi.uid, vmi.owner_uid) == ("a", "vm", "v-1", "o-1")
    assert (vmi.device, vmi.deleting) == ("my-gpu", True)


@pytest.mark.parametrize("key", ["namespace", "name", "uid"])
def test_a_vmi_that_exists_has_a_namespace_a_name_and_a_uid(key: str) -> None:
    metadata = {"namespace": "a", "name": "vm", "uid": "v-1"}
    del metadata[key]

    with pytest.raises(FieldError) as error:
        VMI.from_dict({"metadata": metadata})

    assert error.value.path == f"metadata.{key}"
