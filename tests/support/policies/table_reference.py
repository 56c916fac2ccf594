"""The reference of VMIs and pods, and that no guest runs on unseen."""

from collections.abc import Mapping
from typing import Any, Final

from policies.callers import (
    CONTROLLER_OF_KUBEVIRT,
    EVERYBODY,
    GARBAGE_COLLECTOR,
    HANDLER_OF_KUBEVIRT,
    MASTERS,
    NODE,
    OUTSIDERS,
    PLATFORM,
    SCHEDULER,
    TENANT,
)
from policies.cases import ELSEWHERE, Case, create, delete, everyone, post, update
from policies.stored import REFERENCE, TEMPLATE, named, owner, thing, vmi

from gpu import names

_LABEL: Final = (
    "metadata.labels[gpu.cozystack.io/device-reference]: can't be added, changed or dropped on a {}; "
    "set it on the VM's template and restart the VM"
)
_ON_VMI: Final = _LABEL.format("VMI")
_ANNOTATION: Final = _ON_VMI.replace(
    "labels[gpu.cozystack.io/device-reference]", "annotations[gpu.cozystack.io/device-template]"
)
_UNSTAMPED: Final = (
    "metadata.annotations[gpu.cozystack.io/device-template]: orders a device, but none was built: the mutating webhook "
    "of gpu-webhooks was not called; ask the platform's operator to look at its webhook configuration"
)
KEY, TEMPLATE_KEY = names.DEVICE_REFERENCE, names.DEVICE_TEMPLATE


def _metadata(**fields: Any) -> dict[str, Any]:
    return {"metadata": fields}


def _vmi_reference() -> list[Case]:
    cases = []
    for what, stored, change, refused in (
        ("the label added", "plain-vmi", _metadata(labels=REFERENCE), _ON_VMI),
        ("the label changed", "vmi", _metadata(labels={KEY: "other"}), _ON_VMI),
        ("the label emptied", "vmi", _metadata(labels={KEY: ""}), _ON_VMI),
        ("the label dropped", "vmi", _metadata(labels={KEY: None}), _ON_VMI),
        ("all labels dropped", "vmi", _metadata(labels=None), _ON_VMI),
        ("the label dropped while it leaves", "leaving-vmi", _metadata(labels={KEY: None}, finalizers=[]), _ON_VMI),
        ("the annotation added", "plain-vmi", _metadata(annotations=TEMPLATE), _ANNOTATION),
        ("the annotation changed", "vmi", _metadata(annotations={TEMPLATE_KEY: "{}"}), _ANNOTATION),
        ("the annotation dropped", "vmi", _metadata(annotations={TEMPLATE_KEY: None}), _ANNOTATION),
        (
            "the annotation changed while it leaves",
            "leaving-vmi",
            _metadata(annotations={TEMPLATE_KEY: ""}),
            _ANNOTATION,
        ),
    ):
        cases += everyone(what, [TENANT], update(stored, change), refused)
    changed = update("vmi", _metadata(labels={KEY: "other"}))
    cases += everyone("the label changed", [*EVERYBODY, HANDLER_OF_KUBEVIRT], changed, _ON_VMI)
    for what, stored, change in (
        ("another label", "vmi", _metadata(labels={"a": "b"})),
        ("another annotation", "vmi", _metadata(annotations={"a": "b"})),
        ("the first label", "plain-vmi", _metadata(labels={"app": None, "a": "b"})),
        ("its status", "vmi", {"status": {"phase": "Running", "nodeName": "node-1"}}),
        ("its finalizers while it leaves", "leaving-vmi", _metadata(finalizers=[])),
        ("its owner", "vmi", _metadata(ownerReferences=[owner()])),
    ):
        cases += everyone(what, [TENANT, CONTROLLER_OF_KUBEVIRT, GARBAGE_COLLECTOR], update(stored, change))
    born: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("a new one with the annotation alone", {"annotations": TEMPLATE}, _UNSTAMPED),
        ("a new one with both", {"annotations": TEMPLATE, "labels": REFERENCE}, ""),
        ("a new one with the label", {"labels": REFERENCE}, ""),
        ("a new one with neither", {}, ""),
    )
    for what, marks, refused in born:
        cases += everyone(what, [TENANT, CONTROLLER_OF_KUBEVIRT, MASTERS], create(vmi(**marks)), refused)
    cases += everyone("the deletion", [TENANT], delete("vmi"))
    cases += everyone(
        "another kind with the annotation", [TENANT], create(named("v1", "ConfigMap", "new", annotations=TEMPLATE))
    )
    cases += everyone("the label changed elsewhere", [TENANT], changed, where=ELSEWHERE)
    return cases


VMI_REFERENCE: Final = _vmi_reference()

_ORPHAN: Final = "metadata.finalizers: 'orphan' would leave the pod of a VMI with a GPUDevice behind; leave it out"
_ORPHANING: Final = (
    "propagationPolicy Orphan would leave the pod of a VMI with a GPUDevice behind; delete it without --cascade=orphan"
)
_BY_FINALIZER, _BY_DELETE = {"orphaning": "finalizer"}, {"orphaning": "delete"}


def _vmi_orphan() -> list[Case]:
    exempt = [*PLATFORM, CONTROLLER_OF_KUBEVIRT, NODE]
    added = update("vmi", _metadata(finalizers=["orphan"]))
    born = create(vmi(labels=REFERENCE, finalizers=["tests.example.org/a", "orphan"]))
    orphaned, orphaned_as_before = delete("vmi", propagation="Orphan"), delete("vmi", orphanDependents=True)
    cases = []
    for who in ([*OUTSIDERS, HANDLER_OF_KUBEVIRT], exempt):
        refused = who is not exempt
        for what, call, message, audit in (
            ("orphan added", added, _ORPHAN, _BY_FINALIZER),
            ("made with orphan", born, _ORPHAN, _BY_FINALIZER),
            ("deleted with Orphan", orphaned, _ORPHANING, _BY_DELETE),
            ("deleted with orphanDependents", orphaned_as_before, _ORPHANING, _BY_DELETE),
        ):
            cases += everyone(what, who, call, message if refused else "", audit=audit if refused else None)
    kept = update("orphan-vmi", _metadata(finalizers=["orphan", "tests.example.org/a"]))
    cases += everyone("orphan that was there", [TENANT], kept)
    cases += everyone("orphan dropped", [TENANT], update("orphan-vmi", _metadata(finalizers=[])))
    cases += everyone("another finalizer", [TENANT], update("vmi", _metadata(finalizers=["tests.example.org/a"])))
    cases += everyone("deleted as usual", [TENANT], delete("vmi"))
    for policy in ("Background", "Foreground"):
        cases += everyone(f"deleted with {policy}", [TENANT], delete("vmi", propagation=policy))
    cases += everyone("orphanDependents false", [TENANT], delete("vmi", orphanDependents=False))
    cases += everyone("a VMI without a device", [TENANT], delete("plain-vmi", propagation="Orphan"))
    cases += everyone("orphan on a VMI without a device", [TENANT], create(vmi(finalizers=["orphan"])))
    secret = named("v1", "Secret", "new", labels=REFERENCE, finalizers=["orphan"])
    cases += everyone("another kind", [TENANT], create(secret))
    cases += everyone("deleted with Orphan elsewhere", [TENANT], orphaned, where=ELSEWHERE)
    return cases


VMI_ORPHAN: Final = _vmi_orphan()

_ON_POD: Final = _LABEL.format("pod")
_OWNERS: Final = (
    "metadata.ownerReferences: can't change on a pod that refers to a GPUDevice, since they tell whose GPUs it has; "
    "delete the VM instead"
)
_TARGET: Final[Mapping[str, Any]] = {"target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"}}


def _binding(**metadata: Any) -> dict[str, Any]:
    name = {"name": "waiting-launcher", **metadata}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": name, **_TARGET}


def _pod_reference() -> list[Case]:
    outsiders = [*OUTSIDERS, HANDLER_OF_KUBEVIRT]
    cases = []
    for what, stored, change, refused in (
        ("the label changed", "launcher", _metadata(labels={KEY: "other"}), _ON_POD),
        ("the label dropped", "launcher", _metadata(labels={KEY: None}), _ON_POD),
        ("the label added", "plain-pod", _metadata(labels=REFERENCE), _ON_POD),
        ("the owner dropped", "launcher", _metadata(ownerReferences=None), _OWNERS),
        ("the owner's control dropped", "launcher", _metadata(ownerReferences=[owner(controller=False)]), _OWNERS),
        ("another owner", "launcher", _metadata(ownerReferences=[owner(uid="other")]), _OWNERS),
        ("the label dropped while it leaves", "leaving-launcher", _metadata(labels={KEY: None}), _ON_POD),
        ("the owner dropped while it leaves", "leaving-launcher", _metadata(ownerReferences=None), _OWNERS),
        ("an owner of a finished pod", "finished-launcher", _metadata(ownerReferences=None), _OWNERS),
    ):
        by = outsiders if stored != "plain-pod" else [TENANT]
        cases += everyone(what, by, update(stored, change), refused)
        cases += everyone(what, [*PLATFORM, CONTROLLER_OF_KUBEVIRT], update(stored, change))
    status = _metadata(labels={KEY: "other"})
    cases += everyone(
        "the label changed by a status", [TENANT, FLUX_OF_STATUS], update("launcher", status, "status"), _ON_POD
    )
    cases += everyone("the label changed by a status", [MASTERS], update("launcher", status, "status"))
    for what, stored, change, subresource in (
        ("another label", "launcher", _metadata(labels={"a": "b"}), ""),
        ("a finalizer", "launcher", _metadata(finalizers=["tests.example.org/a"]), ""),
        ("its status", "launcher", {"status": {"message": "well"}}, "status"),
        ("the owner of a pod without a device", "plain-pod", _metadata(ownerReferences=None), ""),
        ("a finalizer while it leaves", "leaving-launcher", _metadata(finalizers=[]), ""),
    ):
        cases += everyone(what, [TENANT, CONTROLLER_OF_KUBEVIRT], update(stored, change, subresource))
    cases += everyone("its status", [NODE], update("launcher", {"status": {"message": "well"}}, "status"))
    labelled = _metadata(name="waiting-launcher", labels={KEY: "other"})
    cases += everyone(
        "a binding with the label",
        [TENANT, SCHEDULER],
        post("waiting-launcher", "binding", {**_binding(), **labelled}),
        _ON_POD,
    )
    cases += everyone(
        "a binding with the label", [MASTERS], post("waiting-launcher", "binding", {**_binding(), **labelled})
    )
    cases += everyone("a binding", [TENANT, SCHEDULER], post("waiting-launcher", "binding", _binding()))
    cases += everyone(
        "a binding by itself with the label", [SCHEDULER], create(_binding(labels={KEY: "other"})), _ON_POD
    )
    cases += everyone("a binding by itself", [SCHEDULER], create(_binding()))
    cases += everyone("a new pod", [TENANT], create(_pod_with_label()))
    cases += everyone("the deletion", [TENANT], delete("launcher"))
    cases += everyone(
        "the label dropped elsewhere", [TENANT], update("launcher", _metadata(labels={KEY: None})), where=ELSEWHERE
    )
    return cases


def _pod_with_label() -> dict[str, Any]:
    container = {"name": "compute", "image": "example.org/a"}
    return {**named("v1", "Pod", "new", labels=REFERENCE), "spec": {"containers": [container]}}


FLUX_OF_STATUS: Final = OUTSIDERS[3]
POD_REFERENCE: Final = _pod_reference()

_FORCED: Final = (
    "gracePeriodSeconds: 0 would leave the guest of a pod with a GPUDevice running unseen; delete the VM, or the pod "
    "with a period of at least 1"
)
_FORCED_EVICTION: Final = (
    "deleteOptions.gracePeriodSeconds: 0 could leave the guest of a pod with a GPUDevice running unseen; evict with a "
    "period of at least 1, or delete the pod"
)


def _eviction(**options: Any) -> dict[str, Any]:
    given = {"deleteOptions": options} if options else {}
    return {"apiVersion": "policy/v1", "kind": "Eviction", **given}


def _pod_force_deletion() -> list[Case]:
    exempt = [*PLATFORM, CONTROLLER_OF_KUBEVIRT, NODE]
    outsiders = [*OUTSIDERS, HANDLER_OF_KUBEVIRT, SCHEDULER]
    by_delete, by_eviction = {"forced": "delete"}, {"forced": "eviction"}
    forced, evicted = delete("launcher", grace=0), post("launcher", "eviction", _eviction(gracePeriodSeconds=0))
    cases = everyone("deleted at once", outsiders, forced, _FORCED, audit=by_delete)
    cases += everyone("deleted at once", exempt, forced)
    cases += everyone("evicted at once", outsiders, evicted, _FORCED_EVICTION, audit=by_eviction)
    cases += everyone("evicted at once", exempt, evicted)
    again = delete("leaving-launcher", grace=0)
    cases += everyone("deleted at once while it leaves", [TENANT], again, _FORCED, audit=by_delete)
    cases += everyone("its own period is zero", [TENANT], delete("short-launcher"), _FORCED, audit=by_delete)
    for what, call in {
        "deleted": delete("launcher"),
        "deleted within a second": delete("launcher", grace=1),
        "its own period of zero is lengthened": delete("short-launcher", grace=1),
        "it has no node": delete("waiting-launcher", grace=0),
        "it has finished": delete("finished-launcher", grace=0),
        "it has failed": delete("failed-launcher", grace=0),
        "it has no device": delete("plain-pod", grace=0),
        "deleted again while it leaves": delete("leaving-launcher"),
        "evicted": post("launcher", "eviction", _eviction()),
        "evicted within a second": post("launcher", "eviction", _eviction(gracePeriodSeconds=1)),
        # Its pod can't be seen; that none is made with a period of zero is the policy grace-period's.
        "an older pod with a period of zero is evicted": post("short-launcher", "eviction", _eviction()),
        "evicted in the background": post("launcher", "eviction", _eviction(propagationPolicy="Background")),
        "made": create(_pod_with_label()),
        "changed": update("launcher", _metadata(labels={"a": "b"})),
        "a VMI deleted at once": delete("vmi", grace=0),
        "another kind deleted at once": delete("thing", grace=0),
        "another kind made": create(thing()),
    }.items():
        cases += everyone(what, [TENANT], call)
    cases += everyone("deleted at once elsewhere", [TENANT], forced, where=ELSEWHERE)
    cases += everyone("evicted at once elsewhere", [TENANT], evicted, where=ELSEWHERE)
    return cases


POD_FORCE_DELETION: Final = _pod_force_deletion()
