"""Finalizers of devices, and what becomes of those that are deleted or that nobody came for."""

from datetime import datetime

from cluster import kinds
from controller.plan.agenda import Agenda
from controller.plan.draft import Draft, about_device
from controller.state import State
from controller.writes import Write
from gpu import names


def guard(draft: Draft) -> Write | None:
    """Every device has our finalizer, before anything else is written on it."""
    device = draft.device
    if device.guarded or device.deleting:
        return None
    return _finalizers(draft, (*device.finalizers, names.DEVICE_FINALIZER), why="it may not vanish while it is used")


def release(draft: Draft) -> Write | None:
    """A deleted device keeps its finalizer and binding until it is not in use."""
    device = draft.device
    if not device.deleting or not device.guarded or draft.in_use:
        return None
    kept = tuple(name for name in device.finalizers if name != names.DEVICE_FINALIZER)
    return _finalizers(draft, kept, why="it is deleted and not in use", released=True)


def _finalizers(draft: Draft, wanted: tuple[str, ...], *, why: str, released: bool = False) -> Write:
    device = draft.device
    told = f"its {device.count} GPUs on node {device.node_name} are free" if device.held else "it held nothing"
    return Write(
        kind=kinds.GPU_DEVICES,
        verb="merge",
        namespace=device.namespace,
        name=device.name,
        body={"metadata": {"finalizers": list(wanted)}},
        version=device.resource_version or "",
        podless=device.binding.uid if released and device.binding else "",
        why=why,
        events=(about_device(device, "Released", told),) if released else (),
    )


def expire(draft: Draft, state: State, agenda: Agenda) -> Write | None:
    """A template device is deleted when its VMI has been gone for 15 s, or has not come within two minutes.

    Both begin anew when another VMI takes it over, which the resource version of the delete makes sure of. The seconds
    are Config's ``template_kept`` and ``template_unclaimed``.
    """
    device = draft.device
    if not device.from_template or device.deleting or draft.in_use or draft.referrers or draft.unread:
        return None
    left = state.seen.left.get(device.uid or "")
    config = state.config
    seconds, why = (
        (config.template_kept, "its VMI is gone") if left else (config.template_unclaimed, "no VMI has come for it")
    )
    if not agenda.is_past(_later(left, device.touched), seconds):
        return None
    return Write(
        kind=kinds.GPU_DEVICES,
        verb="delete",
        namespace=device.namespace,
        name=device.name,
        version=device.resource_version or "",
        uid=device.uid or "",
        podless=device.binding.uid if device.binding else "",
        why=f"it was made for a VMI, and {why}",
        events=(about_device(device, "Deleted", f"it was made for a VMI, and {why}"),),
    )


def _later(left: datetime | None, touched: datetime | None) -> datetime | None:
    return max((time for time in (left, touched) if time), default=None)
