"""Accounting: how many GPUs of a node nobody has."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from controller.state import State
from controller.unread import Unread
from gpu.gpudevice import GPUDevice
from gpu.pod import Pod


class Ledger:
    """Free GPUs by node and resource name, over all classes.

    A plan only takes from it: what a plan gives back is free once the write that does so is known to be made.
    """

    def __init__(self, free: dict[tuple[str, str], int], unread: Sequence[Unread] = ()) -> None:
        self._free = free
        self._anywhere = [found for found in unread if found.nodes is None]
        self._unread: defaultdict[str, list[Unread]] = defaultdict(list)
        for found in unread:
            for node in found.nodes or ():
                self._unread[node].append(found)

    @classmethod
    def of(cls, state: State) -> "Ledger":
        """Free = allocatable - held - reserved - what unfinished pods there ask for beyond what is held for their VMI.

        A pod that waits for its node counts on the only one that it can be put on. Where something has GPUs, or may
        have some, that can't be read, none are free.
        """
        free = {
            (node.name, resource): amount
            for node in state.nodes.values()
            for resource, amount in node.allocatable.items()
        }
        covered = _covered(state.devices)
        for (node, resource, _), count in covered.items():
            free[node, resource] = free.get((node, resource), 0) - count
        for (node, resource, vmi), asked in _asked(state.pods).items():
            beyond = asked - (covered.get((node, resource, vmi), 0) if vmi else 0)
            if beyond > 0:
                free[node, resource] = free.get((node, resource), 0) - beyond
        return cls(free, [found for found in state.unread if found.has_gpus])

    def free(self, node: str, resource: str) -> int:
        """GPUs that nobody has; below zero where more are used than there are."""
        free = self._free.get((node, resource), 0)
        unread = (*self._anywhere, *self._unread.get(node, ())) if self._unread or self._anywhere else ()
        return min(0, free) if any(found.has(node, resource) for found in unread) else free

    def take(self, node: str, resource: str, count: int) -> None:
        """Count GPUs as somebody's."""
        self._free[node, resource] = self._free.get((node, resource), 0) - count


def _covered(devices: Iterable[GPUDevice]) -> dict[tuple[str, str, str], int]:
    """GPUs that devices hold or have reserved, by node, resource and the VMI that they are bound to, if any."""
    found: defaultdict[tuple[str, str, str], int] = defaultdict(int)
    for device in devices:
        if device.held:
            vmi = device.binding.uid if device.binding else ""
            for node in held_on(device):
                found[node, device.resource_name or "", vmi] += device.count
    return found


def held_on(device: GPUDevice) -> set[str]:
    """The nodes on which a held device has GPUs: its own, and the one reserved for a migration."""
    nodes = {device.node_name or ""}
    if device.migration:
        nodes.add(device.migration.node_name)
    return nodes


def _asked(pods: Iterable[Pod]) -> dict[tuple[str, str, str], int]:
    """GPUs that unfinished pods ask for, by node, resource and the VMI that owns them, if one does."""
    found: defaultdict[tuple[str, str, str], int] = defaultdict(int)
    for pod in pods:
        node = place_of(pod)
        if node and not pod.finished:
            for resource, amount in pod.resources.items():
                found[node, resource, pod.vmi_uid] += amount
    return found


def place_of(pod: Pod) -> str:
    """The node that a pod is on, or the only one that it can be put on; empty where there are more."""
    return pod.node_name or (next(iter(pod.nodes)) if len(pod.nodes) == 1 else "")
