"""GPUDevice is read by the rules of its CRD, and what breaks one is told with its field path."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gpu.errors import FieldError
from gpu.gpuclass import GPUClass
from gpu.gpudevice import Binding, GPUDevice, Reservation, is_device_name
from gpu.rewrite import Grant, granted


def manifest(**status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "gpu.cozystack.io/v1alpha1",
        "kind": "GPUDevice",
        "metadata": {"namespace": "tenant-a", "name": "my-gpu", "uid": "d-1", "resourceVersion": "7"},
        "spec": {"className": "h200", "count": 2},
        "status": status,
    }


HELD = {"phase": "Held", "resourceName": "nvidia.com/H200", "nodeName": "gpu-node-1"}


def with_value(path: str, value: object) -> dict[str, Any]:
    obj = manifest(**HELD, binding={"name": "vm", "uid": "v-1"}, migration={"uid": "m-1", "nodeName": "gpu-node-2"})
    *parents, last = path.split(".")
    parent = obj
    for key in parents:
        parent = parent.setdefault(key, {})
    parent[last] = value
    return obj


def test_every_field_is_read() -> None:
    binding = {"name": "vm", "uid": "v-1"}
    migration = {"uid": "m-1", "nodeName": "gpu-node-2"}

    device = GPUDevice.from_dict(manifest(**HELD, binding=binding, migration=migration))

    assert (device.namespace, device.name, device.uid, device.resource_version) == ("tenant-a", "my-gpu", "d-1", "7")
    assert (device.class_name, device.count, device.deleting, device.from_template) == ("h200", 2, False, False)
    assert (device.phase, device.resource_name, device.node_name) == ("Held", "nvidia.com/H200", "gpu-node-1")
    assert device.binding == Binding(name="vm", uid="v-1")
    assert device.migration == Reservation(uid="m-1", node_name="gpu-node-2")


def test_a_device_without_a_status_is_pending() -> None:
    obj = manifest()
    del obj["status"]

    device = GPUDevice.from_dict(obj)

    assert (device.phase, device.held, device.binding, device.migration) == ("Pending", False, None, None)
    assert device.waiting is None


@pytest.mark.parametrize("spec", [{"className": "h200"}, {"className": "h200", "count": None}], ids=["missing", "null"])
def test_it_orders_one_gpu_where_no_count_is_given(spec: dict[str, Any]) -> None:
    assert GPUDevice.from_dict({**manifest(), "spec": spec}).count == 1


@pytest.mark.parametrize("count", [1, 16])
def test_it_orders_from_1_to_16(count: int) -> None:
    assert GPUDevice.from_dict(with_value("spec.count", count)).count == count


@pytest.mark.parametrize("count", [0, -1, 17])
def test_another_count_is_refused(count: int) -> None:
    with pytest.raises(FieldError, match="must be from 1 to 16") as error:
        GPUDevice.from_dict(with_value("spec.count", count))

    assert error.value.path == "spec.count"


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("metadata", "my-gpu", "must be an object, not a string"),
        ("metadata.namespace", 1, "must be a string, not a whole number"),
        ("metadata.name", ["my-gpu"], "must be a string, not a list"),
        ("metadata.uid", 1, "must be a string, not a whole number"),
        ("metadata.resourceVersion", 7, "must be a string, not a whole number"),
        ("metadata.labels", [], "must be an object, not a list"),
        ("metadata.annotations", "", "must be an object, not a string"),
        ("metadata.deletionTimestamp", 0, "must be a string, not a whole number"),
        ("spec", [], "must be an object, not a list"),
        ("spec.className", {}, "must be a string, not an object"),
        ("spec.count", "2", "must be a whole number, not a string"),
        ("spec.count", True, "must be a whole number, not true or false"),
        ("spec.count", 2.0, "must be a whole number, not a number"),
        ("status", "Held", "must be an object, not a string"),
        ("status.phase", 1, "must be a string, not a whole number"),
        ("status.resourceName", [], "must be a string, not a list"),
        ("status.nodeName", {}, "must be a string, not an object"),
        ("status.binding", "vm", "must be an object, not a string"),
        ("status.binding.name", 1, "must be a string, not a whole number"),
        ("status.binding.uid", 1, "must be a string, not a whole number"),
        ("status.migration", [], "must be an object, not a list"),
        ("status.migration.uid", 1, "must be a string, not a whole number"),
        ("status.migration.nodeName", 1, "must be a string, not a whole number"),
        ("status.conditions", {}, "must be a list, not an object"),
    ],
)
def test_a_wrong_type_is_told_with_its_field_path(path: str, value: object, problem: str) -> None:
    with pytest.raises(FieldError) as error:
        GPUDevice.from_dict(with_value(path, value))

    assert (error.value.path, error.value.problem) == (path, problem)
    assert error.value.reason == "FieldValueTypeInvalid"


@pytest.mark.parametrize(
    "path",
    [
        "metadata",
        "metadata.name",
        "metadata.namespace",
        "spec",
        "spec.className",
        "status.binding.name",
        "status.binding.uid",
        "status.migration.uid",
        "status.migration.nodeName",
    ],
)
def test_what_is_required_must_be_there(path: str) -> None:
    with pytest.raises(FieldError) as error:
        GPUDevice.from_dict(with_value(path, None))

    assert (error.value.path, error.value.reason) == (path, "FieldValueRequired")


def test_a_condition_that_is_no_object_is_told_by_its_place() -> None:
    with pytest.raises(FieldError) as error:
        GPUDevice.from_dict(manifest(conditions=[{"type": "Held"}, "Held"]))

    assert error.value.path == "status.conditions[1]"


@pytest.mark.parametrize("name", ["a", "my-gpu", "0", "x" * 63])
def test_its_name_is_a_dns_label(name: str) -> None:
    assert is_device_name(name)
    assert GPUDevice.from_dict(with_value("metadata.name", name)).name == name


@pytest.mark.parametrize("name", ["My-gpu", "my.gpu", "-gpu", "gpu-", "x" * 64, "my_gpu", "gpu\n", "gpü", "a/b"])
def test_another_name_is_refused(name: str) -> None:
    assert not is_device_name(name)
    with pytest.raises(FieldError, match="DNS label of at most 63 characters") as error:
        GPUDevice.from_dict(with_value("metadata.name", name))

    assert error.value.path == "metadata.name"


@pytest.mark.parametrize("phase", ["Held", "InUse", "Releasing"])
def test_it_is_held_with_a_node_and_a_resource(phase: str) -> None:
    assert GPUDevice.from_dict(manifest(**{**HELD, "phase": phase})).held


@pytest.mark.parametrize("change", [{"phase": "Pending"}, {"nodeName": None}, {"resourceName": ""}])
def test_it_is_not_held_without_one_of_them(change: dict[str, Any]) -> None:
    assert not GPUDevice.from_dict(manifest(**{**HELD, **change})).held


def test_the_label_tells_a_template_device() -> None:
    assert GPUDevice.from_dict(
        with_value("metadata.labels", {"gpu.cozystack.io/template-device": "true"})
    ).from_template
    assert not GPUDevice.from_dict(with_value("metadata.labels", {"app": "x"})).from_template


def test_why_it_waits_is_told_with_reason_and_message() -> None:
    condition = {"type": "Held", "status": "False", "reason": "NoCapacity", "message": "no node is free"}

    assert GPUDevice.from_dict(manifest(conditions=[condition])).waiting == "NoCapacity: no node is free"
    assert GPUDevice.from_dict(manifest(conditions=[{**condition, "status": "True"}])).waiting is None
    assert GPUDevice.from_dict(manifest(conditions=[{**condition, "type": "Ready"}])).waiting is None


@pytest.mark.parametrize(
    ("created", "taken_over", "touched"),
    [
        (None, None, None),
        ("2026-01-01T00:00:00Z", None, 1),
        ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00.5+00:00", 2),
        ("2026-01-03T00:00:00Z", "2026-01-02T00:00:00Z", 3),
        ("2026-01-01T00:00:00Z", "yesterday", 1),
        ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00", 1),
        (7, None, None),
    ],
    ids=["unknown", "created", "taken over", "the later counts", "no time", "no time zone", "no text"],
)
def test_it_was_touched_when_it_was_created_or_last_taken_over(
    created: object, taken_over: str | None, touched: int | None
) -> None:
    obj = with_value("metadata.creationTimestamp", created)
    obj["metadata"]["annotations"] = {"gpu.cozystack.io/taken-over": taken_over}

    found = GPUDevice.from_dict(obj).touched

    assert (found and found.replace(microsecond=0)) == (touched and datetime(2026, 1, touched, tzinfo=UTC))


def test_it_fits_an_order_of_the_same_class_and_count_only() -> None:
    device = GPUDevice.from_dict(manifest())

    assert device.fits("h200", 2)
    assert not device.fits("h200", 1)
    assert not device.fits("l40s", 2)


def gpu_class(source: dict[str, Any]) -> GPUClass:
    spec = {"vendor": "v", "model": "m", "mode": "Passthrough", "memory": "1Gi", "maxCount": 8, "source": source}
    return GPUClass.from_dict({"metadata": {"name": "h200"}, "spec": spec})


NEW_NAME = gpu_class({"devicePlugin": {"resourceName": "nvidia.com/NEW"}})
UNKNOWN_SOURCE = gpu_class({"dra": {}})


def test_while_it_is_held_it_grants_what_it_holds() -> None:
    assert granted(GPUDevice.from_dict(manifest(**HELD)), NEW_NAME) == Grant("nvidia.com/H200", 2)
    assert granted(GPUDevice.from_dict(manifest(**HELD)), None) == Grant("nvidia.com/H200", 2)


def test_while_it_waits_it_grants_what_its_class_sells() -> None:
    waiting = GPUDevice.from_dict(manifest(**{**HELD, "phase": "Pending"}))

    assert granted(waiting, NEW_NAME) == Grant("nvidia.com/NEW", 2)


@pytest.mark.parametrize("known", [None, UNKNOWN_SOURCE], ids=["no class", "a source that is not known here"])
def test_while_it_waits_for_what_nobody_sells_it_grants_nothing(known: GPUClass | None) -> None:
    assert granted(GPUDevice.from_dict(manifest()), known) is None
