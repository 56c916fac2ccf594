"""The device-template annotation: a device is built, or it is told why not."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpu.errors import BuildRefused, CatalogError
from gpu.gpudevice import GPUDevice
from webhooks.app import make_app
from webhooks.testing import VIRT_CONTROLLER, InMemoryCatalog, Pair, review

REFERENCE = "gpu.cozystack.io/device-reference"
TEMPLATE = "gpu.cozystack.io/device-template"
TEMPLATE_DEVICE = "gpu.cozystack.io/template-device"
TEMPLATE_FIELD = f"metadata.annotations[{TEMPLATE}]"
H200 = "nvidia.com/GH100_H200_SXM_141GB"


def vmi(order: str = '{"className":"h200"}', **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"namespace": "tenant-a", "annotations": {TEMPLATE: order}, "name": "vm", **metadata},
        "spec": {"domain": {"devices": {}}},
    }


def idle_device(name: str, *, seconds_ago: int = 10) -> dict[str, Any]:
    created = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    labels = {TEMPLATE_DEVICE: "true"}
    return {
        "apiVersion": "gpu.cozystack.io/v1alpha1",
        "kind": "GPUDevice",
        "metadata": {
            "name": name, "namespace": "tenant-a", "labels": labels, "creationTimestamp": created.isoformat(),
        },
        "spec": {"className": "h200"},
    }  # fmt: skip


def gpu_class(**changes: Any) -> dict[str, Any]:
    source = {"devicePlugin": {"resourceName": H200}}
    spec = {"vendor": "n", "model": "h", "mode": "Passthrough", "memory": "1Gi", "maxCount": 8, "source": source}
    metadata = changes.pop("metadata", {"name": "h200"})
    return {"kind": "GPUClass", "metadata": metadata, "spec": {**spec, **changes}}


def built(catalog: InMemoryCatalog) -> list[GPUDevice]:
    return [device for device in catalog.devices("tenant-a") if device.name.startswith("vm-")]


async def test_a_device_is_built_and_the_label_is_stamped(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    admitted = await gpu_pair.admit(vmi('{"className":"h200","count":2}'), user=VIRT_CONTROLLER)

    (device,) = built(gpu_catalog)
    assert admitted.allowed
    assert admitted.obj["metadata"]["labels"] == {REFERENCE: device.name}
    assert (device.namespace, device.class_name, device.count) == ("tenant-a", "h200", 2)
    assert device.from_template
    assert admitted.obj["spec"]["domain"]["devices"]["gpus"] == [
        {"name": "gpu-0", "deviceName": H200},
        {"name": "gpu-1", "deviceName": H200},
    ]


async def test_it_is_told_that_a_device_was_built(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    reply = await gpu_pair.mutate(review(vmi()))

    (device,) = built(gpu_catalog)
    assert reply.warnings[0] == f"built GPUDevice {device.name}: 1 of class h200"


@pytest.mark.parametrize("labels", [{}, {"labels": None}, {"labels": {"a/b~c": "x"}}], ids=["none", "null", "others"])
async def test_the_label_is_stamped_beside_others(gpu_pair: Pair, labels: dict[str, Any]) -> None:
    obj = vmi(**labels)

    patched = (await gpu_pair.mutate(review(obj))).applied_to(obj)

    stamped = patched["metadata"]["labels"].pop(REFERENCE)
    assert stamped.startswith("vm-")
    assert patched["metadata"]["labels"] == (labels.get("labels") or {})


@pytest.mark.parametrize("name", ["my.vm.example", "v" * 253, "VM"])
async def test_a_vmi_of_any_name_gets_a_device(gpu_pair: Pair, gpu_catalog: InMemoryCatalog, name: str) -> None:
    before = len(gpu_catalog.devices("tenant-a"))

    admitted = await gpu_pair.admit(vmi(name=name))

    assert admitted.allowed
    assert len(gpu_catalog.devices("tenant-a")) == before + 1


@pytest.mark.parametrize(
    ("order", "field", "told"),
    [
        ("", "", "must be JSON"),
        ("h200", "", "must be JSON"),
        ("[]", "", "must be a JSON object"),
        ('{"className":"h200","gpus":1}', "", "unknown key 'gpus'"),
        ('{"count":1}', ".className", "is required"),
        ('{"className":"h200","count":"1"}', ".count", "must be a whole number"),
        ('{"className":"h200","count":0}', ".count", "must be from 1 to 16"),
        ('{"className":"h200","count":17}', ".count", "must be from 1 to 16"),
        (f'{{"className":"h200"{" " * 4096}}}', "", "must be at most 4 KiB"),
    ],
    ids=["empty", "no JSON", "list", "key", "no class", "text", "none", "over 16", "over 4 KiB"],
)
async def test_a_malformed_annotation_is_refused_on_both_paths(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog, order: str, field: str, told: str
) -> None:
    mutated = await gpu_pair.mutate(review(vmi(order)))
    validated = await gpu_pair.validate(review(vmi(order, labels={REFERENCE: "my-gpu"}, uid="v-1")))

    for reply in (mutated, validated):
        assert (reply.code, reply.reason, reply.fields) == (422, "Invalid", (TEMPLATE_FIELD + field,))
        assert told in reply.message
    assert not built(gpu_catalog)


async def test_a_class_that_does_not_exist_is_refused_with_a_choice(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    reply = await gpu_pair.mutate(review(vmi('{"className":"b300"}')))

    assert (reply.code, reply.fields) == (422, (f"{TEMPLATE_FIELD}.className",))
    assert "there is no GPUClass 'b300'" in reply.message
    assert "choose one of: h200, l40s-24q" in reply.message
    assert not built(gpu_catalog)


async def test_a_class_of_another_case_is_refused_with_a_hint(gpu_pair: Pair) -> None:
    reply = await gpu_pair.mutate(review(vmi('{"className":"H200"}')))

    assert (reply.code, reply.fields) == (422, (f"{TEMPLATE_FIELD}.className",))
    assert "did you mean 'h200'?" in reply.message


async def test_a_class_that_is_being_deleted_is_refused(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    gpu_catalog.add(gpu_class(metadata={"name": "h200", "deletionTimestamp": "2026-01-01T00:00:00Z"}))

    reply = await gpu_pair.mutate(review(vmi()))

    assert (reply.code, reply.fields) == (403, (f"{TEMPLATE_FIELD}.className",))
    assert "is being deleted and takes no new orders; choose one of: l40s-24q" in reply.message
    assert not built(gpu_catalog)


async def test_as_many_as_the_class_sells_are_let_in(gpu_pair: Pair) -> None:
    assert (await gpu_pair.admit(vmi('{"className":"l40s-24q","count":4}'))).allowed


async def test_more_than_the_class_sells_are_refused(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    reply = await gpu_pair.mutate(review(vmi('{"className":"l40s-24q","count":5}')))

    assert (reply.code, reply.fields) == (422, (f"{TEMPLATE_FIELD}.count",))
    assert "GPUClass 'l40s-24q' sells 1 to 4 GPUs a device, not 5" in reply.message
    assert not built(gpu_catalog)


async def test_a_class_that_sells_nothing_known_here_is_refused(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    gpu_catalog.add(gpu_class(source={"dra": {}}))

    reply = await gpu_pair.mutate(review(vmi()))

    assert reply.code == 403
    assert "GPUClass 'h200' names no resource to grant" in reply.message
    assert not built(gpu_catalog)


async def test_a_class_that_memory_does_not_know_yet_is_found_afresh(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    with gpu_catalog.stale():
        gpu_catalog.add(gpu_class(metadata={"name": "b200"}))
        reply = await gpu_pair.mutate(review(vmi('{"className":"b200"}')))

    assert reply.allowed, reply.message


async def test_a_raised_maximum_that_memory_does_not_know_yet_counts(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    with gpu_catalog.stale():
        gpu_catalog.add(gpu_class(maxCount=16))
        reply = await gpu_pair.mutate(review(vmi('{"className":"h200","count":16}')))

    assert reply.allowed, reply.message


@pytest.mark.parametrize("dry_run", [False, True], ids=["", "dry run"])
async def test_a_quotas_refusal_is_shown_and_nothing_is_built(
    gpu_pair: Pair,
    gpu_catalog: InMemoryCatalog,
    dry_run: bool,  # noqa: FBT001
) -> None:
    hard = {"count/gpudevices.gpu.cozystack.io": "3"}
    metadata = {"name": "gpus", "namespace": "tenant-a"}
    gpu_catalog.add({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}})

    reply = await gpu_pair.mutate(review(vmi(), dry_run=dry_run))

    assert (reply.code, reply.reason, reply.fields) == (403, "Forbidden", (TEMPLATE_FIELD,))
    assert "its device can't be created: exceeded quota: gpus" in reply.message
    assert "used: count/gpudevices.gpu.cozystack.io=3" in reply.message
    assert not built(gpu_catalog)


class Unwilling(InMemoryCatalog):
    """A catalog whose API does not create devices."""

    error: CatalogError = BuildRefused("too many requests, wait", code=429, reason="TooManyRequests")

    async def build_device(self, *_: Any, **__: Any) -> GPUDevice:
        raise self.error


Client = Callable[[Any], Awaitable[Any]]


async def test_the_apis_code_and_message_are_shown(aiohttp_client: Client) -> None:
    catalog = Unwilling()
    catalog.add(gpu_class())

    reply = await Pair(await aiohttp_client(make_app(catalog=catalog))).mutate(review(vmi()))

    assert (reply.code, reply.reason, reply.fields) == (429, "TooManyRequests", (TEMPLATE_FIELD,))
    assert "its device can't be created: too many requests, wait" in reply.message


async def test_when_the_api_fails_it_is_worth_a_retry(aiohttp_client: Client) -> None:
    catalog = Unwilling()
    catalog.add(gpu_class())
    catalog.error = CatalogError("the API did not answer")

    reply = await Pair(await aiohttp_client(make_app(catalog=catalog))).mutate(review(vmi()))

    assert (reply.code, reply.reason) == (503, "ServiceUnavailable")
    assert "this can't be decided now: the API did not answer" in reply.message


@pytest.mark.parametrize("naming", [{"name": "vm"}, {"name": "", "generateName": "vm"}], ids=["name", "generateName"])
async def test_a_dry_run_builds_nothing_and_gives_the_same_patch_twice(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog, naming: dict[str, str]
) -> None:
    first = await gpu_pair.admit(vmi(**naming), dry_run=True)
    second = await gpu_pair.admit(vmi(**naming), dry_run=True)

    assert first.allowed
    assert second.allowed
    assert first.mutated.patch == second.mutated.patch != ()
    assert first.mutated.warnings[0].startswith("would have built GPUDevice vm-")
    assert not built(gpu_catalog)


async def test_a_dry_run_is_refused_what_would_be_refused(gpu_pair: Pair) -> None:
    reply = await gpu_pair.mutate(review(vmi('{"className":"b300"}'), dry_run=True))

    assert (reply.code, reply.fields) == (422, (f"{TEMPLATE_FIELD}.className",))


@pytest.mark.parametrize("naming", [{"name": "vm"}, {"name": "", "generateName": "vm"}], ids=["name", "generateName"])
@pytest.mark.parametrize("dry_run", [False, True], ids=["", "dry run"])
async def test_called_again_on_its_own_result_it_changes_and_builds_nothing(
    gpu_pair: Pair,
    gpu_catalog: InMemoryCatalog,
    naming: dict[str, str],
    dry_run: bool,  # noqa: FBT001
) -> None:
    obj = vmi('{"className":"h200","count":3}', **naming)
    first = await gpu_pair.mutate(review(obj, dry_run=dry_run))
    devices = gpu_catalog.devices("tenant-a")

    again = await gpu_pair.mutate(review(first.applied_to(obj), dry_run=dry_run))

    assert again.allowed
    assert again.patch == ()
    assert gpu_catalog.devices("tenant-a") == devices


async def test_63_idle_template_devices_leave_room_for_one(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    for index in range(63):
        gpu_catalog.add(idle_device(f"idle-{index}"))

    assert (await gpu_pair.mutate(review(vmi()))).allowed
    assert len(built(gpu_catalog)) == 1


@pytest.mark.parametrize("dry_run", [False, True], ids=["", "dry run"])
async def test_64_idle_template_devices_are_the_most(
    gpu_pair: Pair,
    gpu_catalog: InMemoryCatalog,
    dry_run: bool,  # noqa: FBT001
) -> None:
    for index in range(64):
        gpu_catalog.add(idle_device(f"idle-{index}"))

    reply = await gpu_pair.mutate(review(vmi(), dry_run=dry_run))

    assert (reply.code, reply.reason, reply.fields) == (403, "Forbidden", (TEMPLATE_FIELD,))
    assert "64 devices from templates that no VM came for" in reply.message
    assert not built(gpu_catalog)


async def test_those_that_a_vmi_came_for_do_not_count(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    for index in range(64):
        gpu_catalog.add(idle_device(f"idle-{index}"))
    metadata = {"name": "came", "namespace": "tenant-a", "uid": "v-1", "labels": {REFERENCE: "idle-7"}}
    gpu_catalog.add({**vmi(), "metadata": metadata})

    assert (await gpu_pair.mutate(review(vmi()))).allowed


async def test_those_of_another_namespace_do_not_count(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    for index in range(64):
        device = idle_device(f"idle-{index}")
        device["metadata"]["namespace"] = "tenant-b"
        gpu_catalog.add(device)

    assert (await gpu_pair.mutate(review(vmi()))).allowed


async def test_a_tenants_own_devices_do_not_count(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    for index in range(64):
        device = idle_device(f"own-{index}")
        del device["metadata"]["labels"]
        gpu_catalog.add(device)

    assert (await gpu_pair.mutate(review(vmi()))).allowed


async def test_idle_devices_that_only_memory_still_has_are_counted_afresh(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    for index in range(64):
        gpu_catalog.add(idle_device(f"idle-{index}"))

    with gpu_catalog.stale():
        gpu_catalog.remove("GPUDevice", "tenant-a", "idle-0")
        reply = await gpu_pair.mutate(review(vmi()))

    assert reply.allowed, reply.message


async def test_after_two_minutes_idle_devices_are_gone(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    for index in range(64):
        gpu_catalog.add(idle_device(f"idle-{index}", seconds_ago=125 if index == 0 else 100))

    assert (await gpu_pair.mutate(review(vmi()))).allowed
    assert (await gpu_pair.mutate(review(vmi(name="vm-b")))).code == 403


async def test_a_device_that_is_taken_over_is_no_further_one(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    await gpu_pair.mutate(review(vmi()))
    for index in range(63):
        gpu_catalog.add(idle_device(f"idle-{index}"))

    assert (await gpu_pair.mutate(review(vmi()))).allowed
    assert len(built(gpu_catalog)) == 1
