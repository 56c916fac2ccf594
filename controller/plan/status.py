"""The status of a device, as it is to be written."""

from collections.abc import Mapping
from typing import Any

from cluster import kinds
from controller.plan.draft import Draft
from controller.state import State
from controller.writes import Write
from gpu.condition import Condition, of_type
from gpu.gpudevice import Binding, GPUDevice, Reservation


def status_write(draft: Draft, state: State) -> Write | None:
    """The write of what is different from what is stored; None where nothing is."""
    device = draft.device
    wanted, stored = _wanted(draft), _stored(device)
    patch: dict[str, Any] = {key: value for key, value in wanted.items() if value != stored[key]}
    conditions = _conditions(draft, state)
    if conditions != device.conditions:
        patch["conditions"] = [condition.as_dict() for condition in conditions]
    if not patch:
        return None
    # A status without a phase reads as Pending; who lists by phase finds it only where it is written.
    patch["phase"] = wanted["phase"]
    return Write(
        kind=kinds.GPU_DEVICES,
        verb="status",
        namespace=device.namespace,
        name=device.name,
        body={"status": patch},
        version=device.resource_version or "",
        podless=_podless(draft),
        why="; ".join(dict.fromkeys(event.message for event in draft.events)) or "its status is made right",
        events=tuple(draft.events),
        waited=draft.waited,
    )


def _podless(draft: Draft) -> str:
    """What was bound to a VMI is given to another, or moved, only if that VMI has no pod."""
    binding = draft.device.binding
    if binding is None or draft.pods:
        return ""
    taken = draft.binding is None or draft.binding.uid != binding.uid
    return binding.uid if taken or draft.lost else ""


def _phase(draft: Draft) -> str:
    if draft.device.deleting:
        return "Releasing"
    if not draft.held:
        return "Pending"
    bound = draft.user is not None and draft.binding is not None and draft.binding.uid == draft.user.vmi.uid
    return "InUse" if draft.in_use or bound else "Held"


def _wanted(draft: Draft) -> Mapping[str, Any]:
    return {
        "phase": _phase(draft),
        "resourceName": draft.resource,
        "nodeName": draft.node,
        "heldAt": draft.held_at,
        "binding": _binding(draft.binding),
        "migration": _migration(draft.migration),
    }


def _stored(device: GPUDevice) -> Mapping[str, Any]:
    return {
        "phase": device.phase,
        "resourceName": device.resource_name,
        "nodeName": device.node_name,
        "heldAt": device.held_at,
        "binding": _binding(device.binding),
        "migration": _migration(device.migration),
    }


def _binding(binding: Binding | None) -> dict[str, str] | None:
    return {"name": binding.name, "uid": binding.uid} if binding else None


def _migration(migration: Reservation | None) -> dict[str, str] | None:
    return {"uid": migration.uid, "nodeName": migration.node_name} if migration else None


def _conditions(draft: Draft, state: State) -> tuple[Condition, ...]:
    stored = draft.device.conditions
    if draft.held:
        message = f"{draft.device.count} of {draft.resource} on node {draft.node}"
        wanted = [Condition(type="Held", status="True", reason="Held", message=message)]
    else:
        held = draft.waiting or of_type(stored, "Held")
        wanted = [condition for condition in (held, draft.displaced) if condition]
    return tuple(_dated(condition, of_type(stored, condition.type), state) for condition in wanted)


def _dated(wanted: Condition, stored: Condition | None, state: State) -> Condition:
    """As old as what is stored, where that says the same."""
    if stored and (stored.status, stored.reason, stored.message) == (wanted.status, wanted.reason, wanted.message):
        return stored
    return wanted.dated(stored, now=state.stamp)
