"""The device that a VMI refers to: which one it may use."""

from typing import Any

import pytest

from webhooks.testing import InMemoryCatalog, Pair, Reply, review

REFERENCE = "gpu.cozystack.io/device-reference"
TEMPLATE = "gpu.cozystack.io/device-template"
TEMPLATE_DEVICE = "gpu.cozystack.io/template-device"
REFERENCE_FIELD = f"metadata.labels[{REFERENCE}]"
TEMPLATE_FIELD = f"metadata.annotations[{TEMPLATE}]"
H200 = "nvidia.com/GH100_H200_SXM_141GB"
OURS = "9b9f0c5e-0000-4000-8000-000000000001"
THEIRS = "9b9f0c5e-0000-4000-8000-000000000002"
EARLIER = "9b9f0c5e-0000-4000-8000-000000000003"


def a_vmi(
    reference: str | None = "my-gpu",
    *,
    name: str = "notebook",
    uid: str = OURS,
    template: str | None = None,
    gpus: int = 1,
) -> dict[str, Any]:
    """A VMI of tenant-a in its final form that asks for ``gpus`` of class h200."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {
            "name": name,
            "namespace": "tenant-a",
            "uid": uid,
            "labels": {"app": name} | ({REFERENCE: reference} if reference is not None else {}),
            "annotations": {TEMPLATE: template} if template is not None else {},
        },
        "spec": {
            "domain": {"devices": {"gpus": [{"name": f"gpu-{index}", "deviceName": H200} for index in range(gpus)]}}
        },
    }


def a_device(
    name: str = "built",
    *,
    from_template: bool = False,
    count: int | None = None,
    bound_to: tuple[str, str] | None = None,
    deleting: bool = False,
    namespace: str = "tenant-a",
) -> dict[str, Any]:
    """A held device of class h200, bound to the VMI of the name and the uid given."""
    status: dict[str, Any] = {"phase": "Held", "resourceName": H200, "nodeName": "gpu-node-1"}
    if bound_to is not None:
        status["binding"] = {"name": bound_to[0], "uid": bound_to[1]}
    return {
        "apiVersion": "gpu.cozystack.io/v1alpha1",
        "kind": "GPUDevice",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {TEMPLATE_DEVICE: "true"} if from_template else {},
            **({"deletionTimestamp": "2026-11-01T10:00:00Z"} if deleting else {}),
        },
        "spec": {"className": "h200"} | ({"count": count} if count is not None else {}),
        "status": status,
    }


def a_launcher(vmi_uid: str, phase: str, *, kind: str = "VirtualMachineInstance") -> dict[str, Any]:
    """A pod whose controller owner has the uid."""
    owner = {"apiVersion": "kubevirt.io/v1", "kind": kind, "name": "other", "uid": vmi_uid, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "virt-launcher-other-x7k2p",
            "namespace": "tenant-a",
            "labels": {REFERENCE: "built"},
            "ownerReferences": [owner],
        },
        "spec": {"nodeName": "gpu-node-1", "containers": [{"name": "c", "resources": {"limits": {H200: "1"}}}]},
        "status": {"phase": phase},
    }


def assert_refused(reply: Reply, code: int, *fields: str, telling: str) -> None:
    assert not reply.allowed
    assert (reply.code, reply.fields) == (code, fields), reply.message
    assert telling in reply.message


class TestExists:
    async def test_a_device_that_exists_is_let_in(self, gpu_pair: Pair) -> None:
        reply = await gpu_pair.validate(review(a_vmi("my-gpu")))

        assert reply.allowed, reply.message

    @pytest.mark.parametrize("name", ["nope", "", "MY-GPU", "my-gpu/status", "../my-gpu", "x" * 500])
    async def test_a_device_that_does_not_exist_is_refused(self, gpu_pair: Pair, name: str) -> None:
        reply = await gpu_pair.validate(review(a_vmi(name)))

        assert_refused(reply, 422, REFERENCE_FIELD, telling=f"there is no GPUDevice '{name[:60]}")
        assert "in namespace 'tenant-a'" in reply.message
        assert len(reply.message) < 400

    async def test_a_device_of_another_namespace_is_refused(self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
        gpu_catalog.add(a_device("elsewhere", namespace="tenant-b"))

        reply = await gpu_pair.validate(review(a_vmi("elsewhere")))

        assert_refused(reply, 422, REFERENCE_FIELD, telling="no GPUDevice 'elsewhere' in namespace 'tenant-a'")

    async def test_a_device_that_memory_lacks_is_looked_for_afresh(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog
    ) -> None:
        with gpu_catalog.stale():
            gpu_catalog.add(a_device("new"))
            there = await gpu_pair.validate(review(a_vmi("new")))
            missing = await gpu_pair.validate(review(a_vmi("newer")))

        assert there.allowed
        assert_refused(missing, 422, REFERENCE_FIELD, telling="there is no GPUDevice 'newer'")


class TestStays:
    async def test_a_device_being_deleted_is_refused(self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
        gpu_catalog.add(a_device(deleting=True))

        reply = await gpu_pair.validate(review(a_vmi("built")))

        assert_refused(reply, 403, REFERENCE_FIELD, telling="GPUDevice 'built' is being deleted")

    async def test_a_device_that_was_ordered_anew_meanwhile_is_let_in(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog
    ) -> None:
        gpu_catalog.add(a_device(deleting=True))

        with gpu_catalog.stale():
            gpu_catalog.add(a_device())
            reply = await gpu_pair.validate(review(a_vmi("built")))

        assert reply.allowed


class TestFree:
    async def test_a_device_in_use_by_a_vmi_that_exists_is_refused(self, gpu_pair: Pair) -> None:
        reply = await gpu_pair.validate(review(a_vmi("desk-gpu")))

        assert_refused(
            reply, 409, REFERENCE_FIELD, telling="GPUDevice 'desk-gpu' is in use by VirtualMachineInstance 'desk'"
        )
        assert reply.reason == "Conflict"

    @pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown", ""])
    async def test_a_device_whose_vmi_is_gone_is_in_use_until_its_pod_is_finished(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog, phase: str
    ) -> None:
        gpu_catalog.add(a_device(bound_to=("other", THEIRS)))
        gpu_catalog.add(a_launcher(THEIRS, phase))

        reply = await gpu_pair.validate(review(a_vmi("built")))

        assert_refused(reply, 409, REFERENCE_FIELD, telling="in use by VirtualMachineInstance 'other'")

    @pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
    async def test_a_device_whose_vmi_is_gone_and_whose_pod_is_finished_is_free(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog, phase: str
    ) -> None:
        gpu_catalog.add(a_device(bound_to=("other", THEIRS)))
        gpu_catalog.add(a_launcher(THEIRS, phase))

        reply = await gpu_pair.validate(review(a_vmi("built")))

        assert reply.allowed, reply.message

    async def test_a_binding_whose_vmi_and_pods_are_gone_binds_nothing(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog
    ) -> None:
        gpu_catalog.add(a_device(bound_to=("other", THEIRS)))

        reply = await gpu_pair.validate(review(a_vmi("built")))

        assert reply.allowed, reply.message

    async def test_a_vmi_of_the_bindings_name_with_another_uid_is_another_vmi(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog
    ) -> None:
        gpu_catalog.add(a_device(bound_to=("other", EARLIER)))
        gpu_catalog.add(a_vmi("built", name="other", uid=THEIRS))
        gpu_catalog.add(a_launcher(THEIRS, "Running"))

        reply = await gpu_pair.validate(review(a_vmi("built")))

        assert reply.allowed, reply.message

    @pytest.mark.parametrize(
        "pod",
        [a_launcher(EARLIER, "Running"), a_launcher(THEIRS, "Running", kind="ReplicaSet")],
        ids=["of another VMI", "of another kind"],
    )
    async def test_labels_never_decide_that_a_pod_uses_it(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog, pod: dict[str, Any]
    ) -> None:
        gpu_catalog.add(a_device(bound_to=("other", THEIRS)))
        gpu_catalog.add(pod)

        reply = await gpu_pair.validate(review(a_vmi("built")))

        assert reply.allowed, reply.message

    async def test_a_device_in_use_by_this_very_vmi_is_let_in(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog
    ) -> None:
        gpu_catalog.add(a_device(bound_to=("notebook", OURS)))
        gpu_catalog.add(a_vmi("built"))
        gpu_catalog.add(a_launcher(OURS, "Running"))

        reply = await gpu_pair.validate(review(a_vmi("built")))

        assert reply.allowed, reply.message

    async def test_a_device_that_the_pod_of_this_vms_last_vmi_still_uses_is_refused(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog
    ) -> None:
        gpu_catalog.add(a_device(bound_to=("notebook", EARLIER)))
        gpu_catalog.add(a_launcher(EARLIER, "Running"))

        reply = await gpu_pair.validate(review(a_vmi("built")))

        assert_refused(reply, 409, REFERENCE_FIELD, telling="in use by VirtualMachineInstance 'notebook'")

    async def test_a_holder_that_is_gone_by_now_does_not_use_it(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog
    ) -> None:
        gpu_catalog.add(a_device(bound_to=("other", THEIRS)))
        gpu_catalog.add(a_vmi("built", name="other", uid=THEIRS))

        with gpu_catalog.stale():
            before = await gpu_pair.validate(review(a_vmi("built")))
            gpu_catalog.remove("VirtualMachineInstance", "tenant-a", "other")
            after = await gpu_pair.validate(review(a_vmi("built")))

        assert_refused(before, 409, REFERENCE_FIELD, telling="in use")
        assert after.allowed

    async def test_a_pod_that_has_finished_by_now_does_not_use_it(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog
    ) -> None:
        gpu_catalog.add(a_device(bound_to=("other", THEIRS)))
        gpu_catalog.add(a_launcher(THEIRS, "Running"))

        with gpu_catalog.stale():
            before = await gpu_pair.validate(review(a_vmi("built")))
            gpu_catalog.add(a_launcher(THEIRS, "Succeeded"))
            after = await gpu_pair.validate(review(a_vmi("built")))

        assert_refused(before, 409, REFERENCE_FIELD, telling="in use")
        assert after.allowed


class TestWayOfOrdering:
    @pytest.mark.parametrize(
        ("count", "template"),
        [(None, '{"className":"h200"}'), (1, '{"className":"h200"}'), (None, '{"className":"h200","count":1}')],
    )
    async def test_a_template_device_with_an_annotation_that_fits_is_let_in(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog, count: int | None, template: str
    ) -> None:
        gpu_catalog.add(a_device(from_template=True, count=count))

        reply = await gpu_pair.validate(review(a_vmi("built", template=template)))

        assert reply.allowed, reply.message

    async def test_a_template_device_without_the_annotation_is_refused(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog
    ) -> None:
        gpu_catalog.add(a_device(from_template=True))

        reply = await gpu_pair.validate(review(a_vmi("built")))

        assert_refused(reply, 403, REFERENCE_FIELD, telling="was built from another VM's template")

    @pytest.mark.parametrize(
        "template", ['{"className":"l40s-24q"}', '{"className":"h200","count":2}'], ids=["class", "count"]
    )
    async def test_a_template_device_with_an_annotation_that_does_not_fit_is_refused(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog, template: str
    ) -> None:
        gpu_catalog.add(a_device(from_template=True))

        reply = await gpu_pair.validate(review(a_vmi("built", template=template)))

        assert_refused(reply, 403, REFERENCE_FIELD, telling="is 1 of class 'h200', not the ")

    async def test_a_template_device_that_fits_but_is_in_use_is_refused(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog
    ) -> None:
        gpu_catalog.add(a_device(from_template=True, bound_to=("other", THEIRS)))
        gpu_catalog.add(a_vmi("built", name="other", uid=THEIRS))

        reply = await gpu_pair.validate(review(a_vmi("built", template='{"className":"h200"}')))

        assert_refused(reply, 409, REFERENCE_FIELD, telling="in use by VirtualMachineInstance 'other'")

    async def test_a_device_of_ones_own_beside_the_annotation_is_refused(self, gpu_pair: Pair) -> None:
        reply = await gpu_pair.validate(review(a_vmi("my-gpu", template='{"className":"h200"}')))

        assert_refused(reply, 403, REFERENCE_FIELD, telling="use one of the two")

    @pytest.mark.parametrize("template", ["", "{", "[]", '{"className":"h200","node":"n1"}', f'"{"x" * 4096}"'])
    async def test_a_malformed_annotation_beside_the_label_is_refused(self, gpu_pair: Pair, template: str) -> None:
        reply = await gpu_pair.validate(review(a_vmi("my-gpu", template=template)))

        assert_refused(reply, 422, TEMPLATE_FIELD, telling=TEMPLATE)
