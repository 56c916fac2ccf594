"""Which node GPUs are held on."""

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from cluster import kinds
from controller.affinity import Terms, Toleration, matches, repelling
from controller.machine import ANYWHERE, Machine
from controller.node import Node
from controller.plan.ledger import Ledger
from controller.state import State
from gpu.gpuclass import GPUClass


class Wishes(NamedTuple):
    """Where a VMI can run; ``None`` in place of it is anywhere, also on nodes with taints."""

    node_selector: tuple[tuple[str, str], ...]
    terms: Terms | None
    tolerations: tuple[Toleration, ...]
    volumes: tuple[Terms, ...]


class Places:
    """The nodes on which devices can be held, and what is free there."""

    def __init__(self, state: State, ledger: Ledger) -> None:
        self._state = state
        self.ledger = ledger
        self._of_class: dict[str, dict[str, Node]] = {}
        self._pools: dict[tuple[str, str, Wishes | None], _Pool] = {}

    def of_class(self, gpu_class: GPUClass) -> Mapping[str, Node]:
        """The nodes that match a class's nodeSelector, by name."""
        found = self._of_class.get(gpu_class.name)
        if found is None:
            nodes = self._state.nodes.values() if gpu_class.source else ()
            selector = gpu_class.source.node_selector.items() if gpu_class.source else ()
            found = self._of_class[gpu_class.name] = {node.name: node for node in nodes if _has(node, selector)}
        return found

    def unfit(self, name: str, gpu_class: GPUClass, machine: Machine | None) -> str | None:
        """Why a device of the class can't be held on this node for this VMI, if it can't.

        The node is of the class, ready and schedulable, and the VMI can run there. Of one that can't be read nobody
        can tell: what is held there stays.
        """
        node = self._state.nodes.get(name)
        if node is None:
            return None if self._state.unread_named(kinds.NODES, name) else f"node {name} is gone"
        if node.trouble:
            return node.trouble
        if name not in self.of_class(gpu_class):
            return f"node {name} does not match the nodeSelector of GPUClass {gpu_class.name}"
        wishes = self._wishes(machine)
        if machine and wishes and (what := _unsuited(node, wishes)):
            return f"node {name} does not suit VirtualMachineInstance {machine.vmi.name}: {what}"
        return None

    def best(self, gpu_class: GPUClass, resource: str, count: int, machine: Machine | None) -> str | None:
        """The fit node with the fewest free GPUs that are enough, so that large orders still find room elsewhere."""
        return self._pool(gpu_class, resource, machine).best(count)

    def other(
        self,
        gpu_class: GPUClass,
        resource: str,
        count: int,
        machine: Machine,
        *,
        but: str,
        selector: Iterable[tuple[str, str]] = (),
    ) -> str | None:
        """The same, but for one node, and with more labels."""
        labels = tuple(selector)
        nodes = self._pool(gpu_class, resource, machine).nodes
        fit = (
            (free, name)
            for name, node in nodes.items()
            if name != but and (free := self.ledger.free(name, resource)) >= count and _has(node, labels)
        )
        return min(fit, default=(0, None))[1]

    def _wishes(self, machine: Machine | None) -> Wishes | None:
        if machine is None:
            return None
        placement = machine.placement
        if placement is ANYWHERE:
            return _ANY
        volumes = (self._state.volumes.get((machine.vmi.namespace, claim)) for claim in placement.claims)
        reach = tuple(terms for terms in volumes if terms is not None)
        return Wishes(placement.node_selector, placement.terms, placement.tolerations, reach)

    def _pool(self, gpu_class: GPUClass, resource: str, machine: Machine | None) -> "_Pool":
        wishes = self._wishes(machine)
        key = (gpu_class.name, resource, wishes)
        if key not in self._pools:
            nodes = self.of_class(gpu_class).items()
            fit = {
                name: node
                for name, node in nodes
                if not node.trouble and not (wishes is not None and _unsuited(node, wishes))
            }
            self._pools[key] = _Pool(fit, resource, self.ledger)
        return self._pools[key]


_ANY = Wishes((), None, (), ())


def _has(node: Node, labels: Iterable[tuple[str, str]]) -> bool:
    return all(node.labels.get(key) == value for key, value in labels)


def _unsuited(node: Node, wishes: Wishes) -> str | None:
    """What of a VMI's wishes a node does not meet."""
    if not _has(node, wishes.node_selector):
        return "its nodeSelector"
    if wishes.terms is not None and not matches(wishes.terms, labels=node.labels, node=node.name):
        return "its required node affinity"
    if node.taints and (taint := repelling(node.taints, wishes.tolerations)):
        return f"it does not tolerate the taint {taint.key}:{taint.effect}"
    if not all(matches(terms, labels=node.labels, node=node.name) for terms in wishes.volumes):
        return "one of its volumes can't be reached from there"
    return None


class _Pool:
    """Fit nodes, found by how many GPUs are free there.

    A node may have fewer by now than the heap that it is in says, never more: it is put right when it comes up.
    """

    def __init__(self, nodes: dict[str, Node], resource: str, ledger: Ledger) -> None:
        self.nodes = nodes
        self._resource = resource
        self._ledger = ledger
        self._by_free: dict[int, list[str]] = {}
        for name in nodes:
            if (free := ledger.free(name, resource)) > 0:
                self._by_free.setdefault(free, []).append(name)
        for names in self._by_free.values():
            heapify(names)
        self._too_many: int | None = None
        self._given: int | None = None

    def best(self, count: int) -> str | None:
        if self._too_many is not None and count >= self._too_many:
            return None
        if self._given is not None:
            self._settle(self._given)
            self._given = None
        while (size := min((size for size, names in self._by_free.items() if names and size >= count), default=0)) > 0:
            if not self._settle(size):
                self._given = size
                return self._by_free[size][0]
        self._too_many = count
        return None

    def _settle(self, size: int) -> bool:
        """Put the first node of a heap where it belongs; whether it was in the wrong one."""
        name = self._by_free[size][0]
        free = self._ledger.free(name, self._resource)
        if free == size:
            return False
        heappop(self._by_free[size])
        if free > 0:
            heappush(self._by_free.setdefault(free, []), name)
        return True
