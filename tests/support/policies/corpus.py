"""Requests by every road, label, caller and operation, that the pair and the policies are asked alike."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from policies.callers import ADMISSION, CONTROLLER_OF_KUBEVIRT, FLUX, MASTERS, TENANT, TENANT_ACCOUNT, Who
from policies.cases import Call, create, update
from policies.stored import KEPT, REFERENCE, TEMPLATE, device, owner, pod, vmi
from policies.table_raw_names import PLAIN, POD_ROADS, ROADS

from gpu import names

WHO: Final = (TENANT, TENANT_ACCOUNT, FLUX, MASTERS, ADMISSION, CONTROLLER_OF_KUBEVIRT)
_MARKS: Final[Mapping[str, dict[str, Any]]] = {
    "no mark": {},
    "the label": {"labels": REFERENCE},
    "a label of nothing": {"labels": {names.DEVICE_REFERENCE: "none-of-that-name"}},
    "an empty label": {"labels": {names.DEVICE_REFERENCE: ""}},
    "the annotation": {"annotations": TEMPLATE},
    "both": {"labels": REFERENCE, "annotations": TEMPLATE},
}
_OWNERS: Final[Mapping[str, list[dict[str, Any]]]] = {
    "no owner": [],
    "a VMI as owner": [owner()],
    "a VM as owner": [owner(kind=names.VM)],
    "a VMI that is no controller": [owner(controller=False)],
}
_CHANGES: Final[Mapping[str, dict[str, Any]]] = {
    "the label dropped": {"labels": {names.DEVICE_REFERENCE: None}},
    "the label changed": {"labels": {names.DEVICE_REFERENCE: "other"}},
    "the label as it is": {"labels": REFERENCE},
    "the annotation dropped": {"annotations": {names.DEVICE_TEMPLATE: None}},
    "the annotation changed": {"annotations": {names.DEVICE_TEMPLATE: "{}"}},
    "another label": {"labels": {"a": "b"}},
    "a finalizer": {"finalizers": ["tests.example.org/a"]},
    "everything dropped": {"labels": None, "annotations": None},
}


class Asked(NamedTuple):
    """A request of the corpus: what it is about in words, and as data."""

    kind: str
    road: str
    mark: str
    who: Who
    call: Call

    @property
    def title(self) -> str:
        return f"{self.call.operation} of a {self.kind}, {self.road}, {self.mark}, by {self.who.user}"


def corpus() -> Iterator[Asked]:
    """Every combination."""
    for who in WHO:
        yield from _vmis(who)
        yield from _pods(who)
        yield from _devices(who)


def _vmis(who: Who) -> Iterator[Asked]:
    domains = {**{road: domain for road, (domain, _, _) in ROADS.items()}, **PLAIN}
    for mark, metadata in _MARKS.items():
        for road, domain in domains.items():
            yield Asked("VMI", road, mark, who, create(vmi(domain=domain, **metadata)))
    for change, metadata in _CHANGES.items():
        for stored in ("vmi", "plain-vmi", "raw-vmi"):
            yield Asked("VMI", stored, change, who, update(stored, {"metadata": metadata}))


def _pods(who: Who) -> Iterator[Asked]:
    roads = {**{road: obj for road, (obj, *_) in POD_ROADS.items()}, "nothing": pod()}
    for owned, owners in _OWNERS.items():
        for mark in ("no mark", "the label"):
            for road, obj in roads.items():
                metadata = {**obj["metadata"], **_MARKS[mark], "ownerReferences": owners}
                yield Asked("pod", f"{road}, {owned}", mark, who, create({**obj, "metadata": metadata}))


def _devices(who: Who) -> Iterator[Asked]:
    marks: dict[str, dict[str, Any]] = {
        "no mark": {},
        "our finalizer": {"finalizers": [names.DEVICE_FINALIZER]},
        "another finalizer": {"finalizers": [KEPT]},
        "orphan": {"finalizers": ["orphan"]},
        "the template label": {"labels": {names.TEMPLATE_DEVICE: "true"}},
        "another label": {"labels": {"a": "b"}},
    }
    for class_name in ("h200", "leaving-class", "none-of-that-name"):
        for mark, metadata in marks.items():
            yield Asked("GPUDevice", class_name, mark, who, create(device(class_name=class_name, **metadata)))
    for count in (8, 9):
        order = device()
        yield Asked(
            "GPUDevice",
            f"{count} of h200",
            "no mark",
            who,
            create({**order, "spec": {"className": "h200", "count": count}}),
        )
