"""Answers: HTTP 200 with an AdmissionReview, and a Status that says what was wrong, where, and whether to retry."""

from collections.abc import Awaitable, Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from aiohttp.web import Application

from gpu.errors import CatalogError
from gpu.gpudevice import GPUDevice
from webhooks.answer import Cause, Refusal, conflict, forbidden, invalid, merged
from webhooks.app import make_app
from webhooks.testing import InMemoryCatalog, Pair, review

EXAMPLES = Path(__file__).parents[2] / "examples"
REFERENCE = "gpu.cozystack.io/device-reference"
REFERENCE_FIELD = f"metadata.labels[{REFERENCE}]"
H200 = "nvidia.com/GH100_H200_SXM_141GB"


def a_vmi(reference: str | None = None, *, gpus: int = 0, version: str = "v1") -> dict[str, Any]:
    return {
        "apiVersion": f"kubevirt.io/{version}",
        "kind": "VirtualMachineInstance",
        "metadata": {
            "name": "notebook",
            "namespace": "tenant-a",
            "uid": "9b9f0c5e-0000-4000-8000-000000000001",
            "labels": {REFERENCE: reference} if reference else {},
        },
        "spec": {
            "domain": {"devices": {"gpus": [{"name": f"gpu-{index}", "deviceName": H200} for index in range(gpus)]}}
        },
    }


def an_order(count: object) -> dict[str, Any]:
    return {
        "apiVersion": "gpu.cozystack.io/v1alpha1",
        "kind": "GPUDevice",
        "metadata": {"name": "new", "namespace": "tenant-a"},
        "spec": {"className": "h200", "count": count},
    }


async def response_to(pair: Pair, body: dict[str, Any]) -> dict[str, Any]:
    """The ``response`` of the answer, as it goes over the wire."""
    async with pair.client.post("/validate", json=body) as answer:
        assert answer.status == 200
        assert answer.content_type == "application/json"
        response: dict[str, Any] = (await answer.json())["response"]
    return response


async def test_what_is_let_in_has_no_status(gpu_pair: Pair) -> None:
    response = await response_to(gpu_pair, review(a_vmi("my-gpu", gpus=1), uid="u-1"))

    assert response == {"uid": "u-1", "allowed": True}


@pytest.mark.parametrize(
    ("obj", "code", "reason", "cause"),
    [
        (a_vmi(gpus=1), 403, "Forbidden", ("FieldValueForbidden", "spec.domain.devices.gpus[0]")),
        (a_vmi("nope"), 422, "Invalid", ("FieldValueNotFound", REFERENCE_FIELD)),
        (an_order(17), 422, "Invalid", ("FieldValueInvalid", "spec.count")),
        (an_order("2"), 422, "Invalid", ("FieldValueTypeInvalid", "spec.count")),
        (an_order(9), 422, "Invalid", ("FieldValueInvalid", "spec.count")),
        (an_order(1) | {"spec": {}}, 422, "Invalid", ("FieldValueRequired", "spec.className")),
        (a_vmi("desk-gpu"), 409, "Conflict", ("FieldValueForbidden", REFERENCE_FIELD)),
        (a_vmi(version="v1alpha9"), 400, "BadRequest", ("FieldValueInvalid", "request.kind.version")),
    ],
    ids=["not allowed", "missing", "malformed", "wrong type", "above maximum", "incomplete", "in use", "version"],
)
async def test_a_refusal_carries_a_status_with_the_field_to_blame(
    gpu_pair: Pair, obj: dict[str, Any], code: int, reason: str, cause: tuple[str, str]
) -> None:
    response = await response_to(gpu_pair, review(obj, uid="u-2"))

    status = response["status"]
    (shown,) = status["details"]["causes"]
    assert (response["uid"], response["allowed"]) == ("u-2", False)
    assert (status["apiVersion"], status["kind"], status["status"]) == ("v1", "Status", "Failure")
    assert (status["code"], status["reason"]) == (code, reason)
    assert (shown["reason"], shown["field"]) == cause
    assert status["message"].startswith(f"{shown['field']}: {shown['message']}")


@pytest.mark.parametrize("version", ["v1", "v1alpha3"])
async def test_a_vmi_of_a_version_that_kubevirt_serves_is_judged(gpu_pair: Pair, version: str) -> None:
    allowed = await gpu_pair.validate(review(a_vmi("my-gpu", gpus=1, version=version)))
    refused = await gpu_pair.validate(review(a_vmi(gpus=1, version=version)))

    assert allowed.allowed
    assert refused.code == 403


@pytest.mark.parametrize("version", ["v1alpha9", "v2", "v1beta1"])
@pytest.mark.parametrize("kind", ["VirtualMachineInstance", "GPUDevice", "Pod"])
async def test_what_is_created_in_an_unknown_version_is_refused(gpu_pair: Pair, kind: str, version: str) -> None:
    group = {"VirtualMachineInstance": "kubevirt.io/", "GPUDevice": "gpu.cozystack.io/", "Pod": ""}[kind]
    obj = a_vmi() | {"apiVersion": f"{group}{version}", "kind": kind}

    reply = await gpu_pair.validate(review(obj))

    assert (reply.code, reply.fields) == (400, ("request.kind.version",))
    assert f"'{version}' of {kind} is not known here" in reply.message


async def test_an_update_and_a_delete_in_an_unknown_version_are_let_in(gpu_pair: Pair) -> None:
    vmi = a_vmi("my-gpu", version="v2")

    update = await gpu_pair.validate(review(vmi, operation="UPDATE", old=vmi))
    delete = await gpu_pair.validate(review(None, operation="DELETE", old=vmi))

    assert update.allowed
    assert delete.allowed


@pytest.mark.parametrize("version", ["admission.k8s.io/v1beta1", "admission.k8s.io/v2", "v1", "", None])
async def test_another_review_version_is_answered_to_with_400(gpu_pair: Pair, version: str | None) -> None:
    body = review(a_vmi()) | {"apiVersion": version}

    reply = await gpu_pair.validate(body)

    assert (reply.allowed, reply.code, reply.fields) == (False, 400, ("apiVersion",))
    assert "must be AdmissionReview of admission.k8s.io/v1" in reply.message


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kind": None}, "request.kind"),
        ({"kind": {"group": "kubevirt.io", "version": "v1"}}, "request.kind.kind"),
        ({"operation": None}, "request.operation"),
        ({"dryRun": "yes"}, "request.dryRun"),
        ({"object": []}, "request.object"),
        ({"userInfo": {"groups": "all"}}, "request.userInfo.groups"),
    ],
    ids=["no kind", "nameless kind", "no operation", "dryRun", "object", "groups"],
)
async def test_a_malformed_request_with_a_uid_is_answered_to_with_400(
    gpu_pair: Pair, change: dict[str, Any], field: str
) -> None:
    body = review(a_vmi())
    body["request"] |= change

    reply = await gpu_pair.validate(body)

    assert (reply.allowed, reply.code, reply.fields) == (False, 400, (field,))


async def test_a_creation_without_an_object_is_malformed(gpu_pair: Pair) -> None:
    body = review(a_vmi())
    body["request"]["object"] = None

    reply = await gpu_pair.validate(body)

    assert (reply.code, reply.fields) == (422, ("request.object",))


class Unreachable(InMemoryCatalog):
    """A catalog whose memory is there, but whose fresh reads fail."""

    async def fresh_device(self, namespace: str, name: str) -> GPUDevice | None:
        raise CatalogError(f"GET gpudevices {namespace}/{name}: connection refused")


class TestFreshReadFails:
    @pytest.fixture
    async def pair(self, aiohttp_client: Callable[[Application], Awaitable[TestClient[Any, Any]]]) -> Pair:
        return Pair(await aiohttp_client(make_app(catalog=Unreachable.from_directory(EXAMPLES / "catalog"))))

    async def test_what_memory_lets_in_is_let_in(self, pair: Pair) -> None:
        reply = await pair.validate(review(a_vmi("my-gpu", gpus=1)))

        assert reply.allowed

    @pytest.mark.parametrize("vmi", [a_vmi("nope"), a_vmi("desk-gpu"), a_vmi("my-gpu")], ids=["missing", "used", "few"])
    async def test_what_memory_speaks_against_is_worth_a_retry(self, pair: Pair, vmi: dict[str, Any]) -> None:
        reply = await pair.validate(review(vmi))

        assert (reply.allowed, reply.code, reply.reason, reply.fields) == (False, 503, "ServiceUnavailable", ())
        assert "this can't be decided now: GET gpudevices tenant-a/" in reply.message
        assert reply.message.endswith("try again")

    async def test_what_rests_on_no_device_is_refused_all_the_same(self, pair: Pair) -> None:
        reply = await pair.validate(review(a_vmi(gpus=1)))

        assert reply.code == 403


class TestMessage:
    def test_it_says_where_what_and_what_to_do(self) -> None:
        refusal = forbidden("spec.a", "is wrong", "do it right")

        assert refusal.message == "spec.a: is wrong; do it right"

    def test_a_cause_without_a_field_stands_alone(self) -> None:
        assert forbidden("", "is wrong").message == "is wrong"

    def test_several_are_told_in_one_with_the_first_ones_code(self) -> None:
        both = merged([None, conflict("a", "is used", "wait"), invalid("b", "is wrong", "wait"), None])

        assert both is not None
        assert (both.code, both.reason) == (409, "Conflict")
        assert both.message == "a: is used; b: is wrong; wait"

    def test_nothing_wrong_is_no_refusal(self) -> None:
        assert merged([None, None]) is None

    @pytest.mark.parametrize(("many", "hidden"), [(16, ""), (17, "and 1 more like these"), (1000, "and 984 more")])
    def test_at_most_sixteen_causes_are_shown(self, many: int, hidden: str) -> None:
        causes = tuple(Cause(f"spec.f[{index}]", "is wrong") for index in range(many))

        refusal = Refusal(code=403, reason="Forbidden", causes=causes, advice="do it right")

        assert refusal.shown_causes == causes[:16]
        assert hidden in refusal.message
        assert ("more like these" in refusal.message) == bool(hidden)

    def test_however_long_it_is_cut_where_what_to_do_is_kept(self) -> None:
        causes = tuple(Cause(f"spec.{'f' * 5000}", "x" * 5000) for _ in range(20))

        refusal = Refusal(code=403, reason="Forbidden", causes=causes, advice="do it right")

        assert len(refusal.message) <= 2048
        assert refusal.message.endswith("…; and 4 more like these; do it right")
        assert all(len(cause.field) <= 256 and len(cause.message) <= 2048 for cause in refusal.shown_causes)

    def test_an_advice_of_any_length_leaves_room_for_what_is_wrong(self) -> None:
        refusal = forbidden("spec.a", "is wrong", "y" * 5000)

        assert refusal.message.startswith("spec.a: is wrong; yyy")
        assert len(refusal.message) <= 2048


async def test_the_answer_to_one_review_is_the_same_each_time(gpu_pair: Pair) -> None:
    body = review(a_vmi("lab-gpu", gpus=5))

    first = await response_to(gpu_pair, body)
    again = await response_to(gpu_pair, deepcopy(body))

    assert first == again
    assert not first["allowed"]
