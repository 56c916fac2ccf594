"""What the CRDs let in and refuse, and that the readers read what they let in."""

import itertools
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import pytest
from controlplane.client import Client, ref
from controlplane.errors import APIError

from gpu import names
from gpu.errors import FieldError
from gpu.gpuclass import GPUClass
from gpu.gpudevice import GPUDevice
from gpu.quantity import quantity

pytestmark = pytest.mark.usefixtures("plain_release")

SPEC: Mapping[str, Any] = {
    "vendor": "NVIDIA",
    "model": "H200 SXM",
    "mode": "Passthrough",
    "memory": "141Gi",
    "maxCount": 8,
    "source": {"devicePlugin": {"resourceName": "nvidia.com/GH100_H200_SXM_141GB", "nodeSelector": {"a": "b"}}},
}
CRDS = ("gpuclasses.gpu.cozystack.io", "gpudevices.gpu.cozystack.io")
_numbers = itertools.count(1)


def gpu_class(**spec: Any) -> dict[str, Any]:
    """A class with fields of its spec changed, or left out where None."""
    merged = {name: value for name, value in {**SPEC, **spec}.items() if value is not None}
    metadata = {"name": f"class-{next(_numbers)}"}
    return {"apiVersion": names.API_VERSION, "kind": names.GPU_CLASS, "metadata": metadata, "spec": merged}


def gpu_device(*, name: str = "", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name or f"device-{next(_numbers)}", "namespace": "default"}
    spec = {name: value for name, value in {"className": "h200", **spec}.items() if value is not None}
    return {"apiVersion": names.API_VERSION, "kind": names.GPU_DEVICE, "metadata": metadata, "spec": spec}


def plugin(name: str, **more: Any) -> dict[str, Any]:
    return {"source": {"devicePlugin": {"resourceName": name, **more}}}


GOOD_CLASSES: Mapping[str, dict[str, Any]] = {
    "passthrough": {},
    "vgpu": {"mode": "VGPU", "profile": "L40S-24Q"},
    "one at a time": {"maxCount": 1},
    "sixteen at a time": {"maxCount": 16},
    "a whole number written as a float": {"maxCount": 4.0},
    "none for anybody": {"maxPerNamespace": 0},
    "some for everybody": {"maxPerNamespace": 64},
    "no node selector": plugin("nvidia.com/gpu"),
    "a short domain": plugin("a/b"),
    "a domain that ends like Kubernetes's": plugin("mykubernetes.io/gpu"),
    "a domain that begins like Kubernetes's": plugin("kubernetes.io.example.com/gpu"),
    "the longest name": plugin(f"{'a' * 63}.{'b' * 63}.{'c' * 63}.{'d' * 61}/{'e' * 63}"),
}
VENDORS_DOMAIN = "must have a vendor's domain"
EXTENDED = "must be an extended resource with a vendor's domain"
BAD_CLASSES: Mapping[str, tuple[dict[str, Any], str, str]] = {
    "no vendor": ({"vendor": None}, "spec.vendor", "Required value"),
    "an empty vendor": ({"vendor": ""}, "spec.vendor", "should be at least 1 chars long"),
    "no model": ({"model": None}, "spec.model", "Required value"),
    "no mode": ({"mode": None}, "spec.mode", "Required value"),
    "another mode": ({"mode": "MIG"}, "spec.mode", 'supported values: "Passthrough", "VGPU"'),
    "vgpu without a profile": ({"mode": "VGPU"}, "spec.profile", "is required when mode is VGPU"),
    "a profile with passthrough": ({"profile": "a"}, "spec.profile", "must not be set when mode is Passthrough"),
    "an empty profile": ({"profile": "", "mode": "VGPU"}, "spec.profile", "should be at least 1 chars long"),
    "no memory": ({"memory": None}, "spec.memory", "Required value"),
    "no amount of memory": ({"memory": "0Gi"}, "spec.memory", "must be a quantity above zero, such as 141Gi"),
    "no bytes of memory": ({"memory": 0}, "spec.memory", "must be a quantity above zero, such as 141Gi"),
    "negative memory": ({"memory": -1}, "spec.memory", "must be a quantity above zero, such as 141Gi"),
    "memory in words": ({"memory": "141 GB"}, "spec.memory", "should match"),
    "no maxCount": ({"maxCount": None}, "spec.maxCount", "Required value"),
    "a maxCount of none": ({"maxCount": 0}, "spec.maxCount", "should be greater than or equal to 1"),
    "a maxCount of seventeen": ({"maxCount": 17}, "spec.maxCount", "should be less than or equal to 16"),
    "half a GPU": ({"maxCount": 1.5}, "spec.maxCount", "must be of type int"),
    "less than none for anybody": ({"maxPerNamespace": -1}, "spec.maxPerNamespace", "greater than or equal to 0"),
    "no source": ({"source": None}, "spec.source", "Required value"),
    "no kind of source": ({"source": {}}, "spec.source", "must hold exactly one kind of source: devicePlugin"),
    "an unknown kind of source": ({"source": {"dra": {}}}, "spec.source", "must hold exactly one kind of source"),
    "a source without a name": ({"source": {"devicePlugin": {}}}, "resourceName", "Required value"),
    "a name without a domain": (plugin("gpu"), "resourceName", EXTENDED),
    "an empty name": (plugin(""), "resourceName", "should be at least 1 chars long"),
    "a name that ends at its domain": (plugin("nvidia.com/"), "resourceName", EXTENDED),
    "a name with two slashes": (plugin("nvidia.com/a/b"), "resourceName", EXTENDED),
    "a domain in capitals": (plugin("NVIDIA.com/a"), "resourceName", EXTENDED),
    "a name that is too long": (plugin(f"nvidia.com/{'a' * 64}"), "resourceName", EXTENDED),
    "a domain that is too long": (plugin(f"{'a' * 254}/b"), "resourceName", "at most 253 characters"),
    "kubernetes.io": (plugin("kubernetes.io/gpu"), "resourceName", VENDORS_DOMAIN),
    "below kubernetes.io": (plugin("a.kubernetes.io/gpu"), "resourceName", VENDORS_DOMAIN),
    "a DeviceClass": (plugin("deviceclass.resource.kubernetes.io/gpu"), "resourceName", VENDORS_DOMAIN),
    "KubeVirt's": (plugin("devices.kubevirt.io/kvm"), "resourceName", VENDORS_DOMAIN),
    "a node selector of numbers": (plugin("a/b", nodeSelector={"a": 1}), "nodeSelector.a", "must be of type string"),
}


async def refusal(kube: Client, obj: Mapping[str, Any]) -> APIError | None:
    try:
        await kube.create(obj, dry_run=True)
    except APIError as error:
        return error
    return None


@pytest.mark.parametrize("name", CRDS)
async def test_the_api_server_finds_nothing_wrong_with_the_crds(kube: Client, name: str) -> None:
    crd = await kube.get(ref("apiextensions.k8s.io/v1", "CustomResourceDefinition", name))

    conditions = {condition["type"]: condition["status"] for condition in crd["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}


async def test_a_class_that_is_let_in_can_be_read(kube: Client) -> None:
    for case, spec in GOOD_CLASSES.items():
        created = await kube.create(gpu_class(**spec), dry_run=True)
        assert GPUClass.from_dict(created).max_count in range(1, 17), case
        assert created.warnings == []


async def test_a_class_that_says_what_cannot_be_is_refused_with_what_is_wrong(kube: Client) -> None:
    for case, (spec, field, message) in BAD_CLASSES.items():
        error = await refusal(kube, gpu_class(**spec))
        assert error is not None, case
        assert (error.code, error.reason) == (422, "Invalid"), case
        assert any(field in cause["field"] and message in cause["message"] for cause in error.causes), error


async def test_a_class_that_the_reader_refuses_is_refused_by_the_crd(kube: Client) -> None:
    for case, (spec, _, _) in BAD_CLASSES.items():
        try:
            GPUClass.from_dict(gpu_class(**spec))
        except FieldError:
            assert await refusal(kube, gpu_class(**spec)) is not None, case


@pytest.mark.parametrize(
    ("memory", "good"),
    [
        *(
            (text, True)
            for text in ("1", "141Gi", "80G", "1.5Ti", ".5Ti", "1.Ti", "+2Gi", "1e9", "1E3", "2E", "64000M")
        ),
        *(
            (text, False)
            for text in ("", "Gi", "-1Gi", "0", "0.0Gi", "1gi", "1K", "1e", "1 Gi", "0x10", "1e999", "٣Gi")
        ),
        (150_000_000_000, True),
        (f"{'9' * 30}Gi", True),
        (f"{'9' * 31}Gi", False),
    ],
)
async def test_memory_is_a_quantity_above_zero(kube: Client, memory: object, *, good: bool) -> None:
    error = await refusal(kube, gpu_class(memory=memory))

    assert (error is None) is good
    if good:
        assert quantity(memory) > 0


async def test_a_class_of_another_kind_of_source_loses_it_and_is_told(kube: Client) -> None:
    error = await refusal(kube, gpu_class(source={"dra": {"deviceClassName": "gpu.nvidia.com"}}))

    assert error is not None
    assert "spec.source: Invalid value" in error.message


GOOD_NAMES = ("a", "my-gpu", "0", "a" * 63)
BAD_NAMES = ("a.b", "a" * 64, f"{'a' * 60}.{'b' * 60}")


async def test_the_name_of_a_device_is_a_dns_label(kube: Client) -> None:
    for name in GOOD_NAMES:
        assert await refusal(kube, gpu_device(name=name)) is None
    for name in BAD_NAMES:
        error = await refusal(kube, gpu_device(name=name))
        assert error is not None
        assert "metadata.name must be a DNS label of at most 63 characters: it becomes a label's value" in error.message


async def test_a_generated_name_fits(kube: Client) -> None:
    device = gpu_device()
    device["metadata"] = {"generateName": "a" * 63, "namespace": "default"}

    created = await kube.create(device, dry_run=True)

    assert len(GPUDevice.from_dict(created).name) == 63


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"className": None}, "spec.className", "Required value"),
        ({"className": ""}, "spec.className", "should be at least 1 chars long"),
        ({"count": 0}, "spec.count", "should be greater than or equal to 1"),
        ({"count": 17}, "spec.count", "should be less than or equal to 16"),
        ({"count": "2"}, "spec.count", "must be of type integer"),
        ({"count": 1.5}, "spec.count", "must be of type integer"),
    ],
)
async def test_an_order_that_cannot_be_is_refused(kube: Client, spec: dict[str, Any], field: str, message: str) -> None:
    error = await refusal(kube, gpu_device(**spec))

    assert error is not None
    assert [cause["field"] for cause in error.causes][:1] == [field]
    assert message in error.message


async def test_an_order_is_of_one_gpu_unless_it_says_how_many(kube: Client) -> None:
    for spec, count in (({}, 1), ({"count": 1}, 1), ({"count": 16}, 16), ({"count": 2.0}, 2)):
        created = await kube.create(gpu_device(**spec), dry_run=True)
        assert (created["spec"]["count"], GPUDevice.from_dict(created).count) == (count, count)


@pytest.mark.parametrize("change", [{"className": "l40s"}, {"count": 2}])
async def test_an_order_cannot_be_changed(kube: Client, change: dict[str, Any]) -> None:
    device = await kube.create(gpu_device())

    with pytest.raises(APIError) as refused:
        await kube.patch(device, {"spec": change})

    assert "spec: Forbidden: an order can't be changed: delete the GPUDevice and order another" in refused.value.message
    await kube.patch(device, {"metadata": {"labels": {"a": "b"}}})


async def test_a_status_is_written_apart_from_the_order(kube: Client) -> None:
    order = {**gpu_device(), "status": {"phase": "Held"}}
    created = await kube.create(order)
    assert "status" not in created

    condition = {
        "type": "Held",
        "status": "False",
        "reason": "NoCapacity",
        "message": "no node has one",
        "lastTransitionTime": "2026-11-01T08:00:00Z",
    }
    status = {
        "phase": "InUse",
        "resourceName": "nvidia.com/gpu",
        "nodeName": "node-1",
        "heldAt": "2026-11-01T08:00:00Z",
        "binding": {"name": "desk", "uid": "1"},
        "migration": {"uid": "2", "nodeName": "node-2"},
        "conditions": [condition],
    }
    await kube.patch(created, {"spec": {"count": 2}, "status": status}, subresource="status")
    stored = await kube.get(created)

    assert (stored["status"], stored["spec"]["count"]) == (status, 1)
    device = GPUDevice.from_dict(stored)
    assert (device.held, device.waiting) == (True, "NoCapacity: no node has one")


async def test_conditions_are_merged_by_type(kube: Client) -> None:
    created = await kube.create(gpu_device())
    for manager, kind in (("one", "Held"), ("two", "Other")):
        condition = {
            "type": kind,
            "status": "True",
            "reason": "Because",
            "message": "",
            "lastTransitionTime": "2026-11-01T08:00:00Z",
        }
        named = ref(names.API_VERSION, names.GPU_DEVICE, created["metadata"]["name"], "default")
        await kube.apply({**named, "status": {"conditions": [condition]}}, manager=manager, subresource="status")

    stored = await kube.get(created)
    assert [condition["type"] for condition in stored["status"]["conditions"]] == ["Held", "Other"]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({"phase": "Gone"}, "Unsupported value"),
        ({"binding": {"name": "desk"}}, "status.binding.uid: Required value"),
        ({"migration": {"uid": "a"}}, "status.migration.nodeName: Required value"),
        ({"conditions": [{"type": "Held"}]}, "Required value"),
    ],
)
async def test_a_status_that_cannot_be_read_is_refused(kube: Client, status: dict[str, Any], message: str) -> None:
    created = await kube.create(gpu_device())

    with pytest.raises(APIError, match=re.escape(message)):
        await kube.patch(created, {"status": status}, subresource="status")


async def test_a_class_has_its_status_apart_too(kube: Client) -> None:
    created = await kube.create({**gpu_class(), "status": {"capacity": 1}})
    assert "status" not in created
    status = {"capacity": 8, "held": 3, "free": 5, "resourceNames": ["nvidia.com/gpu", "nvidia.com/old"]}

    await kube.patch(created, {"status": status}, subresource="status")

    read = GPUClass.from_dict(await kube.get(created))
    assert read.sold == ("nvidia.com/gpu", "nvidia.com/old")
    with pytest.raises(APIError, match="Duplicate value"):
        await kube.patch(created, {"status": {"resourceNames": ["a/b", "a/b"]}}, subresource="status")


async def test_a_class_can_be_changed_while_nothing_protects_it(kube: Client) -> None:
    created = await kube.create(gpu_class())

    changed = await kube.patch(created, {"spec": {"mode": "VGPU", "profile": "a", "maxCount": 2}})

    assert GPUClass.from_dict(changed).profile == "a"


def undescribed(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """The fields that ``kubectl explain`` has nothing to say about."""
    for name, part in schema.get("properties", {}).items():
        if not part.get("description") and path + name != "metadata":
            yield f"{path}{name}"
        yield from undescribed(part, f"{path}{name}.")
    if "items" in schema:
        yield from undescribed(schema["items"], path)


@pytest.mark.parametrize("name", CRDS)
async def test_every_field_is_described(kube: Client, name: str) -> None:
    crd = await kube.get(ref("apiextensions.k8s.io/v1", "CustomResourceDefinition", name))
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    assert schema["description"]
    assert list(undescribed(schema, "")) == []


@pytest.mark.parametrize("name", CRDS)
async def test_every_column_shows_a_field_that_there_is(kube: Client, name: str) -> None:
    crd = await kube.get(ref("apiextensions.k8s.io/v1", "CustomResourceDefinition", name))
    version = crd["spec"]["versions"][0]

    for column in version["additionalPrinterColumns"]:
        schema = deepcopy(version["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"]["properties"] = {"creationTimestamp": {}}
        for key in re.sub(r"\[[^]]*\]", ".items", column["jsonPath"]).strip(".").split("."):
            schema = schema["items"] if key == "items" else schema["properties"][key]


async def test_devices_are_found_by_their_class(kube: Client) -> None:
    await kube.create(gpu_device(name="of-a-rare-class", className="rare"))

    found = await kube.list(names.API_VERSION, names.GPU_DEVICE, fieldSelector="spec.className=rare")

    assert [device["metadata"]["name"] for device in found] == ["of-a-rare-class"]
