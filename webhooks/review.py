"""The AdmissionReview codec: bytes in, bytes out (k8s.io/api/admission/v1)."""

from binascii import b2a_base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from gpu import fields
from gpu.errors import FieldError
from webhooks.answer import Answer, Refusal, bad_request

API_VERSION: Final = "admission.k8s.io/v1"

_joined: Final = "".join
_OBJECT: Final = {dict, type(None)}

_LONGEST_WARNING: Final = 256
"""Characters after which the API server may cut a warning (admission.k8s.io/v1, AdmissionResponse)."""


class UnreadableReviewError(Exception):
    """A body without a uid to answer to; its text says why."""


@dataclass(slots=True)
class Request:
    """The request of an AdmissionReview. ``object`` and ``old_object`` are plain dicts, None where there is none."""

    uid: str
    group: str
    version: str
    kind: str
    subresource: str
    operation: str
    name: str
    namespace: str
    username: str
    groups: Sequence[str]
    object: dict[str, Any] | None
    old_object: dict[str, Any] | None
    dry_run: bool

    def manifest(self) -> dict[str, Any]:
        """The object of a CREATE or an UPDATE. Raises FieldError where there is none."""
        return fields.required("object", "request", self.object)


@dataclass(frozen=True, slots=True)
class Unjudgeable:
    """A review that can be answered to but not judged."""

    uid: str
    refusal: Refusal


def decode(body: bytes) -> Request | Unjudgeable:
    """Read an AdmissionReview.

    Raises UnreadableReviewError where there is no uid to answer to. A review of another version, or whose request has
    a wrong type, comes back as unjudgeable with the refusal to answer.
    """
    try:
        review = orjson.loads(body)
    except ValueError as error:
        raise UnreadableReviewError(f"the body is not JSON: {error}") from None
    request = review.get("request") if isinstance(review, dict) else None
    uid = request.get("uid") if isinstance(request, dict) else None
    if not isinstance(request, dict) or not isinstance(uid, str) or not uid:
        raise UnreadableReviewError("the body is no AdmissionReview with a request.uid to answer to")
    version = review.get("apiVersion")
    if version != API_VERSION or review.get("kind") != "AdmissionReview":
        found = f"{_shown(review.get('kind'))} of {_shown(version)}"
        message = f"must be AdmissionReview of {API_VERSION}, not {found}; set admissionReviewVersions to [v1]"
        return Unjudgeable(uid, bad_request("apiVersion", message))
    try:
        return _plain(request, uid) or _request(request, uid)
    except FieldError as error:
        return Unjudgeable(uid, bad_request(error.path, error.problem))


def _shown(value: object) -> str:
    return fields.clip(value) if isinstance(value, str) else fields.described(value)


def _plain(request: dict[str, Any], uid: str) -> Request | None:
    """A request in which all that is read has its right type, checked at once; None for one to be read step by step."""
    get = request.get
    kind, user, obj, old, dry_run = get("kind"), get("userInfo"), get("object"), get("oldObject"), get("dryRun")
    if type(kind) is not dict or type(user) is not dict or type(dry_run) is not bool:
        return None
    if type(obj) not in _OBJECT or type(old) not in _OBJECT or type(groups := user.get("groups", [])) is not list:
        return None
    found = Request(
        uid,
        kind.get("group", ""),
        kind.get("version", ""),
        kind.get("kind", ""),
        get("subResource", ""),
        get("operation", ""),
        get("name", ""),
        get("namespace", ""),
        user.get("username", ""),
        tuple(groups),
        obj,
        old,
        dry_run,
    )
    try:
        # Texts alone can be joined, and it is the cheapest way to find out.
        _joined((found.group, found.version, found.subresource, found.name, found.namespace, found.username, *groups))
        return found if _joined((found.kind,)) and _joined((found.operation,)) else None
    except TypeError:
        return None


def _request(request: Mapping[str, Any], uid: str) -> Request:
    kind = fields.required_object(request, "kind", "request")
    user = fields.optional_object(request, "userInfo", "request") or {}
    dry_run = request.get("dryRun")
    if dry_run is not None and not isinstance(dry_run, bool):
        raise FieldError("request.dryRun", f"must be true or false, not {fields.described(dry_run)}")
    return Request(
        uid=uid,
        group=fields.optional_text(kind, "group", "request.kind") or "",
        version=fields.optional_text(kind, "version", "request.kind") or "",
        kind=fields.required_text(kind, "kind", "request.kind"),
        subresource=fields.optional_text(request, "subResource", "request") or "",
        operation=fields.required_text(request, "operation", "request"),
        name=fields.optional_text(request, "name", "request") or "",
        namespace=fields.optional_text(request, "namespace", "request") or "",
        username=fields.optional_text(user, "username", "request.userInfo") or "",
        groups=fields.texts(user, "groups", "request.userInfo"),
        object=fields.optional_object(request, "object", "request"),
        old_object=fields.optional_object(request, "oldObject", "request"),
        dry_run=bool(dry_run),
    )


def encode(uid: str, answer: Answer) -> bytes:
    """The AdmissionReview that answers the request ``uid``."""
    response: dict[str, Any] = {"uid": uid, "allowed": answer.refusal is None}
    if answer.refusal is not None:
        response["status"] = status(answer.refusal)
    elif answer.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = b2a_base64(orjson.dumps(answer.patch), newline=False).decode("ascii")
    if answer.warnings:
        response["warnings"] = [_one_line(warning) for warning in answer.warnings]
    return orjson.dumps({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})


def _one_line(text: str) -> str:
    """A warning ends up in an HTTP header: no control characters, nothing over what the API server lets through."""
    return fields.clip(fields.printable(text), _LONGEST_WARNING)


def status(refusal: Refusal) -> dict[str, Any]:
    """The ``Status`` (meta/v1) of a refusal, with a cause for each field."""
    causes = [{"reason": c.reason, "message": c.message, "field": c.field} for c in refusal.shown_causes if c.field]
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": refusal.message,
        "reason": refusal.reason,
        "code": refusal.code,
    }
    return body | ({"details": {"causes": causes}} if causes else {})
