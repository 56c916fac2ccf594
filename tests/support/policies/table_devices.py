"""What the platform keeps on GPUDevices, what stays of a GPUClass, and the orders of a class that is being deleted."""

from typing import Any, Final

from policies.callers import (
    CONTROLLER_OF_KUBEVIRT,
    MASTERS,
    NODE,
    OTHER_ADMISSION,
    OUTSIDERS,
    PLATFORM,
    TENANT,
)
from policies.cases import ELSEWHERE, Call, Case, create, delete, everyone, update
from policies.stored import KEPT, device, named

from gpu import names

_FINALIZERS: Final = (
    "metadata.finalizers: are set and taken off by the platform alone; leave them as they are, and delete the "
    "GPUDevice to give its GPUs back"
)
_TEMPLATE: Final = (
    "metadata.labels[gpu.cozystack.io/template-device]: marks the devices that the platform builds from a "
    "device-template annotation; leave the label as it is"
)
_STATUS: Final = "status: is written by the platform alone; leave it as it is"
OURS: Final = names.DEVICE_FINALIZER
_STRANGERS: Final = [*OUTSIDERS, OTHER_ADMISSION, CONTROLLER_OF_KUBEVIRT, NODE]


def _finalizers(*finalizers: str, **others: Any) -> dict[str, Any]:
    return {"metadata": {"finalizers": list(finalizers), **others}}


def _template(value: str | None) -> dict[str, Any]:
    return {"metadata": {"labels": {names.TEMPLATE_DEVICE: value}}}


def _device_protection() -> list[Case]:
    cases = []
    for what, call in {
        "made with ours": create(device(finalizers=[OURS])),
        "made with another's": create(device(finalizers=["orphan", KEPT])),
        "one added": update("device", _finalizers(OURS, KEPT, "tests.example.org/a")),
        "the first added": update("bare-device", _finalizers(KEPT)),
        "ours dropped": update("device", _finalizers(KEPT)),
        "another's dropped": update("device", _finalizers(OURS)),
        "all dropped": update("device", {"metadata": {"finalizers": None}}),
        "all replaced": update("device", _finalizers("foregroundDeletion")),
        "one replaced": update("device", _finalizers(KEPT, "tests.example.org/a")),
        "dropped with a label": update("device", _finalizers(KEPT, labels={"a": "b"})),
    }.items():
        cases += everyone(what, [TENANT, OTHER_ADMISSION], call, _FINALIZERS, audit={"tried": "finalizers"})
        cases += everyone(what, PLATFORM, call)
    dropped = update("device", _finalizers(KEPT))
    cases += everyone("ours dropped", _STRANGERS, dropped, _FINALIZERS, audit={"tried": "finalizers"})
    cases += everyone("ours dropped", PLATFORM, dropped)
    for what, call in {
        "made with the label": create(device(labels={names.TEMPLATE_DEVICE: "true"})),
        "the label added": update("device", _template("true")),
        "the label changed": update("template-device", _template("false")),
        "the label dropped": update("template-device", _template(None)),
        "all labels dropped": update("template-device", {"metadata": {"labels": None}}),
    }.items():
        cases += everyone(what, [TENANT, OTHER_ADMISSION], call, _TEMPLATE, audit={"tried": "template-device"})
        cases += everyone(what, PLATFORM, call)
    status = update("device", {"status": {"phase": "Held"}}, "status")
    cases += everyone("its status", _STRANGERS, status, _STATUS, audit={"tried": "status"})
    cases += everyone("its status", PLATFORM, status)
    unchanged = update("device", {"metadata": {"labels": {"a": "b"}}}, "status")
    cases += everyone(
        "a write of its status that changes nothing", [TENANT], unchanged, _STATUS, audit={"tried": "status"}
    )
    both = update("device", {**_finalizers(KEPT, labels={names.TEMPLATE_DEVICE: "true"})})
    cases += everyone("two at once", [TENANT], both, _FINALIZERS, audit={"tried": "finalizers,template-device"})
    for what, call in {
        "made": create(device(labels={"a": "b"})),
        "made with orphan": create(device(finalizers=["orphan"])),
        "made with foregroundDeletion": create(device(finalizers=["foregroundDeletion"])),
        "reordered": update("device", _finalizers(KEPT, OURS)),
        "orphan added": update("device", _finalizers("orphan", OURS, KEPT)),
        "foregroundDeletion added": update("device", _finalizers(OURS, KEPT, "foregroundDeletion")),
        "another label": update("device", {"metadata": {"labels": {"a": "b"}}}),
        "another label beside the mark": update("template-device", {"metadata": {"labels": {"a": "b"}}}),
        "an annotation": update("device", {"metadata": {"annotations": {"a": "b"}}}),
        "deleted": delete("device"),
        "deleted in the foreground": delete("device", propagation="Foreground"),
        "deleted, what it owns left": delete("device", propagation="Orphan"),
        "another kind": create(named("v1", "Secret", "new", finalizers=[OURS], labels={names.TEMPLATE_DEVICE: "true"})),
    }.items():
        cases += everyone(what, [TENANT, OTHER_ADMISSION], call)
    cases += everyone(
        "ours dropped, elsewhere", [TENANT], dropped, _FINALIZERS, audit={"tried": "finalizers"}, where=ELSEWHERE
    )
    return cases


DEVICE_PROTECTION: Final = _device_protection()

_SOURCE: Final = (
    "spec.source: the kind of source can't change while GPUDevices may be held of the class; offer another GPUClass, "
    "and delete this one"
)


def _changed(*fields: str) -> str:
    what = ", ".join(f"spec.{field}" for field in fields)
    return (
        f"{what}: can't change while GPUDevices may be held of the class; offer another GPUClass, and delete this one"
    )


_WITHOUT_FINALIZER: Final = {"metadata": {"finalizers": None}}
_SLICE: Final = {"mode": "VGPU", "profile": "L40S-8Q"}
_SOLD: Final[dict[str, tuple[str, dict[str, Any], str]]] = {
    "vendor": ("h200", {"vendor": "AMD"}, _changed("vendor")),
    "model": ("h200", {"model": "H100"}, _changed("model")),
    "mode and profile": ("h200", _SLICE, _changed("mode", "profile")),
    "mode, without a profile": ("slice", {"mode": "Passthrough", "profile": None}, _changed("mode", "profile")),
    "profile": ("slice", {"profile": "L40S-8Q"}, _changed("profile")),
    "memory": ("h200", {"memory": "80Gi"}, _changed("memory")),
    "maxCount": ("h200", {"maxCount": 4}, _changed("maxCount")),
    "two at once": ("h200", {"maxCount": 4, "vendor": "AMD"}, _changed("vendor", "maxCount")),
}
_OTHER_SOURCE: Final = {"source": {"devicePlugin": None, "dra": {"deviceClassName": "a"}}}
_BACK: Final = {"source": {"dra": None, "devicePlugin": {"resourceName": "nvidia.com/A"}}}


def _spec(change: dict[str, Any]) -> dict[str, Any]:
    return {"spec": change}


def _class_protection() -> list[Case]:
    cases = []
    for what, (stored, change, refused) in _SOLD.items():
        cases += everyone(what, [MASTERS, TENANT], update(stored, _spec(change)), refused)
        at_once = update(stored, {**_WITHOUT_FINALIZER, **_spec(change)})
        cases += everyone(f"{what}, and the finalizer dropped", [MASTERS], at_once, refused)
        cases += everyone(f"{what}, where nothing protects it", [MASTERS], update(f"free-{stored}", _spec(change)))
    cases += everyone("vendor", PLATFORM, update("h200", _spec({"vendor": "AMD"})), _changed("vendor"))
    cases += everyone("another kind of source", [MASTERS], update("h200", _spec(_OTHER_SOURCE)), _SOURCE)
    cases += everyone("another kind of source", [MASTERS], update("dra-class", _spec(_BACK)), _SOURCE)
    cases += everyone("another kind, unprotected", [MASTERS], update("free-h200", _spec(_OTHER_SOURCE)))
    stays_open: dict[str, dict[str, Any]] = {
        "resourceName": {"source": {"devicePlugin": {"resourceName": "nvidia.com/H200_B"}}},
        "nodeSelector": {"source": {"devicePlugin": {"nodeSelector": {"gpu": "b"}}}},
        "no nodeSelector": {"source": {"devicePlugin": {"nodeSelector": None}}},
        "maxPerNamespace": {"maxPerNamespace": 8},
        "no maxPerNamespace": {"maxPerNamespace": None},
    }
    for what, change in stays_open.items():
        cases += everyone(what, [MASTERS], update("h200", _spec(change)))
    cases += everyone(
        "the source of the second kind",
        [MASTERS],
        update("dra-class", _spec({"source": {"dra": {"deviceClassName": "b"}}})),
    )
    cases += everyone("the finalizer dropped", [MASTERS], update("h200", _WITHOUT_FINALIZER))
    cases += everyone("another finalizer dropped", [MASTERS], update("slice", _finalizers(names.CLASS_FINALIZER)))
    cases += everyone(
        "the finalizer added with a change",
        [MASTERS],
        update("free-h200", {**_finalizers(names.CLASS_FINALIZER), **_spec({"vendor": "AMD"})}),
    )
    cases += everyone("its status", [MASTERS], update("h200", {"status": {"capacity": 8}}, "status"))
    cases += everyone("deleted", [MASTERS], delete("h200"))
    cases += everyone("another kind", [TENANT], update("device", {"metadata": {"labels": {"a": "b"}}}))
    return cases


CLASS_PROTECTION: Final = _class_protection()

LEAVING: Final = (
    "spec.className: GPUClass {} is being deleted and takes no new orders; choose another: kubectl get gpuclasses"
)


def order(class_name: str) -> Call:
    return create(device(class_name=class_name))


def _class_deletion() -> list[Case]:
    refused = LEAVING.format("leaving-class")
    cases = everyone("an order", [*OUTSIDERS, *PLATFORM], order("leaving-class"), refused)
    cases += everyone("an order elsewhere", [TENANT], order("leaving-class"), refused, where=ELSEWHERE)
    for class_name in ("h200", "free-h200", "none-of-that-name"):
        cases += everyone(f"an order of {class_name}", [TENANT], order(class_name))
    cases += everyone(
        "a label on an older order", [TENANT], update("leaving-device", {"metadata": {"labels": {"a": "b"}}})
    )
    cases += everyone("an older order let go", [MASTERS], update("leaving-device", {"metadata": {"finalizers": None}}))
    cases += everyone("an older order deleted", [TENANT], delete("leaving-device"))
    cases += everyone("another kind", [TENANT], create(named("v1", "Secret", "new")))
    return cases


CLASS_DELETION: Final = _class_deletion()
