"""AdmissionReviews from manifests, as kube-apiserver sends them."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final, NamedTuple
from uuid import uuid4

from webhooks.review import API_VERSION


class User(NamedTuple):
    """Who asks."""

    username: str
    groups: tuple[str, ...] = ()


TENANT: Final = User("jane", ("tenant-a", "system:authenticated"))
ADMIN: Final = User("admin", ("system:masters", "system:authenticated"))
VIRT_CONTROLLER: Final = User(
    "system:serviceaccount:kubevirt:kubevirt-controller",
    ("system:serviceaccounts", "system:serviceaccounts:kubevirt", "system:authenticated"),
)


def review(
    manifest: Mapping[str, Any] | None,
    *,
    operation: str = "CREATE",
    old: Mapping[str, Any] | None = None,
    user: User = TENANT,
    dry_run: bool = False,
    subresource: str = "",
    uid: str | None = None,
) -> dict[str, Any]:
    """The AdmissionReview of an operation on ``manifest``; for a DELETE give the object as ``old``.

    The object's namespace is ``default`` where the manifest has none. Each review has a uid of its own, as each call of
    a webhook has.
    """
    subject = manifest if manifest is not None else old or {}
    metadata = subject.get("metadata") or {}
    group, _, version = str(subject["apiVersion"]).rpartition("/")
    kind = {"group": group, "version": version, "kind": subject["kind"]}
    resource = {"group": group, "version": version, "resource": f"{subject['kind'].lower()}s"}
    request = {
        "uid": uid or str(uuid4()),
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "namespace": metadata.get("namespace", "default"),
        "operation": operation,
        "userInfo": {"username": user.username, "groups": list(user.groups)},
        "object": _in_namespace(manifest),
        "oldObject": _in_namespace(old),
        "dryRun": dry_run,
        "options": {"apiVersion": "meta.k8s.io/v1", "kind": f"{operation.capitalize()}Options"},
    }
    if name := metadata.get("name"):
        request["name"] = name
    if subresource:
        request |= {"subResource": subresource, "requestSubResource": subresource}
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "request": request}


def _in_namespace(manifest: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if manifest is None:
        return None
    obj = deepcopy(dict(manifest))
    obj["metadata"] = {"namespace": "default", **(obj.get("metadata") or {})}
    return obj


def persisted(obj: Mapping[str, Any]) -> dict[str, Any]:
    """The object as the API server has it between the mutating and the validating phase: with a name and a uid."""
    stored = deepcopy(dict(obj))
    metadata = stored["metadata"]
    if not metadata.get("name"):
        metadata["name"] = f"{metadata['generateName']}{uuid4().hex[:5]}"
    stored["metadata"] = {"creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1, "uid": str(uuid4()), **metadata}
    return stored
