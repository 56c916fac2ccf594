"""GPUClass is read by the rules of its CRD, and what breaks one is told with its field path."""

from copy import deepcopy
from typing import Any

import pytest

from gpu.errors import FieldError
from gpu.gpuclass import GPUClass, is_extended, is_sellable

DEVICE_PLUGIN = "spec.source.devicePlugin"


def manifest() -> dict[str, Any]:
    return {
        "apiVersion": "gpu.cozystack.io/v1alpha1",
        "kind": "GPUClass",
        "metadata": {"name": "h200", "uid": "c-1"},
        "spec": {
            "vendor": "NVIDIA",
            "model": "H200",
            "mode": "Passthrough",
            "memory": "141Gi",
            "maxCount": 8,
            "maxPerNamespace": 16,
            "source": {"devicePlugin": {"resourceName": "nvidia.com/H200", "nodeSelector": {"pool": "h200"}}},
        },
        "status": {"resourceNames": ["nvidia.com/H200", "nvidia.com/OLD"]},
    }


def with_value(path: str, value: object) -> dict[str, Any]:
    obj = manifest()
    *parents, last = path.split(".")
    parent = obj
    for key in parents:
        parent = parent[key]
    parent[last] = value
    return obj


def without(path: str) -> dict[str, Any]:
    obj = manifest()
    *parents, last = path.split(".")
    parent = obj
    for key in parents:
        parent = parent[key]
    del parent[last]
    return obj


def test_every_field_is_read() -> None:
    obj = manifest()
    before = deepcopy(obj)

    found = GPUClass.from_dict(obj)

    assert (found.name, found.uid, found.deleting) == ("h200", "c-1", False)
    assert (found.vendor, found.model, found.mode, found.profile) == ("NVIDIA", "H200", "Passthrough", None)
    assert (found.memory, found.max_count, found.max_per_namespace) == ("141Gi", 8, 16)
    assert found.resource_name == "nvidia.com/H200"
    assert found.source is not None
    assert found.source.node_selector == {"pool": "h200"}
    assert obj == before


def test_every_name_that_it_ever_sold_is_a_gpu() -> None:
    found = GPUClass.from_dict(manifest())

    assert set(found.resource_names) == {"nvidia.com/H200", "nvidia.com/OLD"}


def test_without_a_status_only_its_own_name_is_a_gpu() -> None:
    assert GPUClass.from_dict(without("status")).resource_names == ("nvidia.com/H200",)


def test_a_deletion_timestamp_says_that_it_is_being_deleted() -> None:
    assert GPUClass.from_dict(with_value("metadata.deletionTimestamp", "2026-01-01T00:00:00Z")).deleting


@pytest.mark.parametrize(
    "path", ["spec.maxPerNamespace", f"{DEVICE_PLUGIN}.nodeSelector", "metadata.uid", "status.resourceNames"]
)
@pytest.mark.parametrize("missing", [True, False], ids=["missing", "null"])
def test_what_is_optional_may_be_missing_or_null(path: str, missing: bool) -> None:  # noqa: FBT001
    obj = without(path) if missing else with_value(path, None)

    assert GPUClass.from_dict(obj).name == "h200"


@pytest.mark.parametrize(
    "path",
    [
        "metadata",
        "metadata.name",
        "spec",
        "spec.vendor",
        "spec.model",
        "spec.mode",
        "spec.memory",
        "spec.maxCount",
        "spec.source",
        f"{DEVICE_PLUGIN}.resourceName",
    ],
)
@pytest.mark.parametrize("missing", [True, False], ids=["missing", "null"])
def test_what_is_required_must_be_there(path: str, missing: bool) -> None:  # noqa: FBT001
    obj = without(path) if missing else with_value(path, None)

    with pytest.raises(FieldError) as error:
        GPUClass.from_dict(obj)

    assert (error.value.path, error.value.reason) == (path, "FieldValueRequired")


@pytest.mark.parametrize(
    "path",
    ["metadata.name", "spec.vendor", "spec.model", "spec.mode", f"{DEVICE_PLUGIN}.resourceName"],
)
def test_what_is_required_must_not_be_empty(path: str) -> None:
    with pytest.raises(FieldError, match="must not be empty") as error:
        GPUClass.from_dict(with_value(path, ""))

    assert error.value.path == path


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("metadata", [], "must be an object, not a list"),
        ("metadata.name", 7, "must be a string, not a whole number"),
        ("metadata.uid", {}, "must be a string, not an object"),
        ("metadata.deletionTimestamp", True, "must be a string, not true or false"),
        ("spec", "h200", "must be an object, not a string"),
        ("spec.vendor", ["NVIDIA"], "must be a string, not a list"),
        ("spec.model", 200, "must be a string, not a whole number"),
        ("spec.mode", 1.5, "must be a string, not a number"),
        ("spec.profile", 1, "must be a string, not a whole number"),
        ("spec.maxCount", "8", "must be a whole number, not a string"),
        ("spec.maxCount", True, "must be a whole number, not true or false"),
        ("spec.maxCount", 8.0, "must be a whole number, not a number"),
        ("spec.maxPerNamespace", "16", "must be a whole number, not a string"),
        ("spec.maxPerNamespace", False, "must be a whole number, not true or false"),
        ("spec.source", [], "must be an object, not a list"),
        (DEVICE_PLUGIN, "nvidia.com/H200", "must be an object, not a string"),
        (f"{DEVICE_PLUGIN}.resourceName", 1, "must be a string, not a whole number"),
        (f"{DEVICE_PLUGIN}.nodeSelector", ["pool"], "must be an object, not a list"),
        ("status", "ready", "must be an object, not a string"),
        ("status.resourceNames", "nvidia.com/H200", "must be a list, not a string"),
    ],
)
def test_a_wrong_type_is_told_with_its_field_path(path: str, value: object, problem: str) -> None:
    with pytest.raises(FieldError) as error:
        GPUClass.from_dict(with_value(path, value))

    assert (error.value.path, error.value.problem) == (path, problem)
    assert error.value.reason == "FieldValueTypeInvalid"
    assert str(error.value) == f"{path}: {problem}"


@pytest.mark.parametrize(
    ("path", "value", "blamed"),
    [
        (f"{DEVICE_PLUGIN}.nodeSelector", {"gpu.example.com/pool": 7}, "[gpu.example.com/pool]"),
        (f"{DEVICE_PLUGIN}.nodeSelector", {"pool": None}, ".pool"),
        ("status.resourceNames", ["nvidia.com/H200", 7], "[1]"),
        ("status.resourceNames", [None], "[0]"),
    ],
)
def test_a_wrong_type_within_a_map_or_a_list_names_the_very_member(path: str, value: object, blamed: str) -> None:
    with pytest.raises(FieldError, match="must be a string") as error:
        GPUClass.from_dict(with_value(path, value))

    assert error.value.path == path + blamed


def test_mode_is_one_of_two() -> None:
    with pytest.raises(FieldError, match="must be Passthrough or VGPU") as error:
        GPUClass.from_dict(with_value("spec.mode", "passthrough"))

    assert (error.value.path, error.value.reason) == ("spec.mode", "FieldValueNotSupported")


def test_a_vgpu_class_has_a_profile() -> None:
    obj = with_value("spec.mode", "VGPU")
    obj["spec"]["profile"] = "L40S-24Q"

    assert GPUClass.from_dict(obj).profile == "L40S-24Q"


@pytest.mark.parametrize("profile", [None, ""], ids=["null", "empty"])
def test_a_vgpu_class_without_a_profile_is_refused(profile: str | None) -> None:
    obj = with_value("spec.mode", "VGPU")
    obj["spec"]["profile"] = profile

    with pytest.raises(FieldError, match="is required when mode is VGPU") as error:
        GPUClass.from_dict(obj)

    assert error.value.path == "spec.profile"


def test_a_passthrough_class_with_a_profile_is_refused() -> None:
    with pytest.raises(FieldError, match="must not be set when mode is Passthrough") as error:
        GPUClass.from_dict(with_value("spec.profile", "L40S-24Q"))

    assert error.value.path == "spec.profile"


@pytest.mark.parametrize("memory", ["141Gi", "24G", "1", 141, "1e3", "0.5Ti"])
def test_memory_is_a_quantity_above_zero(memory: object) -> None:
    assert GPUClass.from_dict(with_value("spec.memory", memory)).memory == str(memory)


@pytest.mark.parametrize("memory", ["0", "0Gi", "-1Gi", "much", "", True, ["141Gi"], {}, "141 Gi"])
def test_memory_that_is_no_quantity_above_zero_is_refused(memory: object) -> None:
    with pytest.raises(FieldError, match="must be a quantity above zero") as error:
        GPUClass.from_dict(with_value("spec.memory", memory))

    assert error.value.path == "spec.memory"


@pytest.mark.parametrize("count", [1, 16])
def test_max_count_is_from_1_to_16(count: int) -> None:
    assert GPUClass.from_dict(with_value("spec.maxCount", count)).max_count == count


@pytest.mark.parametrize("count", [0, -1, 17, 2**63])
def test_another_max_count_is_refused(count: int) -> None:
    with pytest.raises(FieldError, match="must be from 1 to 16") as error:
        GPUClass.from_dict(with_value("spec.maxCount", count))

    assert error.value.path == "spec.maxCount"


def test_a_namespace_may_be_allowed_no_gpu_at_all() -> None:
    assert GPUClass.from_dict(with_value("spec.maxPerNamespace", 0)).max_per_namespace == 0


def test_a_namespace_can_not_be_allowed_less_than_none() -> None:
    with pytest.raises(FieldError, match="must not be negative") as error:
        GPUClass.from_dict(with_value("spec.maxPerNamespace", -1))

    assert error.value.path == "spec.maxPerNamespace"


@pytest.mark.parametrize(
    "source",
    [{}, {"devicePlugin": {"resourceName": "nvidia.com/H200"}, "dra": {"deviceClassName": "gpu.nvidia.com"}}],
    ids=["none", "two"],
)
def test_a_source_holds_exactly_one_kind(source: dict[str, Any]) -> None:
    with pytest.raises(FieldError, match="exactly one kind of source") as error:
        GPUClass.from_dict(with_value("spec.source", source))

    assert error.value.path == "spec.source"


def test_a_kind_of_source_that_is_null_is_refused() -> None:
    with pytest.raises(FieldError, match="is required") as error:
        GPUClass.from_dict(with_value(DEVICE_PLUGIN, None))

    assert error.value.path == DEVICE_PLUGIN


def test_a_kind_of_source_that_is_not_known_here_sells_nothing_but_keeps_its_old_names() -> None:
    found = GPUClass.from_dict(with_value("spec.source", {"dra": {"deviceClassName": "gpu.nvidia.com"}}))

    assert found.source is None
    assert found.resource_name is None
    assert set(found.resource_names) == {"nvidia.com/H200", "nvidia.com/OLD"}


@pytest.mark.parametrize(
    "name",
    [
        "nvidia.com/H200",
        "amd.com/gpu",
        "a.b-c.d/GH100_H200.SXM-141",
        "gpu/x",
        "mykubernetes.io/gpu",
        "n.io/" + "x" * 63,
    ],
)
def test_a_resource_name_has_a_vendors_domain(name: str) -> None:
    assert is_sellable(name)
    assert is_extended(name)
    assert GPUClass.from_dict(with_value(f"{DEVICE_PLUGIN}.resourceName", name)).resource_name == name


@pytest.mark.parametrize(
    "name",
    [
        "gpu",
        "memory",
        "kubernetes.io/gpu",
        "node.kubernetes.io/gpu",
        "devices.kubevirt.io/kvm",
        "deviceclass.resource.kubernetes.io/gpu.nvidia.com",
        "/gpu",
        "nvidia.com/",
        "nvidia.com/a/b",
        "NVIDIA.com/gpu",
        "nvidia .com/gpu",
        "nvidia.com/-gpu",
        "nvidia.com/gpu\n",
        "nvidia..com/gpu",
        "n.io/" + "x" * 64,
    ],
)
def test_another_resource_name_is_refused(name: str) -> None:
    with pytest.raises(FieldError, match="must be an extended resource with a vendor's domain") as error:
        GPUClass.from_dict(with_value(f"{DEVICE_PLUGIN}.resourceName", name))

    assert error.value.path == f"{DEVICE_PLUGIN}.resourceName"


@pytest.mark.parametrize("name", ["gpu", "kubernetes.io/gpu", "a.b.kubernetes.io/gpu", "devices.kubevirt.io/kvm"])
def test_kubernetes_and_kubevirts_own_resources_never_stand_for_a_gpu(name: str) -> None:
    assert not is_sellable(name)
    assert not is_extended(name)


def test_the_name_of_a_device_class_can_stand_for_a_gpu_but_not_be_sold() -> None:
    assert is_extended("deviceclass.resource.kubernetes.io/gpu.nvidia.com")
    assert not is_sellable("deviceclass.resource.kubernetes.io/gpu.nvidia.com")
