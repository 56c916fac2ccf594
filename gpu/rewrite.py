"""The rewrite of a VMI's GPU requests to what its device grants, as JSON patch operations."""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import count
from typing import Final, NamedTuple

from gpu import names, patch
from gpu.gpuclass import GPUClass
from gpu.gpudevice import GPUDevice
from gpu.patch import Operation
from gpu.vmi import DEVICES, RESOURCES, Entry, VMISpec

_LABEL: Final = patch.pointer("metadata", "labels", names.DEVICE_REFERENCE)


# Not frozen, for speed; nothing changes one.
@dataclass(slots=True)
class Grant:
    """What a device grants: ``count`` GPUs of one extended resource."""

    resource_name: str
    count: int

    def with_names(self, gpu_names: AbstractSet[str]) -> AbstractSet[str]:
        """The GPU resource names with the granted one: what a device holds is a GPU, whatever is published by now."""
        return gpu_names if self.resource_name in gpu_names else gpu_names | {self.resource_name}


def granted(device: GPUDevice, gpu_class: GPUClass | None) -> Grant | None:
    """What a device grants: of the resource it holds, else of its class's; None where neither is known."""
    name = device.resource_name if device.held else gpu_class and gpu_class.resource_name
    return Grant(name, device.count) if name else None


class Rewrite(NamedTuple):
    """The operations, in order, and a line for each kind of change that they make."""

    operations: list[Operation]
    changes: list[str]


def rewrite(vmi: VMISpec, *, grant: Grant, gpu_names: AbstractSet[str]) -> Rewrite:
    """Make a VMI ask for exactly what is granted, with as little change as can be.

    Each GPU entry keeps its place and all but its device's name and its claim; missing ones are added to ``gpus``;
    GPU resource names in ``domain.resources`` go, since KubeVirt adds up the right ones itself. The VMI must not have
    more entries than are granted. Applied to its own result it changes nothing.
    """
    entries = list(vmi.entries(gpu_names))
    result = Rewrite([], [])
    if entries:
        _rename(entries, grant, result)
    if grant.count > len(entries):
        _add_missing(vmi, grant, grant.count - len(entries), result)
    if vmi.amounts:
        _drop_amounts(vmi, gpu_names, result)
    if vmi.resource_claims:
        _drop_claims(vmi, entries, result)
    return result


def _rename(entries: list[Entry], grant: Grant, result: Rewrite) -> None:
    for entry in entries:
        if entry.device_name != grant.resource_name:
            result.operations.append(patch.add(f"{entry.pointer}/deviceName", grant.resource_name))
            result.changes.append(f"{entry.path} now asks for {grant.resource_name}")
        dropped = [key for key in ("claimName", "requestName") if key in entry.value]
        if dropped:
            result.operations.extend(patch.remove(f"{entry.pointer}/{key}") for key in dropped)
            result.changes.append(f"{entry.path}: dropped {' and '.join(dropped)}")


def _free_names(vmi: VMISpec) -> Iterator[str]:
    taken = {entry.get("name") for entry in (*vmi.gpus, *vmi.host_devices)}
    return (name for index in count() if (name := f"gpu-{index}") not in taken)


def _add_missing(vmi: VMISpec, grant: Grant, missing: int, result: Rewrite) -> None:
    added = [
        {"name": name, "deviceName": grant.resource_name}
        for name, _ in zip(_free_names(vmi), range(missing), strict=False)
    ]
    if isinstance(vmi.gpus, list):
        path = "/spec/domain/devices/gpus/-"
        result.operations.extend(patch.add(path, entry) for entry in added)
    else:
        result.operations.append(patch.put(vmi.obj, ("spec", "domain", "devices", "gpus"), added))
    result.changes.append(f"{DEVICES}.gpus: added {missing} of {grant.resource_name}")


def _drop_amounts(vmi: VMISpec, gpu_names: AbstractSet[str], result: Rewrite) -> None:
    for amount in vmi.gpu_amounts(gpu_names):
        at = patch.pointer("spec", "domain", "resources", amount.list_name, amount.resource_name)
        result.operations.append(patch.remove(at))
        result.changes.append(f"{RESOURCES}.{amount.list_name}: dropped {amount.resource_name}")


def _drop_claims(vmi: VMISpec, entries: list[Entry], result: Rewrite) -> None:
    lost = {claim for entry in entries if (claim := entry.value.get("claimName"))}
    if not lost:
        return
    rewritten = {id(entry.value) for entry in entries}
    lost -= {entry.get("claimName") for entry in vmi.host_devices if id(entry) not in rewritten}
    lost -= set(vmi.network_claims())
    for index in reversed(range(len(vmi.resource_claims))):
        name = vmi.resource_claims[index].get("name")
        if isinstance(name, str) and name in lost:
            result.operations.append(patch.remove(patch.pointer("spec", "resourceClaims", index)))
            result.changes.append(f"spec.resourceClaims: dropped {name}")


def stamp(vmi: VMISpec, device: str) -> Operation | None:
    """The operation that sets the device-reference label; None where it has that value already."""
    if vmi.reference == device:
        return None
    if vmi.metadata.get("labels") is not None:
        return patch.add(_LABEL, device)
    return patch.put(vmi.obj, ("metadata", "labels", names.DEVICE_REFERENCE), device)
