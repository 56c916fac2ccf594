"""Those who act on a cluster of a KubeVirt platform, played by impersonation, and the rights that they have there."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controlplane.client import Client, Object
from controlplane.plane import ControlPlane

KUBEVIRT: Final = "kubevirt"
"""KubeVirt's namespace."""
VIRT_CONTROLLER: Final = f"system:serviceaccount:{KUBEVIRT}:kubevirt-controller"
VIRT_HANDLER: Final = f"system:serviceaccount:{KUBEVIRT}:kubevirt-handler"
HOST_LABEL: Final = "namespace.cozystack.io/host"
"""Label that makes a namespace a tenant's."""

_RBAC: Final = "rbac.authorization.k8s.io"
_RBAC_PATH: Final = f"/apis/{_RBAC}/v1"
_NOW: Final = "2026-01-01T00:00:00Z"
_ALL: Final = ["get", "list", "watch", "create", "update", "patch", "delete"]
_KUBEVIRT_GROUPS: Final = ["kubevirt.io", "pool.kubevirt.io", "instancetype.kubevirt.io"]


MakeNamespace = Callable[..., Awaitable[str]]
"""Makes a namespace and gives its name (the fixture ``make_namespace``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A person with the role ``admin`` in a namespace of its own, and a client of that person."""

    namespace: str
    user: str
    kube: Client

    async def may_act(self) -> bool:
        """Whether the API server knows of the role by now, and of KubeVirt's part in it."""
        asked = {"namespace": self.namespace, "verb": "create", "group": "kubevirt.io", "resource": "virtualmachines"}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {}}
        answer = await self.kube.create({**review, "spec": {"resourceAttributes": asked}})
        return bool(answer["status"]["allowed"])


def install_roles(plane: ControlPlane) -> None:
    """KubeVirt's namespace, the rights of virt-controller and virt-handler, and its part of the role ``admin``."""
    plane.create("/api/v1/namespaces", _named("v1", "Namespace", KUBEVIRT))
    roles: dict[str, list[dict[str, Any]]] = {
        "kubevirt-controller": [
            _rule([""], ["pods", "pods/finalizers", "pods/eviction", "events", "configmaps", "services"]),
            _rule([""], ["pods/status", "persistentvolumeclaims"]),
            _rule([""], ["nodes", "namespaces", "limitranges", "resourcequotas"], ["get", "list", "watch", "patch"]),
            _rule(["policy"], ["poddisruptionbudgets"]),
            _rule(["apps"], ["controllerrevisions"]),
            _rule(_KUBEVIRT_GROUPS, ["*"]),
        ],
        "kubevirt-handler": [
            _rule(["kubevirt.io"], ["virtualmachineinstances"], ["get", "list", "watch", "update", "patch"]),
            _rule([""], ["nodes"], ["get", "list", "watch", "patch"]),
            _rule([""], ["events"], ["create", "patch"]),
        ],
    }
    for name, rules in roles.items():
        plane.create(f"{_RBAC_PATH}/clusterroles", {**_named(f"{_RBAC}/v1", "ClusterRole", name), "rules": rules})
        subject = {"kind": "ServiceAccount", "name": name, "namespace": KUBEVIRT}
        binding = {**_named(f"{_RBAC}/v1", "ClusterRoleBinding", name), **_binds(name, subject)}
        plane.create(f"{_RBAC_PATH}/clusterrolebindings", binding)
    admin = _named(f"{_RBAC}/v1", "ClusterRole", "kubevirt.io:admin")
    admin["metadata"]["labels"] = {f"{_RBAC}/aggregate-to-admin": "true"}
    plane.create(f"{_RBAC_PATH}/clusterroles", {**admin, "rules": [_rule(_KUBEVIRT_GROUPS, ["*"])]})


def admin_binding(namespace: str, user: str) -> dict[str, Any]:
    """What gives a person the role ``admin`` in a namespace."""
    binding = _named(f"{_RBAC}/v1", "RoleBinding", f"admin-{user}")
    binding["metadata"]["namespace"] = namespace
    return {**binding, **_binds("admin", {"kind": "User", "name": user, "apiGroup": _RBAC})}


async def make_node(
    kube: Client, name: str, *, allocatable: Mapping[str, str], labels: Mapping[str, str] | None = None
) -> Object:
    """A ready node that offers so much of each resource; nothing runs on it."""
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", **allocatable}
    node = _named("v1", "Node", name)
    node["metadata"]["labels"] = dict(labels or {})
    await kube.create(node)
    await kube.patch(node, {"spec": {"taints": None}})
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    conditions = [{**ready, "lastHeartbeatTime": _NOW, "lastTransitionTime": _NOW}]
    status = {"capacity": amounts, "allocatable": amounts, "conditions": conditions}
    return await kube.patch(node, {"status": status}, subresource="status")


async def bind_pod(kube: Client, pod: Object, node: str) -> None:
    """Put a pod on a node, as the scheduler does."""
    metadata = {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]}
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    await kube.post(pod, "binding", binding)


def owner_reference(obj: Object) -> dict[str, Any]:
    """What makes a stored object the controller of another."""
    metadata = obj["metadata"]
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _named(api_version: str, kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}


def _rule(groups: Sequence[str], resources: Sequence[str], verbs: Sequence[str] = _ALL) -> dict[str, Any]:
    return {"apiGroups": list(groups), "resources": list(resources), "verbs": list(verbs)}


def _binds(role: str, subject: Mapping[str, str]) -> dict[str, Any]:
    return {"roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role}, "subjects": [dict(subject)]}
