"""VirtualMachineInstance, UPDATE: it never comes to refer to another device; and what nobody asks about."""

from copy import deepcopy
from typing import Any

import pytest

from webhooks.testing import ADMIN, TENANT, VIRT_CONTROLLER, Pair, Reply, User, review

REFERENCE = "gpu.cozystack.io/device-reference"
TEMPLATE = "gpu.cozystack.io/device-template"
REFERENCE_FIELD = f"metadata.labels[{REFERENCE}]"
TEMPLATE_FIELD = f"metadata.annotations[{TEMPLATE}]"


def a_vmi(reference: str | None = None, template: str | None = None) -> dict[str, Any]:
    """A VMI of tenant-a that exists."""
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
        "spec": {"domain": {"devices": {"gpus": [{"name": "gpu-0", "deviceName": "acme.example/raw"}]}}},
    }


def assert_refused(reply: Reply, code: int, *fields: str, telling: str) -> None:
    assert not reply.allowed
    assert (reply.code, reply.fields) == (code, fields), reply.message
    assert telling in reply.message


def changed(vmi: dict[str, Any], field: str, key: str, value: str | None) -> dict[str, Any]:
    """The VMI with a label or an annotation set, or taken out."""
    new = deepcopy(vmi)
    new["metadata"][field].pop(key, None)
    if value is not None:
        new["metadata"][field][key] = value
    return new


MARKED = a_vmi("my-gpu", template='{"className":"h200"}')
UNMARKED = a_vmi()
CHANGES = {
    "label added": (UNMARKED, changed(UNMARKED, "labels", REFERENCE, "my-gpu"), REFERENCE_FIELD),
    "empty label added": (UNMARKED, changed(UNMARKED, "labels", REFERENCE, ""), REFERENCE_FIELD),
    "label changed": (MARKED, changed(MARKED, "labels", REFERENCE, "lab-gpu"), REFERENCE_FIELD),
    "label dropped": (MARKED, changed(MARKED, "labels", REFERENCE, None), REFERENCE_FIELD),
    "annotation added": (UNMARKED, changed(UNMARKED, "annotations", TEMPLATE, "{}"), TEMPLATE_FIELD),
    "annotation changed": (MARKED, changed(MARKED, "annotations", TEMPLATE, '{"className": "h200"}'), TEMPLATE_FIELD),
    "annotation dropped": (MARKED, changed(MARKED, "annotations", TEMPLATE, None), TEMPLATE_FIELD),
}


class TestUpdate:
    @pytest.mark.parametrize("deleting", [False, True], ids=["", "while being deleted"])
    @pytest.mark.parametrize("user", [TENANT, ADMIN, VIRT_CONTROLLER], ids=["tenant", "admin", "virt-controller"])
    @pytest.mark.parametrize("change", CHANGES)
    async def test_label_and_annotation_are_kept_by_everybody(
        self, gpu_pair: Pair, change: str, user: User, *, deleting: bool
    ) -> None:
        old, new, field = deepcopy(CHANGES[change])
        if deleting:
            for obj in (old, new):
                obj["metadata"]["deletionTimestamp"] = "2026-11-01T10:00:00Z"

        reply = await gpu_pair.validate(review(new, operation="UPDATE", old=old, user=user))

        assert_refused(reply, 403, field, telling="can't be added, changed or dropped on a VMI")

    async def test_both_at_once_are_told_at_once(self, gpu_pair: Pair) -> None:
        reply = await gpu_pair.validate(review(UNMARKED, operation="UPDATE", old=MARKED))

        assert_refused(reply, 403, REFERENCE_FIELD, TEMPLATE_FIELD, telling="restart the VM")

    @pytest.mark.parametrize("without", [None, {}], ids=["null", "empty"])
    async def test_dropping_all_labels_drops_the_label(self, gpu_pair: Pair, without: dict[str, str] | None) -> None:
        new = deepcopy(MARKED)
        new["metadata"]["labels"] = without

        reply = await gpu_pair.validate(review(new, operation="UPDATE", old=MARKED))

        assert_refused(reply, 403, REFERENCE_FIELD, telling="can't be added, changed or dropped")

    @pytest.mark.parametrize("obj", [MARKED, UNMARKED], ids=["with a device", "without"])
    @pytest.mark.parametrize(
        "change",
        [
            {"metadata": {"labels": {"kubevirt.io/nodeName": "n1"}}},
            {"metadata": {"annotations": {"kubevirt.io/latest-observed-api-version": "v1"}}},
            {"metadata": {"finalizers": ["foregroundDeleteVirtualMachine"]}},
            {"metadata": {"deletionTimestamp": "2026-11-01T10:00:00Z"}},
            {"spec": {"domain": {"devices": {"gpus": "whatever"}}}},
            {"status": {"phase": "Running"}},
        ],
        ids=lambda change: next(iter(change.get("metadata", change))),
    )
    async def test_every_other_change_is_let_in(
        self, gpu_pair: Pair, obj: dict[str, Any], change: dict[str, Any]
    ) -> None:
        new = {**deepcopy(obj), **{key: value for key, value in change.items() if key != "metadata"}}
        for key, value in change.get("metadata", {}).items():
            new["metadata"][key] = {**new["metadata"][key], **value} if isinstance(value, dict) else value

        reply = await gpu_pair.validate(review(new, operation="UPDATE", old=obj, user=VIRT_CONTROLLER))

        assert reply.allowed, reply.message

    @pytest.mark.parametrize(("before", "after"), [(None, {}), ({}, None), (None, None), (None, {"a": "b"})])
    async def test_null_labels_and_annotations_are_none(
        self, gpu_pair: Pair, before: dict[str, str] | None, after: dict[str, str] | None
    ) -> None:
        old, new = deepcopy(UNMARKED), deepcopy(UNMARKED)
        old["metadata"] |= {"labels": before, "annotations": before}
        new["metadata"] |= {"labels": after, "annotations": after}

        reply = await gpu_pair.validate(review(new, operation="UPDATE", old=old))

        assert reply.allowed, reply.message

    async def test_an_update_of_a_vmi_whose_device_is_gone_is_let_in(self, gpu_pair: Pair) -> None:
        vmi = a_vmi("gone")

        reply = await gpu_pair.validate(review(vmi, operation="UPDATE", old=vmi))

        assert reply.allowed

    async def test_an_update_without_the_old_object_can_not_be_judged(self, gpu_pair: Pair) -> None:
        reply = await gpu_pair.validate(review(MARKED, operation="UPDATE"))

        assert_refused(reply, 422, "request.oldObject", telling="request.oldObject: is required")


class TestNotAsked:
    @pytest.mark.parametrize("user", [TENANT, VIRT_CONTROLLER], ids=["tenant", "virt-controller"])
    async def test_a_delete_is_let_in(self, gpu_pair: Pair, user: User) -> None:
        reply = await gpu_pair.validate(review(None, operation="DELETE", old=MARKED, user=user))

        assert reply.allowed

    @pytest.mark.parametrize(("operation", "subresource"), [("UPDATE", "status"), ("CREATE", "pause")])
    async def test_a_subresource_is_let_in(self, gpu_pair: Pair, operation: str, subresource: str) -> None:
        change = review(UNMARKED, operation=operation, old=MARKED, subresource=subresource)

        reply = await gpu_pair.validate(change)

        assert reply.allowed

    @pytest.mark.parametrize(
        ("api_version", "kind"),
        [
            ("v1", "ConfigMap"),
            ("kubevirt.io/v1", "VirtualMachineInstanceMigration"),
            ("example.com/v1", "VirtualMachineInstance"),
            ("gpu.cozystack.io/v1alpha1", "GPUClass"),
        ],
    )
    @pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
    async def test_other_kinds_are_let_in(self, gpu_pair: Pair, api_version: str, kind: str, operation: str) -> None:
        obj = {**UNMARKED, "apiVersion": api_version, "kind": kind}
        old = {**MARKED, "apiVersion": api_version, "kind": kind} if operation == "UPDATE" else None

        reply = await gpu_pair.validate(review(obj, operation=operation, old=old))

        assert reply.allowed
