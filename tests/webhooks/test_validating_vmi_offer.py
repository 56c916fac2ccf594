"""VirtualMachineInstance, CREATE: what is granted, what a dry run judges, what missing settings leave open."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from aiohttp.web import Application

from gpu.offer import Offer
from webhooks.app import make_app
from webhooks.testing import InMemoryCatalog, Pair, review

REFERENCE_FIELD = "metadata.labels[gpu.cozystack.io/device-reference]"
TEMPLATE_FIELD = "metadata.annotations[gpu.cozystack.io/device-template]"
H200 = "nvidia.com/GH100_H200_SXM_141GB"
H200_RENAMED = "nvidia.com/H200"
L40S = "nvidia.com/L40S-24Q"
GPUS = "spec.domain.devices.gpus"


def a_vmi(*device_names: str, **more: Any) -> dict[str, Any]:
    """A VMI of tenant-a in its final form; ``reference``, ``template``, ``host_devices`` and ``limits`` as given."""
    hosted = [{"name": f"host-{index}", "deviceName": name} for index, name in enumerate(more.get("host_devices", ()))]
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {
            "name": "notebook",
            "namespace": "tenant-a",
            "uid": "9b9f0c5e-0000-4000-8000-000000000001",
            "labels": {"gpu.cozystack.io/device-reference": more["reference"]} if "reference" in more else {},
            "annotations": {"gpu.cozystack.io/device-template": more["template"]} if "template" in more else {},
        },
        "spec": {
            "domain": {
                "devices": {
                    "gpus": [{"name": f"gpu-{index}", "deviceName": name} for index, name in enumerate(device_names)],
                    "hostDevices": hosted,
                },
                "resources": {"limits": more.get("limits", {})},
            }
        },
    }


def a_class(name: str, *, source: dict[str, Any], deleting: bool = False) -> dict[str, Any]:
    deletion = {"deletionTimestamp": "2026-11-01T10:00:00Z"} if deleting else {}
    return {
        "apiVersion": "gpu.cozystack.io/v1alpha1",
        "kind": "GPUClass",
        "metadata": {"name": name, **deletion},
        "spec": {
            "vendor": "NVIDIA",
            "model": name,
            "mode": "Passthrough",
            "memory": "141Gi",
            "maxCount": 8,
            "source": source,
        },
    }


def of_plugin(resource_name: str) -> dict[str, Any]:
    return {"devicePlugin": {"resourceName": resource_name, "nodeSelector": {}}}


def a_device(name: str, class_name: str, **status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "gpu.cozystack.io/v1alpha1",
        "kind": "GPUDevice",
        "metadata": {"name": name, "namespace": "tenant-a"},
        "spec": {"className": class_name},
        "status": status,
    }


class WithoutSettings(InMemoryCatalog):
    """A catalog in which the ConfigMap gpu-settings is missing."""

    @property
    def offer(self) -> Offer:
        return Offer(super().offer.classes, None)

    async def fresh_offer(self) -> Offer:
        return Offer((await super().fresh_offer()).classes, None)


@pytest.fixture
async def pair_without_settings(
    aiohttp_client: Callable[[Application], Awaitable[TestClient[Any, Any]]],
) -> Pair:
    catalog = WithoutSettings()
    catalog.add(a_class("h200", source=of_plugin(H200)))
    catalog.add(a_device("my-gpu", "h200"))
    return Pair(await aiohttp_client(make_app(catalog=catalog)))


class TestWhatIsGranted:
    async def test_a_held_device_grants_what_it_holds_when_its_class_sells_another_name_since(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog
    ) -> None:
        gpu_catalog.add(a_class("h200", source=of_plugin(H200_RENAMED)))

        held = await gpu_pair.validate(review(a_vmi(H200, reference="my-gpu")))
        renamed = await gpu_pair.validate(review(a_vmi(H200_RENAMED, reference="my-gpu")))

        assert held.allowed
        assert (renamed.code, renamed.fields) == (403, (f"{GPUS}[0].deviceName",))
        assert f"the device grants '{H200}'" in renamed.message

    async def test_a_waiting_device_grants_what_its_class_sells_now(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog
    ) -> None:
        gpu_catalog.add(a_class("h200", source=of_plugin(H200_RENAMED)))

        renamed = await gpu_pair.validate(review(a_vmi(H200_RENAMED, H200_RENAMED, reference="lab-gpu")))
        earlier = await gpu_pair.validate(review(a_vmi(H200, H200, reference="lab-gpu")))

        assert renamed.allowed
        assert (earlier.code, earlier.fields) == (403, (f"{GPUS}[0].deviceName",))
        assert f"the device grants '{H200_RENAMED}'" in earlier.message

    async def test_a_held_device_outlives_its_class(self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
        gpu_catalog.remove("GPUClass", "", "h200")

        reply = await gpu_pair.validate(review(a_vmi(H200, reference="my-gpu")))

        assert reply.allowed

    async def test_a_held_device_of_a_class_being_deleted_is_let_in(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog
    ) -> None:
        gpu_catalog.add(a_class("h200", source=of_plugin(H200), deleting=True))

        reply = await gpu_pair.validate(review(a_vmi(H200, reference="my-gpu")))

        assert reply.allowed

    async def test_a_waiting_device_without_a_class_grants_nothing(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog
    ) -> None:
        gpu_catalog.remove("GPUClass", "", "h200")

        reply = await gpu_pair.validate(review(a_vmi(H200, H200, reference="lab-gpu")))

        assert (reply.code, reply.fields) == (403, (REFERENCE_FIELD,))
        assert "GPUClass 'h200' names no resource to grant" in reply.message

    async def test_a_waiting_device_of_a_class_with_another_source_grants_nothing(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog
    ) -> None:
        gpu_catalog.add(a_class("by-claim", source={"dra": {"deviceClassName": "gpu.nvidia.com"}}))
        gpu_catalog.add(a_device("claimed", "by-claim"))

        reply = await gpu_pair.validate(review(a_vmi(H200, reference="claimed")))

        assert (reply.code, reply.fields) == (403, (REFERENCE_FIELD,))

    async def test_the_entries_are_held_against_what_the_device_grants_by_now(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog
    ) -> None:
        with gpu_catalog.stale():
            gpu_catalog.add(a_class("h200", source=of_plugin(H200_RENAMED)))
            reply = await gpu_pair.validate(review(a_vmi(H200_RENAMED, H200_RENAMED, reference="lab-gpu")))

        assert reply.allowed


class TestDryRun:
    async def test_by_annotation_the_device_need_not_exist(self, gpu_pair: Pair) -> None:
        vmi = a_vmi(H200, H200, template='{"className":"h200","count":2}', reference="notebook-1a2b3c4d")

        dry = await gpu_pair.validate(review(vmi, dry_run=True))
        real = await gpu_pair.validate(review(vmi))

        assert dry.allowed
        assert (real.code, real.fields) == (422, (REFERENCE_FIELD,))

    @pytest.mark.parametrize(
        ("template", "field", "telling"),
        [
            ('{"className":"nope"}', f"{TEMPLATE_FIELD}.className", "there is no GPUClass 'nope'"),
            ('{"className":"h200","count":9}', f"{TEMPLATE_FIELD}.count", "sells 1 to 8 GPUs a device, not 9"),
            ('{"className":"h200","count":17}', f"{TEMPLATE_FIELD}.count", "must be from 1 to 16"),
            ('{"count":1}', f"{TEMPLATE_FIELD}.className", "is required"),
            ("h200", TEMPLATE_FIELD, "must be JSON"),
        ],
        ids=["class", "above its maximum", "above any maximum", "no class", "no JSON"],
    )
    async def test_class_and_count_are_judged(self, gpu_pair: Pair, template: str, field: str, telling: str) -> None:
        vmi = a_vmi(H200, template=template, reference="notebook-1a2b3c4d")

        reply = await gpu_pair.validate(review(vmi, dry_run=True))

        assert (reply.code, reply.fields) == (422, (field,))
        assert telling in reply.message

    async def test_a_class_being_deleted_is_refused(self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
        gpu_catalog.add(a_class("h200", source=of_plugin(H200), deleting=True))
        vmi = a_vmi(H200, template='{"className":"h200"}', reference="notebook-1a2b3c4d")

        reply = await gpu_pair.validate(review(vmi, dry_run=True))

        assert (reply.code, reply.fields) == (403, (f"{TEMPLATE_FIELD}.className",))
        assert "is being deleted" in reply.message

    @pytest.mark.parametrize(
        ("gpus", "field"),
        [((), GPUS), ((H200, H200), f"{GPUS}[1]"), ((L40S,), f"{GPUS}[0].deviceName")],
        ids=["fewer", "more", "other"],
    )
    async def test_entries_are_judged(self, gpu_pair: Pair, gpus: tuple[str, ...], field: str) -> None:
        vmi = a_vmi(*gpus, template='{"className":"h200"}', reference="notebook-1a2b3c4d")

        reply = await gpu_pair.validate(review(vmi, dry_run=True))

        assert (reply.code, reply.fields) == (403, (field,))

    async def test_without_the_annotation_the_device_has_to_exist(self, gpu_pair: Pair) -> None:
        reply = await gpu_pair.validate(review(a_vmi(H200, reference="nope"), dry_run=True))

        assert (reply.code, reply.fields) == (422, (REFERENCE_FIELD,))
        assert "there is no GPUDevice 'nope'" in reply.message

    async def test_a_device_that_exists_is_judged_as_ever(self, gpu_pair: Pair) -> None:
        beside = a_vmi(H200, template='{"className":"h200"}', reference="my-gpu")

        reply = await gpu_pair.validate(review(beside, dry_run=True))

        assert (reply.code, reply.fields) == (403, (REFERENCE_FIELD,))
        assert "use one of the two" in reply.message

    async def test_a_class_that_came_meanwhile_is_let_in(self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
        vmi = a_vmi("acme.example/g", template='{"className":"late"}', reference="notebook-1a2b3c4d")

        with gpu_catalog.stale():
            before = await gpu_pair.validate(review(vmi, dry_run=True))
            gpu_catalog.add(a_class("late", source=of_plugin("acme.example/g")))
            after = await gpu_pair.validate(review(vmi, dry_run=True))

        assert not before.allowed
        assert after.allowed


class TestMissingSettings:
    @pytest.mark.parametrize(
        "more",
        [{"host_devices": ("intel.com/qat",)}, {"limits": {"intel.com/qat": "1"}}],
        ids=["host device", "resource"],
    )
    @pytest.mark.parametrize("reference", [None, "my-gpu"], ids=["without a device", "with a device"])
    async def test_a_name_that_could_be_a_gpu_is_worth_a_retry(
        self, pair_without_settings: Pair, more: dict[str, Any], reference: str | None
    ) -> None:
        vmi = a_vmi(H200, reference=reference, **more) if reference else a_vmi(**more)

        reply = await pair_without_settings.validate(review(vmi))

        assert (reply.code, reply.reason) == (503, "ServiceUnavailable")
        assert "whether 'intel.com/qat' is a GPU can't be told: the ConfigMap gpu-settings is missing" in reply.message

    @pytest.mark.parametrize(
        "vmi",
        [
            a_vmi(),
            a_vmi(limits={"cpu": "4", "hugepages-1Gi": "4Gi", "devices.kubevirt.io/kvm": "1"}),
            a_vmi(host_devices=("devices.kubevirt.io/vhost-net", "requests.kubernetes.io/x")),
            a_vmi(H200, reference="my-gpu"),
            a_vmi(host_devices=(H200,), reference="my-gpu"),
        ],
        ids=["nothing", "resources of Kubernetes", "devices of KubeVirt", "what is granted", "granted in hostDevices"],
    )
    async def test_what_can_be_told_to_be_fine_is_let_in(
        self, pair_without_settings: Pair, vmi: dict[str, Any]
    ) -> None:
        reply = await pair_without_settings.validate(review(vmi))

        assert reply.allowed, reply.message

    @pytest.mark.parametrize(
        ("vmi", "field"),
        [
            (a_vmi("acme.example/x"), f"{GPUS}[0]"),
            (a_vmi(host_devices=(H200, "intel.com/qat")), "spec.domain.devices.hostDevices[0]"),
            (a_vmi(limits={H200: "1"}), f"spec.domain.resources.limits[{H200}]"),
            (a_vmi(L40S, reference="my-gpu"), f"{GPUS}[0].deviceName"),
        ],
        ids=["any gpus entry", "a class's name", "a class's name in resources", "other than granted"],
    )
    async def test_what_is_a_gpu_all_the_same_is_refused(
        self, pair_without_settings: Pair, vmi: dict[str, Any], field: str
    ) -> None:
        reply = await pair_without_settings.validate(review(vmi))

        assert (reply.code, reply.fields) == (403, (field,))

    async def test_settings_that_came_meanwhile_are_read(
        self, aiohttp_client: Callable[[Application], Awaitable[TestClient[Any, Any]]]
    ) -> None:
        class Lagging(WithoutSettings):
            async def fresh_offer(self) -> Offer:
                return await InMemoryCatalog.fresh_offer(self)

        catalog = Lagging()
        catalog.add(a_class("h200", source=of_plugin(H200)))
        pair = Pair(await aiohttp_client(make_app(catalog=catalog)))

        reply = await pair.validate(review(a_vmi(host_devices=("intel.com/qat",))))

        assert reply.allowed

    async def test_an_embedded_catalog_without_classes_says_that_nothing_is_a_gpu(
        self, aiohttp_client: Callable[[Application], Awaitable[TestClient[Any, Any]]]
    ) -> None:
        pair = Pair(await aiohttp_client(make_app(catalog=InMemoryCatalog())))

        reply = await pair.validate(review(a_vmi(host_devices=("intel.com/qat",))))

        assert reply.allowed
