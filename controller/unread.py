"""Objects that are there and can't be read: what they have, or may have, is given to nobody else."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cluster import kinds
from cluster.kinds import Kind
from controller.writes import Event
from gpu import names
from gpu.errors import FieldError
from gpu.gpudevice import GPUDevice
from gpu.pod import FINISHED, extended_resources, owning_vmi, pinned_nodes, required_terms

NOWHERE: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """An object that can't be read, and what can be told of it all the same. None is what can't be told: any.

    ``nodes`` are those on which it has GPUs or may have some, ``resources`` of which names; ``vmi`` is the uid of the
    VMI that a device is bound to or that owns a pod, and a VMI's own, empty where there is none; ``of_class`` is a
    device's class, ``device`` the GPUDevice that a VMI refers to, empty where it refers to none.
    """

    kind: Kind
    namespace: str
    name: str
    uid: str
    why: str
    nodes: frozenset[str] | None = NOWHERE
    resources: frozenset[str] | None = NOWHERE
    vmi: str | None = ""
    of_class: str | None = ""
    device: str | None = ""

    @property
    def has_gpus(self) -> bool:
        """Whether it has GPUs, or may have some."""
        return NOWHERE not in (self.nodes, self.resources)

    def has(self, node: str, resource: str) -> bool:
        """Whether it has GPUs of this name on this node, or may have some."""
        on = self.nodes is None or node in self.nodes
        return on and (self.resources is None or resource in self.resources)


def salvage(kind: Kind, obj: Mapping[str, Any], why: str) -> Unread | None:
    """What can be told of an object that can't be read; None where nothing is held or given up by its kind."""
    found = _TOLD.get(kind)
    if found is None:
        return None
    metadata = _object(obj, "metadata")
    namespace, name, uid = (_text(metadata, key) or "" for key in ("namespace", "name", "uid"))
    told = found(obj)
    return None if told is None else Unread(kind=kind, namespace=namespace, name=name, uid=uid, why=why, **told)


def _of_device(obj: Mapping[str, Any]) -> dict[str, Any]:
    spec, status = _object(obj, "spec"), obj.get("status")
    told: dict[str, Any] = {"of_class": _text(spec, "className")}
    if status is None:
        return told
    if not isinstance(status, Mapping):
        return {**told, "nodes": None, "resources": None, "vmi": None}
    places = [_text(status, "nodeName", missing="")]
    for key, field in (("migration", "nodeName"), ("binding", "uid")):
        found = status.get(key)
        value = "" if found is None else _text(found, field) if isinstance(found, Mapping) else None
        if key == "binding":
            told["vmi"] = value
        else:
            places.append(value)
    resource = _text(status, "resourceName")
    told["nodes"] = None if None in places else frozenset(places) - {""}
    return {**told, "resources": None if resource is None else frozenset({resource})}


def _of_pod(obj: Mapping[str, Any]) -> dict[str, Any] | None:
    """A finished pod has nothing. One that waits for a node has GPUs only where it can be put on no other."""
    if _text(_object(obj, "status"), "phase") in FINISHED:
        return None
    spec = obj.get("spec")
    node = _text(spec, "nodeName", missing="") if isinstance(spec, Mapping) else None
    nodes: frozenset[str] | None = None if node is None else frozenset({node} - {""})
    if node == "":
        pinned = _told(lambda: frozenset(pinned_nodes(required_terms(obj))))
        nodes = pinned if pinned and len(pinned) == 1 else NOWHERE
    return {
        "nodes": nodes,
        "resources": _told(lambda: frozenset(extended_resources(obj))),
        "vmi": _told(lambda: owning_vmi(_object(obj, "metadata")) or ""),
    }


def _of_vmi(obj: Mapping[str, Any]) -> dict[str, Any]:
    metadata = _object(obj, "metadata")
    labels = metadata.get("labels")
    device = "" if labels is None else None
    if isinstance(labels, Mapping):
        device = _text(labels, names.DEVICE_REFERENCE, missing="")
    return {"vmi": _text(metadata, "uid"), "device": device}


def _named(_: Mapping[str, Any]) -> dict[str, Any]:
    return {}


_TOLD: Final[Mapping[Kind, Callable[[Mapping[str, Any]], dict[str, Any] | None]]] = {
    kinds.GPU_DEVICES: _of_device,
    kinds.PODS: _of_pod,
    kinds.VMIS: _of_vmi,
    kinds.NODES: _named,
    kinds.GPU_CLASSES: _named,
}

_MEANS: Final[Mapping[Kind, str]] = {
    kinds.GPU_DEVICES: (
        "nothing more is held where it has GPUs, and it is not released. Put the field right, or delete it and take its"
        f" finalizer {names.DEVICE_FINALIZER} off once no VM uses it"
    ),
    kinds.PODS: "no GPUs that it may have are given to anybody while it is there. Put the field right, or delete it",
    kinds.VMIS: "the GPUDevice that it uses, or refers to, stays as it is. Put the field right, or stop the VM",
    kinds.NODES: "no GPUs of it are held for anybody, and what is held there stays. Put the field right",
    kinds.GPU_CLASSES: "nothing is held of it, and what is held stays. Put the field right",
}


def notice(found: Unread) -> Event:
    """What is told about an object that can't be read."""
    return Event(
        kind=found.kind,
        namespace=found.namespace,
        name=found.name,
        uid=found.uid,
        reason="Unreadable",
        message=f"it can't be read: {found.why}; {_MEANS[found.kind]}",
        type="Warning",
    )


def uses(found: Unread, device: GPUDevice) -> bool:
    """Whether an unread pod or VMI is, or may be, that which a device is bound to, or one of its pods."""
    binding = device.binding
    return binding is not None and (found.vmi is None or found.vmi == binding.uid)


def concerns(found: Unread, device: GPUDevice) -> bool:
    """Whether an unread pod or VMI uses a device or refers to it, or may."""
    refers = found.kind == kinds.VMIS and (found.device is None or found.device == device.name)
    return refers or uses(found, device)


def _told(tell: Callable[[], Any]) -> Any:
    try:
        return tell()
    except FieldError:
        return None


def _object(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = parent.get(key)
    return found if isinstance(found, Mapping) else {}


def _text(parent: Mapping[str, Any], key: str, *, missing: str | None = None) -> str | None:
    """The text at ``key``; ``missing`` where nothing is there, None where it is no text."""
    found = parent.get(key)
    if found is None:
        return missing
    return found if isinstance(found, str) else None
