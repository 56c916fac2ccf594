"""Migrations of the VMIs that use devices: reserve, follow, give back."""

from collections.abc import Sequence

from controller.plan.draft import Draft, about_machine
from controller.plan.places import Places
from controller.state import State
from controller.writes import Event
from gpu.gpudevice import Reservation
from gpu.migration import Migration


def follow(draft: Draft) -> None:
    """When the VMI's node is another one, and its pod there has the GPUs, the device's node follows."""
    node = draft.user.node_name if draft.user and draft.in_use else ""
    if not draft.held or not node or node == draft.node:
        return
    if any(pod.node_name == node and pod.resources.get(draft.resource or "") for pod in draft.pods):
        draft.tell("Moved", f"its GPUs are on node {node} now, where the VM was moved from {draft.node}")
        draft.node = node


def give_back(draft: Draft, state: State) -> None:
    """When a migration ends, the node that was reserved for it is freed."""
    if draft.migration and not draft.unread and _of(draft, _under_way(draft, state)) is None:
        draft.migration = None


def reserve(draft: Draft, state: State, places: Places) -> Event | None:
    """A migration of the bound VMI reserves as many GPUs on a second node, where the VMI can run.

    A reservation whose node can't be had any more becomes another, unless the target's pod is there already. Returns
    what to tell where there is no room.
    """
    under_way = _under_way(draft, state)
    if not draft.held or not draft.in_use or not draft.user or not draft.gpu_class or not under_way:
        return None
    migration = _of(draft, under_way) or under_way[0]
    if draft.migration:
        at = draft.migration.node_name
        placed = any(at in pod.nodes for pod in draft.pods)
        if placed or at == draft.node or places.unfit(at, draft.gpu_class, draft.user) is None:
            return None
    node = places.other(
        draft.gpu_class,
        draft.resource or "",
        draft.device.count,
        draft.user,
        but=draft.node or "",
        selector=migration.selector,
    )
    if node is None:
        message = (
            f"migration {migration.name} waits: no other node that suits the VM has {draft.device.count} free of"
            f" {draft.resource}; free a GPU there, or delete the migration"
        )
        draft.migration = None
        return about_machine(draft.user, "MigrationWaits", message, warning=True)
    places.ledger.take(node, draft.resource or "", draft.device.count)
    draft.migration = Reservation(uid=migration.uid, node_name=node)
    draft.tell("Reserved", f"GPUs on node {node} are reserved for migration {migration.name}", user=True)
    return None


def _under_way(draft: Draft, state: State) -> Sequence[Migration]:
    if not draft.user or not draft.in_use:
        return ()
    return state.migrations.get((draft.device.namespace, draft.user.vmi.name), ())


def _of(draft: Draft, under_way: Sequence[Migration]) -> Migration | None:
    return next((found for found in under_way if draft.migration and found.uid == draft.migration.uid), None)
