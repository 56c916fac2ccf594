"""Roads to a GPU past a device, each of which is shut."""

from typing import Any

import pytest

from webhooks.testing import VIRT_CONTROLLER, InMemoryCatalog, Pair, persisted, review
from webhooks.virtcontroller import launcher_of

REFERENCE = "gpu.cozystack.io/device-reference"
TEMPLATE = "gpu.cozystack.io/device-template"
H200 = "nvidia.com/GH100_H200_SXM_141GB"
OF_A_DEVICE_CLASS = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"


def vmi(name: str, *, devices: dict[str, Any] | None = None, **marks: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "tenant-a", **marks}
    spec = {"domain": {"devices": devices or {}}}
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": metadata, "spec": spec}


@pytest.fixture
def gpu_catalog(gpu_catalog: InMemoryCatalog) -> InMemoryCatalog:
    """Its settings guard a DeviceClass, and lack the resource name that Kubernetes gives it."""
    settings = {"resourceNames": H200, "deviceClassNames": "gpu.nvidia.com"}
    gpu_catalog.remove("ConfigMap", "gpu-system", "gpu-settings")
    gpu_catalog.add({"kind": "ConfigMap", "metadata": {"name": "gpu-settings", "namespace": "x"}, "data": settings})
    return gpu_catalog


async def test_the_resource_name_of_a_guarded_device_class_is_a_gpus_on_a_pod(gpu_pair: Pair) -> None:
    container = {"name": "c", "resources": {"limits": {OF_A_DEVICE_CLASS: "1"}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}

    reply = await gpu_pair.validate(review(pod))

    assert reply.code == 403
    assert reply.fields == (f"spec.containers[0].resources.limits[{OF_A_DEVICE_CLASS}]",)


async def test_the_resource_name_of_a_guarded_device_class_is_a_gpus_on_a_vmi(gpu_pair: Pair) -> None:
    reply = await gpu_pair.validate(
        review(persisted(vmi("sly", devices={"hostDevices": [{"name": "a", "deviceName": OF_A_DEVICE_CLASS}]})))
    )

    assert reply.code == 403
    assert reply.fields == ("spec.domain.devices.hostDevices[0]",)


async def test_a_gpu_among_the_host_devices_has_no_claim_beside_its_name(gpu_pair: Pair) -> None:
    entry = {"name": "a", "deviceName": H200, "claimName": "c", "requestName": "r"}
    sly = vmi("sly", devices={"hostDevices": [entry]}, labels={REFERENCE: "my-gpu"})

    reply = await gpu_pair.validate(review(persisted(sly)))

    assert reply.code == 403
    assert reply.fields == ("spec.domain.devices.hostDevices[0]",)
    assert "claim" in reply.message


async def test_a_copied_label_beside_the_annotation_shares_no_template_device(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    order = {"annotations": {TEMPLATE: '{"className":"h200"}'}}
    one = (await gpu_pair.admit(vmi("one", **order))).obj
    gpu_catalog.add(one)
    copied = {"labels": one["metadata"]["labels"]}

    two = await gpu_pair.mutate(review(vmi("two", **order, **copied)))
    past_it = await gpu_pair.validate(review(persisted({**one, "metadata": {**one["metadata"], "name": "two"}})))

    for reply in (two, past_it):
        assert reply.code == 409
        assert reply.fields == (f"metadata.labels[{REFERENCE}]",)
        assert "referred to by VirtualMachineInstance 'one'" in reply.message


async def test_a_gpu_pod_is_not_placed_past_the_scheduler(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    owner = persisted(vmi("note", devices={"gpus": [{"name": "g", "deviceName": H200}]}, labels={REFERENCE: "my-gpu"}))
    gpu_catalog.hold("tenant-a", "my-gpu", node="gpu-node-1", vmi=owner)
    body = review(launcher_of(owner), user=VIRT_CONTROLLER)
    pinned = (await gpu_pair.mutate(body)).applied_to(body["request"]["object"])

    def placed(node: str) -> dict[str, Any]:
        return review({**pinned, "spec": {**pinned["spec"], "nodeName": node}}, user=VIRT_CONTROLLER)

    there = await gpu_pair.validate(placed("gpu-node-1"))
    elsewhere = await gpu_pair.validate(placed("gpu-node-9"))

    assert there.allowed
    assert elsewhere.code == 403
    assert elsewhere.fields == ("spec.nodeName",)
