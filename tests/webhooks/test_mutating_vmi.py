"""VirtualMachineInstance, CREATE: which device it is by the label alone, and what is none of the path's business."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gpu.gpudevice import GPUDevice, is_device_name
from webhooks.app import make_app
from webhooks.testing import VIRT_CONTROLLER, InMemoryCatalog, Pair, assert_patched, review
from webhooks.virtcontroller import launcher_of

REFERENCE = "gpu.cozystack.io/device-reference"
TEMPLATE = "gpu.cozystack.io/device-template"
LABEL_FIELD = f"metadata.labels[{REFERENCE}]"
H200 = "nvidia.com/GH100_H200_SXM_141GB"
L40S = "nvidia.com/L40S-24Q"


def vmi(*, label: str | None = None, name: str = "vm", spec: Any = None, **metadata: Any) -> dict[str, Any]:
    labels = {"labels": {REFERENCE: label}} if label is not None else {}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "namespace": "tenant-a", **labels, **metadata},
        "spec": spec if spec is not None else {"domain": {"devices": {}}},
    }


def device(name: str, *, template: bool = False, class_name: str = "h200", **metadata: Any) -> dict[str, Any]:
    labels = {"labels": {"gpu.cozystack.io/template-device": "true"}} if template else {}
    return {
        "apiVersion": "gpu.cozystack.io/v1alpha1",
        "kind": "GPUDevice",
        "metadata": {"name": name, "namespace": "tenant-a", **labels, **metadata},
        "spec": {"className": class_name},
    }


def gpus(obj: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = obj["spec"]["domain"]["devices"]["gpus"]
    return found


async def test_a_vmi_with_the_label_gets_what_the_device_grants(gpu_pair: Pair) -> None:
    before = vmi(label="my-gpu")

    reply = await gpu_pair.mutate(review(before))

    after = vmi(label="my-gpu", spec={"domain": {"devices": {"gpus": [{"name": "gpu-0", "deviceName": H200}]}}})
    assert_patched(reply, before, after)


async def test_both_paths_let_it_in(gpu_pair: Pair) -> None:
    assert (await gpu_pair.admit(vmi(label="my-gpu"))).allowed


async def test_a_device_that_still_waits_grants_what_its_class_sells(gpu_pair: Pair) -> None:
    admitted = await gpu_pair.admit(vmi(label="lab-gpu", name="lab"))

    assert admitted.allowed
    assert [entry["deviceName"] for entry in gpus(admitted.obj)] == [H200, H200]


async def test_a_device_that_is_held_grants_what_it_holds(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    gpu_catalog.hold("tenant-a", "my-gpu", node="gpu-node-1", resourceName="nvidia.com/GA100_A100_PCIE_40GB")

    admitted = await gpu_pair.admit(vmi(label="my-gpu"))

    assert admitted.allowed
    assert [entry["deviceName"] for entry in gpus(admitted.obj)] == ["nvidia.com/GA100_A100_PCIE_40GB"]


@pytest.mark.parametrize(
    "obj",
    [
        vmi(),
        vmi(labels={"app": "x"}, annotations={"note": "x"}),
        vmi(labels=None, annotations=None),
        vmi(spec={"domain": {"devices": {"gpus": [{"name": "g", "deviceName": H200}]}}}),
        vmi(spec={"domain": {"resources": {"limits": {H200: "1"}}}}),
        vmi(labels={"gpu.cozystack.io/Device-Reference": "my-gpu"}),
        vmi(annotations={REFERENCE: "my-gpu"}, labels={TEMPLATE: "h200"}),
    ],
    ids=["plain", "other marks", "null marks", "raw gpus", "raw resources", "another case", "marks swapped"],
)
async def test_without_label_and_annotation_it_is_untouched(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog, obj: dict[str, Any]
) -> None:
    before = len(gpu_catalog.devices("tenant-a"))

    reply = await gpu_pair.mutate(review(obj))

    assert reply.allowed
    assert (reply.patch, reply.warnings) == ((), ())
    assert len(gpu_catalog.devices("tenant-a")) == before


@pytest.mark.parametrize(("operation", "subresource"), [("UPDATE", ""), ("CREATE", "status"), ("CREATE", "console")])
async def test_only_the_creation_of_the_vmi_itself_is_mutated(gpu_pair: Pair, operation: str, subresource: str) -> None:
    obj = vmi(label="my-gpu")

    reply = await gpu_pair.mutate(review(obj, operation=operation, old=obj, subresource=subresource))

    assert reply.allowed
    assert reply.patch == ()


async def test_a_vm_is_left_to_what_is_made_from_it(gpu_pair: Pair) -> None:
    vm = {**vmi(label="my-gpu"), "kind": "VirtualMachine"}

    assert (await gpu_pair.mutate(review(vm))).patch == ()


async def test_the_older_version_of_a_vmi_is_rewritten_too(gpu_pair: Pair) -> None:
    reply = await gpu_pair.mutate(review({**vmi(label="my-gpu"), "apiVersion": "kubevirt.io/v1alpha3"}))

    assert reply.patch


@pytest.mark.parametrize("name", ["no-such-gpu", "", "My-GPU", "a.b", "x" * 300, "../my-gpu", "my-gpu "])
async def test_a_device_that_does_not_exist_is_refused(gpu_pair: Pair, name: str) -> None:
    reply = await gpu_pair.mutate(review(vmi(label=name)))

    assert (reply.allowed, reply.code, reply.fields) == (False, 422, (LABEL_FIELD,))
    assert f"there is no GPUDevice '{name[:62]}" in reply.message
    assert "in namespace 'tenant-a'" in reply.message


async def test_a_device_of_another_namespace_does_not_exist_here(gpu_pair: Pair) -> None:
    obj = vmi(label="my-gpu")
    obj["metadata"]["namespace"] = "tenant-b"

    reply = await gpu_pair.mutate(review(obj))

    assert (reply.code, reply.fields) == (422, (LABEL_FIELD,))
    assert "there is no GPUDevice 'my-gpu' in namespace 'tenant-b'" in reply.message


async def test_a_template_device_can_not_be_referred_to_by_the_label_alone(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    gpu_catalog.add(device("built", template=True))

    reply = await gpu_pair.mutate(review(vmi(label="built")))

    assert (reply.code, reply.fields) == (403, (LABEL_FIELD,))
    assert "was built from another VM's template and can't be referred to by name" in reply.message


async def test_a_device_that_is_being_deleted_is_refused(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    gpu_catalog.add(device("leaving", deletionTimestamp="2026-01-01T00:00:00Z"))

    reply = await gpu_pair.mutate(review(vmi(label="leaving")))

    assert (reply.code, reply.fields) == (403, (LABEL_FIELD,))
    assert "GPUDevice 'leaving' is being deleted" in reply.message


async def test_a_device_in_use_by_another_vmi_is_a_conflict(gpu_pair: Pair) -> None:
    reply = await gpu_pair.mutate(review(vmi(label="desk-gpu")))

    assert (reply.code, reply.reason, reply.fields) == (409, "Conflict", (LABEL_FIELD,))
    assert "is in use by VirtualMachineInstance 'desk'" in reply.message


async def test_a_device_that_the_pod_of_a_gone_vmi_still_uses_is_a_conflict(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    gone = vmi(label="my-gpu", name="gone", uid="v-gone")
    gpu_catalog.hold("tenant-a", "my-gpu", node="gpu-node-1", vmi=gone)
    pod = launcher_of(gone | {"spec": {"domain": {"devices": {"gpus": [{"name": "g", "deviceName": H200}]}}}})
    gpu_catalog.add(pod)

    refused = await gpu_pair.mutate(review(vmi(label="my-gpu")))
    gpu_catalog.add({**pod, "status": {"phase": "Succeeded"}})
    let_in = await gpu_pair.mutate(review(vmi(label="my-gpu")))

    assert (refused.code, refused.fields) == (409, (LABEL_FIELD,))
    assert let_in.allowed


async def test_a_label_of_another_vmi_alone_does_not_make_it_a_user(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    gpu_catalog.add(vmi(label="my-gpu", name="other", uid="v-other"))

    assert (await gpu_pair.mutate(review(vmi(label="my-gpu")))).allowed


async def test_a_device_whose_class_sells_nothing_known_grants_nothing(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    gpu_catalog.add(device("odd", class_name="retired"))

    reply = await gpu_pair.mutate(review(vmi(label="odd")))

    assert (reply.code, reply.fields) == (403, (LABEL_FIELD,))
    assert "GPUClass 'retired' names no resource to grant" in reply.message


async def test_a_device_that_memory_does_not_know_yet_is_found_afresh(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    with gpu_catalog.stale():
        gpu_catalog.add(device("brand-new"))
        reply = await gpu_pair.mutate(review(vmi(label="brand-new")))

    assert reply.allowed, reply.message


async def test_a_device_that_memory_thinks_in_use_is_asked_about_afresh(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    with gpu_catalog.stale():
        gpu_catalog.remove("VirtualMachineInstance", "tenant-a", "desk")
        reply = await gpu_pair.mutate(review(vmi(label="desk-gpu")))

    assert reply.allowed, reply.message


async def test_a_device_that_memory_thinks_is_being_deleted_is_asked_about_afresh(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    gpu_catalog.add(device("anew", deletionTimestamp="2026-01-01T00:00:00Z"))
    with gpu_catalog.stale():
        gpu_catalog.add(device("anew"))
        reply = await gpu_pair.mutate(review(vmi(label="anew")))

    assert reply.allowed, reply.message


async def test_a_restarted_vm_keeps_the_device_that_its_old_vmi_is_still_bound_to(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    gpu_catalog.hold("tenant-a", "my-gpu", node="gpu-node-1", vmi=vmi(name="vm", uid="v-old"))
    gpu_catalog.add(vmi(label="my-gpu", uid="v-old"))

    with gpu_catalog.stale():
        gpu_catalog.remove("VirtualMachineInstance", "tenant-a", "vm")
        admitted = await gpu_pair.admit(vmi(label="my-gpu"), user=VIRT_CONTROLLER)

    assert admitted.allowed


async def test_a_vmi_of_the_users_own_name_is_taken_for_the_one_that_follows_it(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    old = vmi(label="my-gpu", uid="v-old")
    gpu_catalog.add(old)
    gpu_catalog.hold("tenant-a", "my-gpu", node="gpu-node-1", vmi=old)

    followed = await gpu_pair.mutate(review(vmi(label="my-gpu")))
    another = await gpu_pair.mutate(review(vmi(label="my-gpu", name="vm2")))
    nameless = await gpu_pair.mutate(review(vmi(label="my-gpu", name="", generateName="vm")))

    assert followed.allowed, followed.message
    assert (another.code, nameless.code) == (409, 409)


class Picky(InMemoryCatalog):
    """A catalog whose API is asked for nothing but what can exist."""

    async def fresh_device(self, namespace: str, name: str) -> GPUDevice | None:
        assert is_device_name(name), name
        return await super().fresh_device(namespace, name)


@pytest.mark.parametrize("name", ["../my-gpu", "", "x" * 300, "a.b"])
async def test_the_api_is_not_asked_for_a_name_that_no_device_can_have(
    aiohttp_client: Callable[[Any], Awaitable[Any]], name: str
) -> None:
    pair = Pair(await aiohttp_client(make_app(catalog=Picky())))

    reply = await pair.mutate(review(vmi(label=name)))

    assert (reply.code, reply.fields) == (422, (LABEL_FIELD,))


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"metadata": {"namespace": "tenant-a", "labels": {REFERENCE: 7}}}, LABEL_FIELD),
        ({"metadata": {"labels": {REFERENCE: "my-gpu"}, "annotations": []}}, "metadata.annotations"),
        ({"spec": {"domain": {"devices": {"gpus": {}}}}}, "spec.domain.devices.gpus"),
        ({"spec": {"domain": {"devices": {"hostDevices": [{"deviceName": 7}]}}}},
         "spec.domain.devices.hostDevices[0].deviceName"),
        ({"spec": {"domain": {"resources": {"requests": []}}}}, "spec.domain.resources.requests"),
        ({"spec": {"resourceClaims": ["claim"]}}, "spec.resourceClaims[0]"),
    ],
    ids=["label", "annotations", "gpus", "hostDevices", "requests", "resourceClaims"],
)  # fmt: skip
async def test_a_wrong_type_on_the_way_to_a_gpu_is_refused_with_its_field_path(
    gpu_pair: Pair, change: dict[str, Any], path: str
) -> None:
    reply = await gpu_pair.mutate(review({**vmi(label="my-gpu"), **change}))

    assert (reply.code, reply.fields) == (422, (path,))
    assert "must be" in reply.message


@pytest.mark.parametrize("spec", [{}, {"domain": None}, {"domain": {}}, {"domain": {"devices": None}}])
async def test_missing_and_null_parents_are_made(gpu_pair: Pair, spec: dict[str, Any]) -> None:
    before = vmi(label="my-gpu", spec=spec)

    reply = await gpu_pair.mutate(review(before))

    after = vmi(label="my-gpu", spec={"domain": {"devices": {"gpus": [{"name": "gpu-0", "deviceName": H200}]}}})
    assert_patched(reply, before, after)


@pytest.mark.parametrize("spec", ["missing", None], ids=["missing", "null"])
async def test_a_vmi_without_a_spec_gets_one(gpu_pair: Pair, spec: str | None) -> None:
    before = vmi(label="my-gpu")
    before["spec"] = None
    if spec is not None:
        del before["spec"]

    reply = await gpu_pair.mutate(review(before))

    assert len(gpus(reply.applied_to(before))) == 1
