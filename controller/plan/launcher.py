"""Launcher pods that can't be where their device is held."""

from cluster import kinds
from controller.machine import Machine
from controller.plan.agenda import Agenda
from controller.plan.draft import Draft, about_machine
from controller.plan.ledger import place_of
from controller.plan.places import Places
from controller.state import State
from controller.writes import Event, Target, Write
from gpu import names
from gpu.pod import Pod


def launcher(draft: Draft, state: State, places: Places, agenda: Agenda) -> tuple[Write | None, Event | None]:
    """When a launcher has been unschedulable for 60 s and another node has room, the pod is deleted and the device
    moves; so is one that waits for a node where its device is not any more. A VMI that nobody would make again is told.

    The seconds are Config's ``launcher_patience``.
    """
    pod = next((pod for pod in draft.pods if _waits(pod)), None)
    if pod is None or not draft.held or draft.user is None or draft.gpu_class is None or draft.device.deleting:
        return None, None
    user = draft.user
    if (at := place_of(pod)) and at != draft.node:
        why = f"its pod waits for node {at}, and GPUDevice {draft.device.name} is held on {draft.node}"
        return _lost(pod, user, state, why)
    patience = state.config.launcher_patience
    if pod.unschedulable is None or not agenda.is_past(pod.unschedulable, patience):
        return None, None
    node = places.other(draft.gpu_class, draft.resource or "", draft.device.count, user, but=draft.node or "")
    if node is None:
        return None, None
    why = f"its pod has been unschedulable on node {draft.node} for {patience:g} s, and node {node} has room"
    write, told = _lost(pod, user, state, why, after=(kinds.GPU_DEVICES, *draft.key))
    if write:
        places.ledger.take(node, draft.resource or "", draft.device.count)
        draft.tell("Moved", f"moved from node {draft.node} to {node}: {why}", user=True)
        draft.node = node
    return write, told


def _waits(pod: Pod) -> bool:
    """Whether a launcher has no node yet. A migration's target is its migration's business."""
    return not pod.node_name and not pod.deleting and not pod.migration and bool(pod.resources)


def _lost(
    pod: Pod, user: Machine, state: State, why: str, *, after: Target | None = None
) -> tuple[Write | None, Event | None]:
    if not remade(user, state):
        return None, about_machine(user, "LauncherWaits", f"{why}: restart the VM", warning=True)
    write = Write(
        kind=kinds.PODS,
        verb="delete",
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        after=after,
        why=f"{why}; another is made",
    )
    return write, None


def remade(machine: Machine, state: State) -> bool:
    """Whether somebody makes another VMI when this one is lost: its replica set, or its VM by its run strategy."""
    return machine.maker == names.REPLICA_SET or (
        machine.maker == names.VM and machine.vmi.owner_uid not in state.unmade
    )
