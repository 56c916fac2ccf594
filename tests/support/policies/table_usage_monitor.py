"""The reserved label of the usage monitor, on every kind of object."""

from collections.abc import Mapping
from typing import Any, Final

from policies.callers import CONTROLLER, CONTROLLER_OF_KUBEVIRT, EVERYBODY, SCHEDULER, TENANT
from policies.cases import ELSEWHERE, Call, Case, create, delete, everyone, post, update
from policies.stored import MARK, device, gpu_class, named, network, pod, vmi

RESERVED: Final = (
    f"metadata.labels[{MARK}]: is reserved for the platform's usage records and can't be set or changed; "
    "leave the label out, of templates too"
)
_LABELS: Final = {"labels": {MARK: "true"}}
_AUDIT: Final = {"placed": f"{MARK}=true"}
_NOW: Final = "2026-01-01T00:00:00.000000Z"
_TARGET: Final[Mapping[str, Any]] = {"target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"}}
_DEBUG: Final = {"name": "debug", "image": "example.org/debug"}


def _objects(labels: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """An object of many kinds."""
    return {
        "a pod": pod(**labels),
        "a VMI": vmi(**labels),
        "a Secret": named("v1", "Secret", "new", **labels),
        "a Lease": {**named("coordination.k8s.io/v1", "Lease", "new", **labels), "spec": {"holderIdentity": "a"}},
        "an Event": {
            **named("v1", "Event", "new", **labels),
            "involvedObject": {"namespace": "tenant-a", "kind": "Pod", "name": "a"},
            "reason": "Tested",
        },
        "a RoleBinding": {
            **named("rbac.authorization.k8s.io/v1", "RoleBinding", "new", **labels),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        },
        "a custom object": device(**labels),
        "an attachment definition": network(**labels),
        "a usage record": named("cozystack.io/v1alpha1", "Workload", "new", **labels),
    }


def _subresources(metadata: Mapping[str, Any]) -> dict[str, Call]:
    """A write by each of several subresources; ``metadata`` is added to that of its body."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "plain-pod", **metadata}}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "waiting-launcher", **metadata}, **_TARGET}
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": metadata, "spec": {}}
    return {
        "the status of a pod": update("plain-pod", {"metadata": metadata, "status": {"message": "a"}}, "status"),
        "an eviction": post("plain-pod", "eviction", eviction),
        "a binding": post("waiting-launcher", "binding", binding),
        "a token": post("account", "token", token),
        "a scale": update("replicas", {"metadata": metadata, "spec": {"replicas": 2}}, "scale"),
    }


def _usage_monitor() -> list[Case]:
    marked = update("secret", {"metadata": _LABELS})
    cases = everyone("a Secret gets it", [*EVERYBODY, SCHEDULER], marked, RESERVED, audit=_AUDIT)
    for what, obj in _objects(_LABELS).items():
        cases += everyone(f"{what} with it", [TENANT, CONTROLLER], create(obj), RESERVED, audit=_AUDIT)
    for what, obj in _objects({"labels": {"a": "b", f"{MARK}s": "true"}, "annotations": {MARK: "true"}}).items():
        cases += everyone(f"{what} without it", [TENANT], create(obj))
    for what, obj in _objects({}).items():
        cases += everyone(f"{what} without labels", [TENANT], create(obj))
    for what, call in _subresources({}).items():
        cases += everyone(what, [TENANT], call)
    for what, call in _subresources(_LABELS).items():
        if what == "a scale":  # has no labels: the API server leaves them out before it asks
            cases += everyone(f"{what} with it", [TENANT], call)
        else:
            cases += everyone(f"{what} with it", [TENANT], call, RESERVED, audit=_AUDIT)
    empty = create(named("v1", "Secret", "new", labels={MARK: ""}))
    cases += everyone("an empty one", [TENANT], empty, RESERVED, audit={"placed": f"{MARK}="})
    launcher = create(pod(labels={MARK: "true", "kubevirt.io": "virt-launcher"}))
    cases += everyone(
        "a launcher that copies its VMI's labels", [CONTROLLER_OF_KUBEVIRT], launcher, RESERVED, audit=_AUDIT
    )
    changed = {"placed": f"{MARK}=false"}
    for stored in ("marked-secret", "marked-pod"):
        other = update(stored, {"metadata": {"labels": {MARK: "false"}}})
        cases += everyone(f"{stored} with another value", [TENANT, CONTROLLER], other, RESERVED, audit=changed)
        for what, change in {
            "another label": {"labels": {"a": "b"}},
            "one finalizer less": {"finalizers": None},
            "the label dropped": {"labels": {MARK: None}},
            "all labels dropped": {"labels": None},
        }.items():
            cases += everyone(f"{stored} with {what}", [TENANT], update(stored, {"metadata": change}))
        cases += everyone(f"{stored} deleted", [TENANT], delete(stored))
    for what, change, subresource in (
        ("the status of a marked pod", {"status": {"message": "a"}}, "status"),
        ("an ephemeral container of a marked pod", {"spec": {"ephemeralContainers": [_DEBUG]}}, "ephemeralcontainers"),
    ):
        cases += everyone(what, [TENANT], update("marked-pod", change, subresource))
    debugged = update("plain-pod", {"spec": {"ephemeralContainers": [_DEBUG]}}, "ephemeralcontainers")
    cases += everyone("an ephemeral container", [TENANT], debugged)
    command = Call(operation="connect", obj="plain-pod", subresource="exec")
    cases.append(Case(title="a command in a pod", who=TENANT, call=command, reaches=False))
    cases += everyone(
        "a class, which has no namespace", [TENANT], create(gpu_class("new") | {"metadata": {"name": "new", **_LABELS}})
    )
    cases += everyone("a namespace", [TENANT], create(named("v1", "Namespace", "new", **_LABELS)))
    cases += everyone(
        "a Secret with it elsewhere", [TENANT], create(named("v1", "Secret", "new", **_LABELS)), where=ELSEWHERE
    )
    return cases


USAGE_MONITOR: Final = _usage_monitor()
