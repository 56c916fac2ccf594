"""VirtualMachine, VMIReplicaSet, VMPool, CREATE and UPDATE: never refused, and what their author is told."""

from copy import deepcopy
from typing import Any

import pytest

from webhooks.testing import InMemoryCatalog, Pair, persisted, review

REFERENCE = "gpu.cozystack.io/device-reference"
TEMPLATE = "gpu.cozystack.io/device-template"
H200 = "nvidia.com/GH100_H200_SXM_141GB"
L40S = "nvidia.com/L40S-24Q"
BY_CLASS = '{"className":"h200","count":2}'
VM = "VirtualMachine"
REPLICA_SET = "VirtualMachineInstanceReplicaSet"
POOL = "VirtualMachinePool"
FAMILY = [VM, REPLICA_SET, POOL]
PATHS = {VM: "spec.template", REPLICA_SET: "spec.template", POOL: "spec.virtualMachineTemplate.spec.template"}
DELETION = {"deletionTimestamp": "2026-11-01T10:00:00Z"}


def made_from(kind: str, template: Any, *, name: str = "notebook", replicas: int | None = None) -> dict[str, Any]:
    """One of the family in tenant-a with this VMI template."""
    spec: dict[str, Any] = {"template": template}
    if kind == POOL:
        spec = {"virtualMachineTemplate": {"spec": spec}}
    if replicas is not None:
        spec["replicas"] = replicas
    group = "pool.kubevirt.io/v1beta1" if kind == POOL else "kubevirt.io/v1"
    return {"apiVersion": group, "kind": kind, "metadata": {"name": name, "namespace": "tenant-a"}, "spec": spec}


def a_template(
    *device_names: str,
    reference: str | None = None,
    template: str | None = None,
    host_devices: tuple[str, ...] = (),
) -> dict[str, Any]:
    """A VMI template."""
    entries = [{"name": f"gpu-{index}", "deviceName": name} for index, name in enumerate(device_names)]
    hosted = [{"name": f"host-{index}", "deviceName": name} for index, name in enumerate(host_devices)]
    return {
        "metadata": {
            "labels": {REFERENCE: reference} if reference is not None else {},
            "annotations": {TEMPLATE: template} if template is not None else {},
        },
        "spec": {"domain": {"devices": {"gpus": entries, "hostDevices": hosted}}},
    }


async def warnings_about(pair: Pair, obj: dict[str, Any] | None, **options: Any) -> tuple[str, ...]:
    """The warnings about an object, which is let in."""
    reply = await pair.validate(review(obj, **options))
    assert reply.allowed, reply.message
    assert reply.patch == ()
    for warning in reply.warnings:
        assert warning.isprintable()
        assert 0 < len(warning) <= 256
    return reply.warnings


class TestStart:
    @pytest.mark.parametrize("kind", FAMILY)
    @pytest.mark.parametrize(
        "template",
        [a_template(), a_template(reference="my-gpu"), a_template(L40S, reference="my-gpu"), {}, {"spec": None}],
        ids=["no GPU", "a device", "a device, rewritten", "empty", "null spec"],
    )
    async def test_nothing_is_said_of_what_would_start(
        self, gpu_pair: Pair, kind: str, template: dict[str, Any]
    ) -> None:
        assert await warnings_about(gpu_pair, made_from(kind, template)) == ()

    @pytest.mark.parametrize("kind", FAMILY)
    @pytest.mark.parametrize(
        ("template", "told"),
        [
            (a_template("acme.example/x"), "spec.domain.devices.gpus[0]: asks for 'acme.example/x' by its raw name"),
            (
                a_template(host_devices=("intel.com/qat", L40S)),
                f"spec.domain.devices.hostDevices[1]: asks for '{L40S}' by its raw name",
            ),
            (a_template(reference="nope"), f"metadata.labels[{REFERENCE}]: there is no GPUDevice 'nope'"),
            (a_template(reference="desk-gpu"), f"metadata.labels[{REFERENCE}]: GPUDevice 'desk-gpu' is in use by"),
            (
                a_template(H200, H200, reference="my-gpu"),
                "spec.domain.devices.gpus[1]: is GPU entry 2 of 2, and the device grants 1",
            ),
            (
                a_template(reference="my-gpu", template=BY_CLASS),
                f"metadata.labels[{REFERENCE}]: refers to GPUDevice 'my-gpu' while the annotation",
            ),
            (
                a_template(template='{"className":"H200"}'),
                f"metadata.annotations[{TEMPLATE}].className: there is no GPUClass 'H200'",
            ),
            (
                a_template(template='{"className":"h200","count":9}'),
                f"metadata.annotations[{TEMPLATE}].count: GPUClass",
            ),
            (a_template(template="h200"), f"metadata.annotations[{TEMPLATE}]: must be JSON such as"),
        ],
        ids=[
            "raw gpus",
            "raw hostDevices",
            "no device",
            "in use",
            "more entries",
            "both ways",
            "no class",
            "above its maximum",
            "malformed order",
        ],
    )
    async def test_what_would_be_refused_at_start_is_told_with_its_path_inside(
        self, gpu_pair: Pair, kind: str, template: dict[str, Any], told: str
    ) -> None:
        warnings = await warnings_about(gpu_pair, made_from(kind, template))

        assert warnings[0].startswith(f"would be refused at start: {PATHS[kind]}.{told}")

    @pytest.mark.parametrize("kind", FAMILY)
    @pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
    async def test_it_is_told_what_to_do(self, gpu_pair: Pair, kind: str, operation: str) -> None:
        raw = made_from(kind, a_template(H200))
        old = made_from(kind, a_template()) if operation == "UPDATE" else None

        warnings = await warnings_about(gpu_pair, raw, operation=operation, old=old)

        assert len(warnings) == 2
        assert warnings[1].startswith(f"to have it start: order a GPUDevice and refer to it by the label {REFERENCE}")

    async def test_everything_that_is_wrong_is_told_up_to_a_limit(self, gpu_pair: Pair) -> None:
        three = await warnings_about(gpu_pair, made_from(VM, a_template(H200, L40S, host_devices=(H200,))))
        thousand = await warnings_about(gpu_pair, made_from(VM, a_template(*[H200] * 1000)))

        assert [warning.split(": ")[1] for warning in three[:3]] == [
            "spec.template.spec.domain.devices.gpus[0]",
            "spec.template.spec.domain.devices.gpus[1]",
            "spec.template.spec.domain.devices.hostDevices[0]",
        ]
        assert 3 < len(thousand) < 12

    async def test_hostile_names_stay_one_printable_line(self, gpu_pair: Pair) -> None:
        names = (
            "acme.example/\r\nSet-Cookie: x\x00\x1b[31m",
            f"acme.example/{'y' * 5000}",
            "acme.example/\u2028\u202e",
        )

        warnings = await warnings_about(gpu_pair, made_from(VM, a_template(*names)))

        assert len(warnings) == 4

    async def test_it_is_judged_on_a_fresh_read(self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
        late = {
            "apiVersion": "gpu.cozystack.io/v1alpha1",
            "kind": "GPUDevice",
            "metadata": {"name": "late", "namespace": "tenant-a"},
            "spec": {"className": "h200"},
        }
        with gpu_catalog.stale():
            before = await warnings_about(gpu_pair, made_from(VM, a_template(reference="late")))
            gpu_catalog.add(late)
            after = await warnings_about(gpu_pair, made_from(VM, a_template(reference="late")))

        assert before
        assert after == ()


class TestSurprises:
    @pytest.mark.parametrize("kind", [VM, POOL])
    async def test_a_template_device_is_lost_over_a_long_stop(self, gpu_pair: Pair, kind: str) -> None:
        warnings = await warnings_about(gpu_pair, made_from(kind, a_template(template=BY_CLASS)))

        field = f"{PATHS[kind]}.metadata.annotations[{TEMPLATE}]"
        assert len(warnings) == 1
        assert warnings[0].startswith(f"{field}: a stop of over 15 s gives the GPU back")

    async def test_a_replica_set_has_no_stop(self, gpu_pair: Pair) -> None:
        assert await warnings_about(gpu_pair, made_from(REPLICA_SET, a_template(template=BY_CLASS), replicas=3)) == ()

    @pytest.mark.parametrize("kind", [REPLICA_SET, POOL])
    async def test_one_reference_under_several_replicas_starts_one_vm(self, gpu_pair: Pair, kind: str) -> None:
        warnings = await warnings_about(gpu_pair, made_from(kind, a_template(reference="my-gpu"), replicas=3))

        field = f"{PATHS[kind]}.metadata.labels[{REFERENCE}]"
        assert len(warnings) == 1
        assert warnings[0].startswith(f"{field}: one device starts one of 3 replicas")

    @pytest.mark.parametrize("kind", [REPLICA_SET, POOL])
    @pytest.mark.parametrize("replicas", [None, 0, 1])
    async def test_one_reference_under_one_replica_is_fine(
        self, gpu_pair: Pair, kind: str, replicas: int | None
    ) -> None:
        obj = made_from(kind, a_template(reference="my-gpu"), replicas=replicas)

        assert await warnings_about(gpu_pair, obj) == ()

    @pytest.mark.parametrize("kind", [REPLICA_SET, POOL])
    async def test_an_annotation_beside_a_reference_has_one_built_for_each_replica(
        self, gpu_pair: Pair, kind: str
    ) -> None:
        obj = made_from(kind, a_template(reference="restored", template=BY_CLASS), replicas=3)

        warnings = await warnings_about(gpu_pair, obj)

        assert [warning for warning in warnings if "replicas" in warning] == []

    async def test_the_refusal_comes_before_the_surprise(self, gpu_pair: Pair) -> None:
        warnings = await warnings_about(gpu_pair, made_from(REPLICA_SET, a_template(reference="nope"), replicas=2))

        assert "there is no GPUDevice 'nope'" in warnings[0]
        assert "starts one of 2 replicas" in warnings[-1]


class TestSilence:
    @pytest.mark.parametrize("kind", FAMILY)
    @pytest.mark.parametrize(
        "template", [a_template(H200), a_template(reference="nope"), a_template(template=BY_CLASS)]
    )
    async def test_an_update_that_leaves_the_template_alone_is_passed_over(
        self, gpu_pair: Pair, kind: str, template: dict[str, Any]
    ) -> None:
        old = made_from(kind, template, replicas=1)
        new = made_from(kind, deepcopy(template), replicas=3)
        new["metadata"] |= {"labels": {"app": "notebook"}, "finalizers": ["acme.example/keep"]}
        new["status"] = {"ready": True}

        assert await warnings_about(gpu_pair, new, operation="UPDATE", old=old) == ()

    @pytest.mark.parametrize("kind", FAMILY)
    async def test_an_update_of_the_template_is_looked_at(self, gpu_pair: Pair, kind: str) -> None:
        old, new = made_from(kind, a_template(H200)), made_from(kind, a_template(H200, L40S))

        warnings = await warnings_about(gpu_pair, new, operation="UPDATE", old=old)

        assert "gpus[1]" in warnings[1]

    @pytest.mark.parametrize("kind", FAMILY)
    @pytest.mark.parametrize("old_template", [None, "changed"], ids=["create", "update"])
    async def test_what_is_being_deleted_is_passed_over(
        self, gpu_pair: Pair, kind: str, old_template: str | None
    ) -> None:
        obj = made_from(kind, a_template(H200))
        obj["metadata"] |= DELETION
        options = {"operation": "UPDATE", "old": made_from(kind, a_template())} if old_template else {}

        assert await warnings_about(gpu_pair, obj, **options) == ()

    @pytest.mark.parametrize("kind", FAMILY)
    async def test_a_delete_is_passed_over(self, gpu_pair: Pair, kind: str) -> None:
        raw = made_from(kind, a_template(H200))

        assert await warnings_about(gpu_pair, None, operation="DELETE", old=raw) == ()

    @pytest.mark.parametrize("subresource", ["status", "scale"])
    async def test_a_subresource_is_passed_over(self, gpu_pair: Pair, subresource: str) -> None:
        raw = made_from(REPLICA_SET, a_template(H200))

        assert await warnings_about(gpu_pair, raw, operation="UPDATE", subresource=subresource) == ()

    async def test_a_namesake_in_another_group_is_passed_over(self, gpu_pair: Pair) -> None:
        raw = made_from(VM, a_template(H200)) | {"apiVersion": "example.com/v1"}

        assert await warnings_about(gpu_pair, raw) == ()

    async def test_the_own_device_of_a_running_vm_is_no_surprise(self, gpu_pair: Pair) -> None:
        old = made_from(VM, a_template(reference="desk-gpu"), name="desk")
        new = made_from(VM, a_template(L40S, reference="desk-gpu"), name="desk")

        assert await warnings_about(gpu_pair, new, operation="UPDATE", old=old) == ()

    @pytest.mark.parametrize("kind", [REPLICA_SET, POOL])
    async def test_a_set_whose_own_vmi_may_have_the_device_is_told_nothing_on_an_update(
        self, gpu_pair: Pair, kind: str
    ) -> None:
        old = made_from(kind, a_template(reference="desk-gpu"), name="desk")
        new = made_from(kind, a_template(L40S, reference="desk-gpu"), name="desk")

        assert await warnings_about(gpu_pair, new, operation="UPDATE", old=old) == ()

    async def test_the_template_device_of_a_running_vm_is_no_refusal(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog
    ) -> None:
        vm = persisted(made_from(VM, a_template(template=BY_CLASS), name="train"))
        owner = {"apiVersion": "kubevirt.io/v1", "kind": VM, "name": "train", "controller": True}
        vmi = {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": {
                "name": "train",
                "namespace": "tenant-a",
                "annotations": {TEMPLATE: BY_CLASS},
                "ownerReferences": [owner | {"uid": vm["metadata"]["uid"]}],
            },
            "spec": {},
        }
        admitted = await gpu_pair.admit(vmi)
        device = admitted.obj["metadata"]["labels"][REFERENCE]
        gpu_catalog.add(admitted.obj)
        gpu_catalog.hold("tenant-a", device, node="gpu-node-1", vmi=admitted.obj)
        new = deepcopy(vm)
        new["spec"]["template"]["spec"]["hostname"] = "train"

        warnings = await warnings_about(gpu_pair, new, operation="UPDATE", old=vm)

        assert [warning for warning in warnings if "refused" in warning] == []

    @pytest.mark.parametrize("kind", FAMILY)
    async def test_nothing_is_ever_built(self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog, kind: str) -> None:
        before = list(gpu_catalog.devices("tenant-a"))

        for template in (a_template(template=BY_CLASS), a_template(template=BY_CLASS, reference="restored")):
            await warnings_about(gpu_pair, made_from(kind, template))
            await warnings_about(gpu_pair, made_from(kind, template), operation="UPDATE", old=made_from(kind, {}))

        assert list(gpu_catalog.devices("tenant-a")) == before
