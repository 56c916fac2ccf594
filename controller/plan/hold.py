"""The holding of devices: which order is next, whether it may be held, and where."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from cluster import kinds
from controller.plan.agenda import Agenda
from controller.plan.draft import Draft
from controller.plan.places import Places
from controller.state import State
from gpu import fields
from gpu.condition import Condition, of_type
from gpu.gpuclass import MOST_GPUS, GPUClass

DISPLACED: Final = "Displaced"
"""Condition of a device that was held and lost its GPUs: it is first in the queue until it is held again."""

PATIENCE: Final = 5.0
"""Seconds for which nothing is written of a wait that usually ends by itself."""


class Wait(NamedTuple):
    """Why a device is not held; a ``brief`` wait usually ends by itself."""

    reason: str
    message: str
    brief: bool = False

    def condition(self) -> Condition:
        """As it stands in a status."""
        return Condition(type="Held", status="False", reason=self.reason, message=self.message)


class Holding:
    """Holds devices one after the other, and keeps count of what each namespace has."""

    def __init__(self, state: State, places: Places, published: frozenset[str], agenda: Agenda) -> None:
        self._state = state
        self._places = places
        self._published = published
        self._agenda = agenda
        self._of_namespace: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._unread = [one for one in state.unread if one.kind == kinds.GPU_DEVICES and one.has_gpus]

    def hold(self, drafts: Iterable[Draft]) -> None:
        """Oldest first, and before them those that lost what they held; a younger order may pass one without room."""
        queue = []
        for draft in drafts:
            if draft.held:
                self._of_namespace[draft.device.namespace, draft.device.class_name] += draft.device.count
            if not draft.device.deleting and (draft.lost or not draft.held):
                queue.append(draft)
        for draft in sorted(queue, key=self._turn):
            if draft.held:
                self._move(draft)
            else:
                self._try(draft)

    def _turn(self, draft: Draft) -> tuple[bool, float, str, str]:
        device = draft.device
        created = device.created or self._state.now
        return not (draft.lost or _displaced(draft)), created.timestamp(), device.namespace, device.name

    def _move(self, draft: Draft) -> None:
        """A device that can't stay is held on another node in the same write, where one has room."""
        gpu_class, device = draft.gpu_class, draft.device
        if gpu_class is None or draft.lost is None:
            return
        resource = draft.resource if draft.in_use or draft.referrers else gpu_class.resource_name
        node = self._places.best(gpu_class, resource or "", device.count, draft.user) if resource else None
        if node and resource:
            self._places.ledger.take(node, resource, device.count)
            draft.tell("Moved", f"moved from node {draft.node} to {node}: {draft.lost}", user=True)
            draft.node, draft.resource = node, resource
            return
        draft.displaced = Condition(type=DISPLACED, status="True", reason="LostItsNode", message=draft.lost)
        draft.tell("Displaced", f"its GPUs are given up: {draft.lost}", warning=True, user=True)
        draft.node = draft.resource = draft.held_at = draft.migration = None
        self._of_namespace[device.namespace, device.class_name] -= device.count
        draft.waiting = (self._refusal(draft) or self._no_room(draft, gpu_class)).condition()

    def _try(self, draft: Draft) -> None:
        device = draft.device
        draft.displaced = _displaced(draft)
        wait = self._refusal(draft)
        gpu_class = draft.gpu_class
        if wait is None and gpu_class and gpu_class.resource_name:
            resource = gpu_class.resource_name
            node = self._places.best(gpu_class, resource, device.count, draft.user)
            if node:
                self._places.ledger.take(node, resource, device.count)
                self._of_namespace[device.namespace, device.class_name] += device.count
                self._held(draft, node, resource)
                return
            wait = self._no_room(draft, gpu_class)
        if wait and (not wait.brief or self._agenda.is_past(device.created, PATIENCE)):
            draft.waiting = wait.condition()
            stored = of_type(device.conditions, "Held")
            if stored is None or stored.status != "False" or stored.reason != wait.reason:
                draft.tell("Waiting", f"{wait.reason}: {wait.message}", warning=not wait.brief, user=True)

    def _held(self, draft: Draft, node: str, resource: str) -> None:
        draft.node, draft.resource = node, resource
        draft.held_at = self._state.stamp
        began = fields.time(draft.displaced.since) if draft.displaced else draft.device.created
        if began:
            draft.waited = max(0.0, (self._state.now - began).total_seconds())
        draft.displaced = None
        draft.tell("Held", f"{draft.device.count} of {resource} on node {node} are held")

    def _refusal(self, draft: Draft) -> Wait | None:
        """Why an order may not be held, whatever is free."""
        gpu_class = draft.gpu_class
        if gpu_class is None:
            return class_is_there(draft, self._state)
        return (
            class_sells(gpu_class)
            or order_is_not_too_large(draft, gpu_class)
            or namespace_may_have_more(draft, gpu_class, self._held_by_namespace(draft))
            or template_waits_for_its_vmi(draft)
            or class_is_ready(gpu_class, self._published)
        )

    def _held_by_namespace(self, draft: Draft) -> int:
        """GPUs that the device's namespace holds of its class; a device that can't be read may have any number."""
        at = draft.device.namespace, draft.device.class_name
        unread = sum(one.namespace == at[0] and one.of_class in {at[1], None} for one in self._unread)
        return self._of_namespace[at] + MOST_GPUS * unread

    def _no_room(self, draft: Draft, gpu_class: GPUClass) -> Wait:
        device, resource = draft.device, gpu_class.resource_name or ""
        anywhere = self._places.best(gpu_class, resource, device.count, None) if draft.user else None
        if draft.user and anywhere:
            suits = f"none of those with {device.count} free suits VirtualMachineInstance {draft.user.vmi.name}"
            what = "its nodeSelector, node affinity, tolerations and volumes say where it can run"
            return Wait("NoCapacity", f"{suits}: {what}")
        return Wait(
            "NoCapacity",
            f"no node of GPUClass {gpu_class.name} that is ready has {device.count} free: it is held when that changes",
        )


def class_is_there(draft: Draft, state: State) -> Wait:
    """Nothing is held of a class that is not there, or that can't be read."""
    name = draft.device.class_name
    if found := state.unread_named(kinds.GPU_CLASSES, name):
        return Wait("ClassNotReadable", f"GPUClass {name} can't be read: {found.why}; the platform has to put it right")
    return Wait("ClassNotFound", f"there is no GPUClass {name}: delete the order and place another")


def class_sells(gpu_class: GPUClass) -> Wait | None:
    """A pending order of a class that is being deleted is never held, nor one of a source that is not known here."""
    if gpu_class.deleting:
        return Wait("ClassDeleting", f"GPUClass {gpu_class.name} is being deleted: order of another class")
    if gpu_class.source is None:
        return Wait("ClassNotSupported", f"the source of GPUClass {gpu_class.name} is of a kind that is not known here")
    return None


def order_is_not_too_large(draft: Draft, gpu_class: GPUClass) -> Wait | None:
    """A device has at most as many GPUs as its class allows."""
    if draft.device.count <= gpu_class.max_count:
        return None
    message = f"GPUClass {gpu_class.name} allows {gpu_class.max_count} a device: order several devices"
    return Wait("CountAboveMaximum", message)


def namespace_may_have_more(draft: Draft, gpu_class: GPUClass, held: int) -> Wait | None:
    """A namespace holds at most ``maxPerNamespace`` GPUs of a class."""
    most = gpu_class.max_per_namespace
    if most is None or held + draft.device.count <= most:
        return None
    message = f"the namespace may hold {most} GPUs of GPUClass {gpu_class.name}: delete a GPUDevice, or ask for more"
    return Wait("QuotaExceeded", message)


def template_waits_for_its_vmi(draft: Draft) -> Wait | None:
    """A device from a template is held only once its VMI exists."""
    if not draft.device.from_template or draft.in_use or draft.user:
        return None
    return Wait("NoVirtualMachine", "the VirtualMachineInstance that it was made for does not exist", brief=True)


def class_is_ready(gpu_class: GPUClass, published: frozenset[str]) -> Wait | None:
    """A device is held only when its class's finalizer is stored and the resource name is published."""
    if not gpu_class.guarded:
        return Wait("ClassNotReady", f"GPUClass {gpu_class.name} is not protected yet by our finalizer", brief=True)
    if gpu_class.resource_name not in published:
        return Wait("NotPublished", f"{gpu_class.resource_name} is not published yet as a GPU's name", brief=True)
    return None


def _displaced(draft: Draft) -> Condition | None:
    return of_type(draft.device.conditions, DISPLACED)
