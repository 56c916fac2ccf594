"""A device-reference label beside the device-template annotation: the annotation decides."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from webhooks.testing import InMemoryCatalog, Pair, review
from webhooks.virtcontroller import launcher_of

REFERENCE = "gpu.cozystack.io/device-reference"
TEMPLATE = "gpu.cozystack.io/device-template"
TEMPLATE_DEVICE = "gpu.cozystack.io/template-device"
LABEL_FIELD = f"metadata.labels[{REFERENCE}]"
H200 = "nvidia.com/GH100_H200_SXM_141GB"


def vmi(label: str | None, *, name: str = "vm", order: str = '{"className":"h200"}', **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {
            "name": name,
            "namespace": "tenant-a",
            "annotations": {TEMPLATE: order},
            "labels": {"app": "x"} if label is None else {REFERENCE: label},
            **metadata,
        },
        "spec": {"domain": {"devices": {}}},
    }


def template_device(
    name: str = "built", *, class_name: str = "h200", count: int = 1, **metadata: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "gpu.cozystack.io/v1alpha1",
        "kind": "GPUDevice",
        "metadata": {"name": name, "namespace": "tenant-a", "labels": {TEMPLATE_DEVICE: "true"}, **metadata},
        "spec": {"className": class_name, "count": count},
    }


def label_of(obj: dict[str, Any]) -> str:
    return str(obj["metadata"]["labels"][REFERENCE])


def names(catalog: InMemoryCatalog) -> set[str]:
    return {device.name for device in catalog.devices("tenant-a")}


async def test_a_template_device_that_fits_is_kept(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    gpu_catalog.add(template_device())
    before = names(gpu_catalog)

    admitted = await gpu_pair.admit(vmi("built"))

    assert admitted.allowed
    assert label_of(admitted.obj) == "built"
    assert names(gpu_catalog) == before


@pytest.mark.parametrize(
    ("class_name", "count"), [("l40s-24q", 1), ("h200", 2)], ids=["another class", "another count"]
)
async def test_a_template_device_that_does_not_fit_is_refused(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog, class_name: str, count: int
) -> None:
    gpu_catalog.add(template_device(class_name=class_name, count=count))

    reply = await gpu_pair.mutate(review(vmi("built")))

    assert (reply.code, reply.fields) == (403, (LABEL_FIELD,))
    assert f"is {count} of class '{class_name}', not the 1 of 'h200'" in reply.message
    assert "take the label out" in reply.message


async def test_a_template_device_in_use_by_another_vmi_is_a_conflict(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    other = vmi("built", name="other", uid="v-other")
    gpu_catalog.add(template_device())
    gpu_catalog.add(other)
    gpu_catalog.hold("tenant-a", "built", node="gpu-node-1", vmi=other)

    reply = await gpu_pair.mutate(review(vmi("built")))

    assert (reply.code, reply.reason, reply.fields) == (409, "Conflict", (LABEL_FIELD,))
    assert "in use by VirtualMachineInstance 'other'" in reply.message


async def test_a_template_device_that_the_pod_of_another_vmi_uses_is_a_conflict(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    other = vmi("built", name="other", uid="v-other")
    other["spec"]["domain"]["devices"]["gpus"] = [{"name": "g", "deviceName": H200}]
    gpu_catalog.add(template_device())
    gpu_catalog.hold("tenant-a", "built", node="gpu-node-1", vmi=other)
    gpu_catalog.add(launcher_of(other))

    reply = await gpu_pair.mutate(review(vmi("built")))

    assert (reply.code, reply.fields) == (409, (LABEL_FIELD,))


async def test_a_template_device_that_is_being_deleted_is_refused(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    gpu_catalog.add(template_device(deletionTimestamp="2026-01-01T00:00:00Z"))

    reply = await gpu_pair.mutate(review(vmi("built")))

    assert (reply.code, reply.fields) == (403, (LABEL_FIELD,))
    assert "is being deleted" in reply.message


@pytest.mark.parametrize("order", ['{"className":"h200"}', '{"className":"l40s-24q","count":2}'])
async def test_a_tenants_own_device_is_refused_whether_or_not_it_fits(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog, order: str
) -> None:
    before = names(gpu_catalog)

    reply = await gpu_pair.mutate(review(vmi("my-gpu", order=order)))

    assert (reply.code, reply.fields) == (403, (LABEL_FIELD,))
    assert "use one of the two" in reply.message
    assert names(gpu_catalog) == before


@pytest.mark.parametrize("label", ["restored-1a2b3c4d", "", "Not.A.Device", "x" * 63])
async def test_a_label_that_names_nothing_is_replaced(gpu_pair: Pair, gpu_catalog: InMemoryCatalog, label: str) -> None:
    before = names(gpu_catalog)

    admitted = await gpu_pair.admit(vmi(label))

    (built,) = names(gpu_catalog) - before
    assert admitted.allowed
    assert label_of(admitted.obj) == built != label
    assert any(warning.startswith("built GPUDevice vm-") for warning in admitted.mutated.warnings)


async def test_a_label_that_names_a_device_of_another_namespace_names_nothing(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    elsewhere = template_device("elsewhere")
    elsewhere["metadata"]["namespace"] = "tenant-b"
    gpu_catalog.add(elsewhere)

    admitted = await gpu_pair.admit(vmi("elsewhere"))

    assert admitted.allowed
    assert label_of(admitted.obj).startswith("vm-")


async def test_a_label_that_memory_knows_no_device_for_is_looked_up_afresh(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    with gpu_catalog.stale():
        gpu_catalog.add(template_device())
        admitted = await gpu_pair.admit(vmi("built"))

    assert admitted.allowed
    assert label_of(admitted.obj) == "built"
    assert not any(name.startswith("vm-") for name in names(gpu_catalog))


async def test_a_device_that_memory_thinks_in_use_is_asked_about_afresh(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    other = vmi("built", name="other", uid="v-other")
    gpu_catalog.add(template_device())
    gpu_catalog.add(other)
    gpu_catalog.hold("tenant-a", "built", node="gpu-node-1", vmi=other)

    with gpu_catalog.stale():
        gpu_catalog.remove("VirtualMachineInstance", "tenant-a", "other")
        reply = await gpu_pair.mutate(review(vmi("built")))

    assert reply.allowed, reply.message


async def test_a_device_of_a_class_that_memory_does_not_know_yet_is_kept_too(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    source = {"devicePlugin": {"resourceName": "nvidia.com/B200"}}
    spec = {"vendor": "n", "model": "b", "mode": "Passthrough", "memory": "180Gi", "maxCount": 8, "source": source}
    with gpu_catalog.stale():
        gpu_catalog.add({"kind": "GPUClass", "metadata": {"name": "b200"}, "spec": spec})
        gpu_catalog.add(template_device(class_name="b200"))
        reply = await gpu_pair.mutate(review(vmi("built", order='{"className":"b200"}')))

    assert reply.allowed, reply.message


async def test_a_device_kept_long_after_it_was_built_is_written_on_so_that_nobody_deletes_it(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    a_minute_ago = datetime.now(UTC) - timedelta(minutes=1)
    gpu_catalog.add(template_device(creationTimestamp=a_minute_ago.isoformat()))
    before = gpu_catalog.device("tenant-a", "built")

    reply = await gpu_pair.mutate(review(vmi("built")))

    after = gpu_catalog.device("tenant-a", "built")
    assert reply.allowed
    assert before is not None
    assert after is not None
    assert after.resource_version != before.resource_version
    assert after.touched is not None
    assert after.touched > a_minute_ago


async def test_a_dry_run_keeps_it_without_a_write(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    gpu_catalog.add(template_device())
    before = gpu_catalog.device("tenant-a", "built")

    reply = await gpu_pair.mutate(review(vmi("built"), dry_run=True))

    assert reply.allowed
    assert gpu_catalog.device("tenant-a", "built") == before


async def test_a_kept_device_that_changes_under_our_hands_is_judged_again(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    gpu_catalog.add(template_device())
    with gpu_catalog.stale():
        gpu_catalog.add(template_device(deletionTimestamp="2026-01-01T00:00:00Z"))
        reply = await gpu_pair.mutate(review(vmi("built")))

    assert (reply.code, reply.fields) == (403, (LABEL_FIELD,))
    assert "is being deleted" in reply.message


async def test_a_kept_device_that_goes_under_our_hands_is_replaced(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    gpu_catalog.add(template_device())
    with gpu_catalog.stale():
        gpu_catalog.remove("GPUDevice", "tenant-a", "built")
        reply = await gpu_pair.mutate(review(vmi("built")))

    assert reply.allowed, reply.message
    assert label_of(reply.applied_to(vmi("built"))).startswith("vm-")


async def test_more_gpu_entries_than_a_kept_device_grants_are_refused(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    gpu_catalog.add(template_device())
    obj = vmi("built")
    obj["spec"]["domain"]["devices"]["gpus"] = [{"name": "a"}, {"name": "b"}]

    reply = await gpu_pair.mutate(review(obj))

    assert (reply.code, reply.fields) == (403, ("spec.domain.devices.gpus[1]",))
