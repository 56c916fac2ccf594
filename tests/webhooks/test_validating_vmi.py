"""VirtualMachineInstance, CREATE: how one may ask for GPUs, without a device and with one."""

from typing import Any

import pytest

from webhooks.testing import InMemoryCatalog, Pair, Reply, review

REFERENCE = "gpu.cozystack.io/device-reference"
TEMPLATE = "gpu.cozystack.io/device-template"
TEMPLATE_FIELD = f"metadata.annotations[{TEMPLATE}]"
H200 = "nvidia.com/GH100_H200_SXM_141GB"
L40S = "nvidia.com/L40S-24Q"
RETIRED = "nvidia.com/GA100_A100_PCIE_40GB"
GPUS = "spec.domain.devices.gpus"
HOST_DEVICES = "spec.domain.devices.hostDevices"
RESOURCES = "spec.domain.resources"


def a_vmi(
    *device_names: str,
    gpus: list[dict[str, Any]] | None = None,
    host_devices: tuple[str, ...] = (),
    reference: str | None = None,
    template: str | None = None,
    resources: dict[str, dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """A VMI of tenant-a in its final form, whose ``gpus`` are of the names given, or as given."""
    entries = [{"name": f"gpu-{index}", "deviceName": name} for index, name in enumerate(device_names)]
    hosted = [{"name": f"host-{index}", "deviceName": name} for index, name in enumerate(host_devices)]
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {
            "name": "notebook",
            "namespace": "tenant-a",
            "uid": "9b9f0c5e-0000-4000-8000-000000000001",
            "labels": {"app": "notebook"} | ({REFERENCE: reference} if reference is not None else {}),
            "annotations": {TEMPLATE: template} if template is not None else {},
        },
        "spec": {
            "domain": {
                "devices": {"gpus": entries if gpus is None else gpus, "hostDevices": hosted},
                "resources": resources or {},
                "memory": {"guest": "32Gi"},
            }
        },
    }


def gpu_class(name: str, resource_name: str, *sold: str) -> dict[str, Any]:
    """A class of passthrough GPUs that sold other names before."""
    return {
        "apiVersion": "gpu.cozystack.io/v1alpha1",
        "kind": "GPUClass",
        "metadata": {"name": name},
        "spec": {
            "vendor": "NVIDIA",
            "model": name,
            "mode": "Passthrough",
            "memory": "141Gi",
            "maxCount": 8,
            "source": {"devicePlugin": {"resourceName": resource_name, "nodeSelector": {}}},
        },
        "status": {"resourceNames": list(sold)},
    }


def published(*resource_names: str) -> dict[str, Any]:
    """The settings with these names, in place of those of the examples."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "gpu-settings", "namespace": "gpu-system"},
        "data": {"resourceNames": ",".join(resource_names)},
    }


def assert_refused(reply: Reply, *fields: str, code: int = 403, telling: str) -> None:
    assert not reply.allowed
    assert (reply.code, reply.fields) == (code, fields), reply.message
    assert telling in reply.message


class TestWithoutDevice:
    async def test_what_is_no_gpu_is_let_in(self, gpu_pair: Pair) -> None:
        amounts = {"cpu": "4", "memory": "32Gi", "hugepages-2Mi": "1Gi", "devices.kubevirt.io/kvm": "1"}
        vmi = a_vmi(host_devices=("intel.com/qat",), resources={"requests": amounts, "limits": {"intel.com/qat": "1"}})

        reply = await gpu_pair.validate(review(vmi))

        assert reply.allowed
        assert reply.warnings == ()

    @pytest.mark.parametrize(
        "spec",
        [
            None,
            {},
            {"domain": None},
            {"domain": {"devices": None, "resources": None}},
            {"domain": {"devices": {"gpus": None, "hostDevices": []}, "resources": {"requests": None}}},
        ],
        ids=["no spec", "empty", "null domain", "null devices", "null lists"],
    )
    async def test_a_spec_without_devices_is_let_in(self, gpu_pair: Pair, spec: dict[str, Any] | None) -> None:
        vmi = {**a_vmi(), "spec": spec}

        reply = await gpu_pair.validate(review(vmi))

        assert reply.allowed

    @pytest.mark.parametrize(
        ("entry", "telling"),
        [
            ({"deviceName": H200}, f"asks for '{H200}' by its raw name"),
            ({"deviceName": RETIRED}, f"asks for '{RETIRED}' by its raw name"),
            ({"deviceName": "acme.example/never-heard-of"}, "asks for 'acme.example/never-heard-of' by its raw name"),
            ({"deviceName": "devices.kubevirt.io/kvm"}, "asks for 'devices.kubevirt.io/kvm' by its raw name"),
            ({"claimName": "card", "requestName": "gpu"}, "asks for a GPU by a resource claim"),
            ({}, "asks for a GPU"),
        ],
        ids=["of a class", "of a retired class", "of nobody", "of KubeVirt", "by claim", "without a name"],
    )
    async def test_no_gpus_entry_at_all(self, gpu_pair: Pair, entry: dict[str, str], telling: str) -> None:
        vmi = a_vmi(gpus=[{"name": "gpu1", **entry}])

        reply = await gpu_pair.validate(review(vmi))

        assert_refused(reply, f"{GPUS}[0]", telling=telling)
        assert REFERENCE in reply.message
        assert TEMPLATE in reply.message

    @pytest.mark.parametrize("name", [H200, L40S, RETIRED, "nvidia.com/OLD-NAME", "nvidia.com/UNPUBLISHED"])
    async def test_no_host_device_of_a_gpu_resource_name(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog, name: str
    ) -> None:
        gpu_catalog.add(gpu_class("renamed", "nvidia.com/UNPUBLISHED", "nvidia.com/OLD-NAME"))
        vmi = a_vmi(host_devices=("intel.com/qat", name))

        reply = await gpu_pair.validate(review(vmi))

        assert_refused(reply, f"{HOST_DEVICES}[1]", telling=f"asks for '{name}' by its raw name")
        assert REFERENCE in reply.message

    async def test_a_name_that_neither_settings_nor_a_class_have_is_no_gpu(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog
    ) -> None:
        gpu_catalog.add(published(H200))
        vmi = a_vmi(host_devices=(RETIRED,))

        reply = await gpu_pair.validate(review(vmi))

        assert reply.allowed

    async def test_host_devices_by_claim_are_not_ours(self, gpu_pair: Pair) -> None:
        vmi = a_vmi()
        vmi["spec"]["domain"]["devices"]["hostDevices"] = [{"name": "nic", "claimName": "nic", "requestName": "vf"}]

        reply = await gpu_pair.validate(review(vmi))

        assert reply.allowed

    @pytest.mark.parametrize("list_name", ["requests", "limits"])
    @pytest.mark.parametrize("amount", ["1", 1, "0"])
    async def test_no_gpu_resource_name_in_domain_resources(
        self, gpu_pair: Pair, list_name: str, amount: str | int
    ) -> None:
        vmi = a_vmi(resources={list_name: {"cpu": "4", RETIRED: amount}})

        reply = await gpu_pair.validate(review(vmi))

        assert_refused(reply, f"{RESOURCES}.{list_name}[{RETIRED}]", telling=f"asks for '{RETIRED}' by its raw name")

    async def test_everything_that_is_wrong_is_told_at_once(self, gpu_pair: Pair) -> None:
        amounts = {"requests": {H200: "1"}, "limits": {H200: "1", "memory": "1Gi"}}
        vmi = a_vmi(H200, "acme.example/x", host_devices=("intel.com/qat", L40S), resources=amounts)

        reply = await gpu_pair.validate(review(vmi))

        assert_refused(
            reply,
            f"{GPUS}[0]",
            f"{GPUS}[1]",
            f"{HOST_DEVICES}[1]",
            f"{RESOURCES}.requests[{H200}]",
            f"{RESOURCES}.limits[{H200}]",
            telling=f"{HOST_DEVICES}[1]: asks for '{L40S}'",
        )

    async def test_a_thousand_entries_give_a_short_answer_that_still_says_what_to_do(self, gpu_pair: Pair) -> None:
        vmi = a_vmi(*[f"acme.example/{'x' * 200}"] * 1000)

        reply = await gpu_pair.validate(review(vmi))

        assert_refused(reply, *[f"{GPUS}[{index}]" for index in range(16)], telling="and 984 more like these")
        assert len(reply.message) <= 2048
        assert REFERENCE in reply.message

    async def test_the_annotation_without_the_label_says_that_the_mutating_path_was_not_reached(
        self, gpu_pair: Pair
    ) -> None:
        vmi = a_vmi(H200, template='{"className":"h200"}')

        reply = await gpu_pair.validate(review(vmi))

        assert_refused(reply, TEMPLATE_FIELD, telling="the mutating webhook of gpu-webhooks was not called")

    @pytest.mark.parametrize("template", ["", "no JSON", '{"className":"nope"}'])
    async def test_the_annotation_without_the_label_is_refused_whatever_it_says(
        self, gpu_pair: Pair, template: str
    ) -> None:
        reply = await gpu_pair.validate(review(a_vmi(template=template)))

        assert_refused(reply, TEMPLATE_FIELD, telling="orders a device, but none was built")

    async def test_a_dry_run_without_the_label_is_judged_alike(self, gpu_pair: Pair) -> None:
        raw = await gpu_pair.validate(review(a_vmi(H200), dry_run=True))
        by_annotation = await gpu_pair.validate(review(a_vmi(template='{"className":"h200"}'), dry_run=True))

        assert_refused(raw, f"{GPUS}[0]", telling="by its raw name")
        assert_refused(by_annotation, TEMPLATE_FIELD, telling="was not called")

    async def test_a_name_that_was_forgotten_meanwhile_is_let_in(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog
    ) -> None:
        vmi = a_vmi(host_devices=(RETIRED,), resources={"limits": {RETIRED: "1"}})

        with gpu_catalog.stale():
            remembered = await gpu_pair.validate(review(vmi))
            gpu_catalog.add(published(H200, L40S))
            forgotten = await gpu_pair.validate(review(vmi))

        assert not remembered.allowed
        assert forgotten.allowed

    @pytest.mark.parametrize(
        ("field", "value", "expected"),
        [
            ("gpus", "all", "must be a list, not a string"),
            ("gpus", ["one"], "must be an object, not a string"),
            ("hostDevices", {}, "must be a list, not an object"),
        ],
    )
    async def test_a_list_of_another_type_is_malformed(
        self, gpu_pair: Pair, field: str, value: object, expected: str
    ) -> None:
        vmi = a_vmi()
        vmi["spec"]["domain"]["devices"][field] = value

        reply = await gpu_pair.validate(review(vmi))

        assert reply.code == 422
        assert reply.fields[0].startswith(f"spec.domain.devices.{field}")
        assert expected in reply.message


class TestWithDevice:
    @pytest.mark.parametrize(
        ("reference", "gpus", "host_devices"),
        [
            ("my-gpu", (H200,), ()),
            ("my-gpu", (), (H200,)),
            ("my-gpu", (H200,), ("intel.com/qat",)),
            ("lab-gpu", (H200, H200), ()),
            ("lab-gpu", (H200,), (H200,)),
            ("lab-gpu", (), (H200, "intel.com/qat", H200)),
        ],
        ids=["gpus", "hostDevices", "beside another", "two", "mixed", "two in hostDevices"],
    )
    async def test_entries_that_are_exactly_what_is_granted_are_let_in(
        self, gpu_pair: Pair, reference: str, gpus: tuple[str, ...], host_devices: tuple[str, ...]
    ) -> None:
        vmi = a_vmi(*gpus, host_devices=host_devices, reference=reference)

        reply = await gpu_pair.validate(review(vmi))

        assert reply.allowed, reply.message

    @pytest.mark.parametrize(
        ("gpus", "host_devices", "field", "telling"),
        [
            ((), (), GPUS, "has 0 GPU entries, and the device grants 2"),
            ((H200,), (), GPUS, "has 1 GPU entries, and the device grants 2"),
            ((), (H200,), GPUS, "has 1 GPU entries, and the device grants 2"),
            ((H200, H200, H200), (), f"{GPUS}[2]", "is GPU entry 3 of 3, and the device grants 2"),
            ((), (H200, H200, H200), f"{HOST_DEVICES}[2]", "is GPU entry 3 of 3"),
            ((H200, H200), ("intel.com/qat", H200), f"{HOST_DEVICES}[1]", "is GPU entry 3 of 3"),
            ((H200, H200), (RETIRED,), f"{HOST_DEVICES}[0]", "is GPU entry 3 of 3"),
            ((H200, L40S), (), f"{GPUS}[1].deviceName", f"asks for '{L40S}', and the device grants '{H200}'"),
            ((H200, "acme.example/x"), (), f"{GPUS}[1].deviceName", "asks for 'acme.example/x'"),
            ((H200,), (L40S,), f"{HOST_DEVICES}[0].deviceName", f"asks for '{L40S}'"),
            ((H200, ""), (), f"{GPUS}[1].deviceName", "asks for 'no device'"),
            ((H200,) * 1000, (), f"{GPUS}[2]", "is GPU entry 3 of 1000"),
        ],
        ids=[
            "none",
            "fewer",
            "fewer in hostDevices",
            "more",
            "more in hostDevices",
            "more, mixed",
            "more by a retired name",
            "other name",
            "unknown name",
            "other name in hostDevices",
            "no name",
            "a thousand",
        ],
    )
    async def test_entries_that_are_not_exactly_what_is_granted_are_refused(
        self, gpu_pair: Pair, gpus: tuple[str, ...], host_devices: tuple[str, ...], field: str, telling: str
    ) -> None:
        vmi = a_vmi(*gpus, host_devices=host_devices, reference="lab-gpu")

        reply = await gpu_pair.validate(review(vmi))

        assert_refused(reply, field, telling=telling)

    @pytest.mark.parametrize(
        "claim",
        [
            {"claimName": "card", "requestName": "gpu"},
            {"claimName": "card", "deviceName": H200},
            {"requestName": "gpu", "deviceName": H200},
        ],
        ids=["alone", "claim beside the name", "request beside the name"],
    )
    async def test_no_claim_in_gpus(self, gpu_pair: Pair, claim: dict[str, str]) -> None:
        vmi = a_vmi(gpus=[{"name": "gpu-0", **claim}], reference="my-gpu")

        reply = await gpu_pair.validate(review(vmi))

        assert_refused(reply, f"{GPUS}[0]", telling="asks by a resource claim")

    async def test_claims_in_host_devices_are_not_ours(self, gpu_pair: Pair) -> None:
        vmi = a_vmi(H200, reference="my-gpu")
        vmi["spec"]["domain"]["devices"]["hostDevices"] = [{"name": "nic", "claimName": "nic", "requestName": "vf"}]

        reply = await gpu_pair.validate(review(vmi))

        assert reply.allowed

    @pytest.mark.parametrize("list_name", ["requests", "limits"])
    @pytest.mark.parametrize("name", [H200, L40S, RETIRED])
    async def test_no_gpu_name_in_domain_resources(self, gpu_pair: Pair, list_name: str, name: str) -> None:
        vmi = a_vmi(H200, reference="my-gpu", resources={list_name: {"cpu": "4", "intel.com/qat": "1", name: "0"}})

        reply = await gpu_pair.validate(review(vmi))

        assert_refused(reply, f"{RESOURCES}.{list_name}[{name}]", telling=f"'{name}' is added by KubeVirt itself")

    async def test_other_amounts_in_domain_resources_are_let_in(self, gpu_pair: Pair) -> None:
        amounts = {"cpu": "4", "intel.com/qat": "1", "acme.example/x": "1"}
        vmi = a_vmi(H200, reference="my-gpu", resources={"requests": amounts, "limits": amounts})

        reply = await gpu_pair.validate(review(vmi))

        assert reply.allowed

    async def test_entries_and_amounts_that_are_wrong_are_told_at_once(self, gpu_pair: Pair) -> None:
        vmi = a_vmi(L40S, reference="my-gpu", resources={"requests": {H200: "2"}})

        reply = await gpu_pair.validate(review(vmi))

        assert_refused(
            reply, f"{GPUS}[0].deviceName", f"{RESOURCES}.requests[{H200}]", telling=f"the device grants '{H200}'"
        )
