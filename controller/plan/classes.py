"""GPUClasses: their finalizer, and what they have."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from cluster import kinds
from controller.plan.draft import Draft
from controller.plan.places import Places
from controller.state import State
from controller.writes import Figures, Write
from gpu import names
from gpu.condition import Condition, of_type
from gpu.gpuclass import GPUClass


def figures(state: State, drafts: Iterable[Draft], places: Places) -> dict[str, Figures]:
    """Capacity, held, free and pending of every class."""
    held: defaultdict[str, int] = defaultdict(int)
    pending: defaultdict[str, int] = defaultdict(int)
    for draft in drafts:
        if draft.held:
            held[draft.device.class_name] += draft.device.count
        elif not draft.device.deleting:
            pending[draft.device.class_name] += draft.device.count
    found = {}
    for name, gpu_class in state.classes.items():
        resource = gpu_class.resource_name or ""
        nodes = places.of_class(gpu_class).values()
        found[name] = Figures(
            capacity=sum(node.allocatable.get(resource, 0) for node in nodes),
            held=held[name],
            free=sum(max(0, places.ledger.free(node.name, resource)) for node in nodes if not node.trouble),
            pending=pending[name],
        )
    return found


def finalizer_write(gpu_class: GPUClass, *, held: bool, known: frozenset[str]) -> Write | None:
    """Every class has our finalizer; one that is being deleted loses it when no device is held of it.

    Not before the names that it sold are remembered: they stay when it goes.
    """
    if not gpu_class.deleting and not gpu_class.guarded:
        wanted = [*gpu_class.finalizers, names.CLASS_FINALIZER]
        why = "it may not vanish while a device is held of it"
    elif gpu_class.deleting and gpu_class.guarded and not held and known.issuperset(gpu_class.resource_names):
        wanted = [name for name in gpu_class.finalizers if name != names.CLASS_FINALIZER]
        why = "it is being deleted, and no device is held of it"
    else:
        return None
    return Write(
        kind=kinds.GPU_CLASSES,
        verb="merge",
        name=gpu_class.name,
        body={"metadata": {"finalizers": wanted}},
        version=gpu_class.resource_version or "",
        why=why,
    )


def class_status_write(gpu_class: GPUClass, found: Figures, state: State, published: frozenset[str]) -> Write | None:
    """A class tells its capacity, what is held and free, and every resource name that it ever sold."""
    sold = sorted(set(gpu_class.resource_names))
    ready = _ready(gpu_class, found, published)
    conditions = tuple(c for c in gpu_class.conditions if c.type != "Ready")
    conditions = (*conditions, ready.dated(of_type(gpu_class.conditions, "Ready"), now=state.stamp))
    stored: Mapping[str, Any] = {
        "capacity": gpu_class.capacity,
        "held": gpu_class.held,
        "free": gpu_class.free,
        "resourceNames": sorted(gpu_class.sold),
    }
    wanted = {"capacity": found.capacity, "held": found.held, "free": found.free, "resourceNames": sold}
    patch: dict[str, Any] = {key: value for key, value in wanted.items() if value != stored[key]}
    if set(conditions) != set(gpu_class.conditions):
        patch["conditions"] = [condition.as_dict() for condition in conditions]
    if not patch:
        return None
    return Write(
        kind=kinds.GPU_CLASSES,
        verb="status",
        name=gpu_class.name,
        body={"status": patch},
        version=gpu_class.resource_version or "",
        why="it tells what it has",
    )


def _ready(gpu_class: GPUClass, found: Figures, published: frozenset[str]) -> Condition:
    def ready(status: str, reason: str, message: str) -> Condition:
        return Condition(type="Ready", status=status, reason=reason, message=message)

    if gpu_class.deleting:
        return ready("False", "Deleting", "it is being deleted: it goes when no GPUDevice is held of it")
    if gpu_class.source is None:
        return ready("False", "SourceNotSupported", "its kind of source is not known to this release")
    if gpu_class.resource_name not in published:
        return ready("False", "NotPublished", f"{gpu_class.resource_name} is not published as a GPU's name")
    if not found.capacity:
        message = f"no node that its nodeSelector selects has {gpu_class.resource_name}: is the device plugin running?"
        return ready("False", "NoNodes", message)
    return ready("True", "Offered", "it can be ordered")
