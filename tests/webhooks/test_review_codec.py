"""The AdmissionReview codec, both ways."""

import base64
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhooks.answer import LET_IN, Answer, Cause, Refusal, bad_request, conflict, failed, forbidden, invalid, merged
from webhooks.review import Request, Unjudgeable, UnreadableReviewError, decode, encode
from webhooks.testing import ADMIN, Reply, review

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "tenant-a"}}

SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


def one_of(*usual: Any) -> st.SearchStrategy[Any]:
    """What is usual in a place, or anything at all."""
    return st.sampled_from(usual) | VALUES


REQUESTS = st.fixed_dictionaries(
    {},
    optional={
        "uid": one_of("u-1"),
        "kind": one_of({"group": "", "version": "v1", "kind": "Pod"}),
        "operation": one_of("CREATE"),
        "userInfo": one_of({"username": "jane", "groups": ["a"]}),
        "object": one_of({}),
        "oldObject": one_of({}),
        "dryRun": st.booleans() | VALUES,
        "name": one_of("p"),
        "namespace": one_of("tenant-a"),
        "subResource": one_of("status"),
    },
)
REVIEWS = VALUES | st.fixed_dictionaries(
    {},
    optional={
        "apiVersion": one_of("admission.k8s.io/v1"),
        "kind": one_of("AdmissionReview"),
        "request": REQUESTS | VALUES,
    },
)


def has_uid(value: object) -> bool:
    request = value.get("request") if isinstance(value, dict) else None
    uid = request.get("uid") if isinstance(request, dict) else None
    return isinstance(uid, str) and uid != ""


@given(REVIEWS)
def test_any_json_is_a_request_an_unjudgeable_review_or_unreadable(value: object) -> None:
    try:
        decoded = decode(orjson.dumps(value))
    except UnreadableReviewError:
        decoded = None

    if decoded is None:
        assert not has_uid(value)
        return
    assert isinstance(value, dict)
    assert decoded.uid == value["request"]["uid"]
    if isinstance(decoded, Unjudgeable):
        assert (decoded.refusal.code, decoded.refusal.message.isprintable()) == (400, True)
    else:
        assert isinstance(decoded.object, dict | None)
        assert isinstance(decoded.old_object, dict | None)
        assert all(isinstance(group, str) for group in decoded.groups)


@given(st.binary(max_size=64))
def test_any_bytes_are_unreadable_where_they_are_no_review(body: bytes) -> None:
    with pytest.raises(UnreadableReviewError, match="the body is"):
        decode(body)


def test_every_member_that_is_judged_is_read() -> None:
    body = review(POD, operation="UPDATE", old={**POD, "spec": {}}, user=ADMIN, dry_run=True, uid="u-1")
    body["request"]["subResource"] = "status"

    decoded = decode(orjson.dumps(body))

    assert decoded == Request(
        uid="u-1",
        group="",
        version="v1",
        kind="Pod",
        subresource="status",
        operation="UPDATE",
        name="p",
        namespace="tenant-a",
        username="admin",
        groups=ADMIN.groups,
        object=POD,
        old_object={**POD, "spec": {}},
        dry_run=True,
    )


def test_what_is_optional_may_be_missing_or_null() -> None:
    request = {"uid": "u-1", "kind": {"kind": "Pod"}, "operation": "CREATE", "object": None, "userInfo": None}

    decoded = decode(orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}))

    assert isinstance(decoded, Request)
    assert (decoded.object, decoded.old_object, decoded.name, decoded.namespace) == (None, None, "", "")
    assert (decoded.username, list(decoded.groups), decoded.dry_run, decoded.group) == ("", [], False, "")


def test_letting_in_says_nothing_but_the_uid() -> None:
    answer = orjson.loads(encode("u-1", LET_IN))

    assert answer == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "u-1", "allowed": True},
    }


def test_a_patch_is_sent_as_base64_of_json() -> None:
    operations = [{"op": "add", "path": "/a~1b", "value": "ü"}]

    response = orjson.loads(encode("u-1", Answer(patch=operations)))["response"]

    assert response["patchType"] == "JSONPatch"
    assert orjson.loads(base64.b64decode(response["patch"])) == operations
    assert Reply.of(encode("u-1", Answer(patch=operations)), uid="u-1").patch == tuple(operations)


def test_a_refusal_carries_a_status_with_its_causes_and_no_patch() -> None:
    refusal = forbidden("spec.x", "is not allowed", "take it out")

    response = orjson.loads(encode("u-1", Answer(refusal, patch=[{"op": "remove", "path": "/x"}])))["response"]

    assert response == {
        "uid": "u-1",
        "allowed": False,
        "status": {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "code": 403,
            "reason": "Forbidden",
            "message": "spec.x: is not allowed; take it out",
            "details": {"causes": [{"reason": "FieldValueForbidden", "message": "is not allowed", "field": "spec.x"}]},
        },
    }


@pytest.mark.parametrize(
    ("refusal", "code", "reason"),
    [
        (forbidden("a", "b"), 403, "Forbidden"),
        (invalid("a", "b"), 422, "Invalid"),
        (conflict("a", "b"), 409, "Conflict"),
        (bad_request("a", "b"), 400, "BadRequest"),
        (failed("u-1"), 500, "InternalError"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_refusal_has_its_code_and_reason(refusal: Refusal, code: int, reason: str) -> None:
    reply = Reply.of(encode("u-1", Answer(refusal)), uid="u-1")

    assert (reply.code, reply.reason) == (code, reason)


def test_warnings_are_one_printable_line_each_of_at_most_256_characters() -> None:
    reply = Reply.of(encode("u-1", Answer(warnings=["a\r\nb\x1b[31m", "w" * 300])), uid="u-1")

    assert reply.warnings == ("a??b?[31m", "w" * 255 + "…")


def test_a_thousand_causes_are_cut_and_counted() -> None:
    causes = tuple(Cause(f"spec.gpus[{index}]", "x\n" * 5_000) for index in range(1000))

    reply = Reply.of(encode("u-1", Answer(Refusal(code=403, reason="Forbidden", causes=causes))), uid="u-1")

    assert len(reply.causes) == 16
    assert all(message.isprintable() and len(message) <= 2048 for _, message in reply.causes)
    assert reply.message.isprintable()
    assert len(reply.message) == 2048


def test_how_many_causes_are_left_out_is_told() -> None:
    refusal = merged([forbidden(f"spec.gpus[{index}]", "x", "take it out") for index in range(20)])

    assert refusal is not None
    assert refusal.message.endswith("; spec.gpus[15]: x; and 4 more like these; take it out")


def test_advice_that_names_what_somebody_wrote_is_readable_too() -> None:
    refusal = forbidden("spec.x", "is bad\n", "choose one of: a\r\nb")

    assert refusal.message == "spec.x: is bad?; choose one of: a??b"


def test_a_hostile_field_path_is_cut_and_readable() -> None:
    reply = Reply.of(encode("u-1", Answer(forbidden("spec[a\n" + "b" * 10_000, "is bad"))), uid="u-1")

    assert len(reply.fields[0]) == 256
    assert reply.fields[0].startswith("spec[a?b")
    assert reply.message == f"{reply.fields[0]}: is bad"


@given(st.text(min_size=1, max_size=30), VALUES, st.lists(st.text(max_size=300), max_size=3))
def test_any_uid_patch_and_warnings_come_back_as_they_were_sent(uid: str, value: object, warnings: list[str]) -> None:
    operation = {"op": "add", "path": "/spec", "value": value}

    reply = Reply.of(encode(uid, Answer(patch=[operation], warnings=warnings)), uid=uid)

    assert reply.patch == (orjson.loads(orjson.dumps(operation)),)
    assert len(reply.warnings) == len(warnings)
    assert all(warning.isprintable() for warning in reply.warnings)
