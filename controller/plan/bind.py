"""Which VMI a held device is for."""

from collections.abc import Iterator

from controller.plan.draft import Draft, about_machine
from controller.writes import Event
from gpu.gpudevice import Binding


def bind(draft: Draft) -> None:
    """A held device is bound to the VMI that goes first, which is the one that it is bound to while it is used."""
    if not draft.held or draft.user is None or draft.device.deleting:
        return
    vmi = draft.user.vmi
    if draft.binding is None or draft.binding.uid != vmi.uid:
        draft.binding = Binding(name=vmi.name, uid=vmi.uid)
        draft.tell("Bound", f"GPUDevice {draft.device.name} is VirtualMachineInstance {vmi.name}'s", user=True)


def rivals(draft: Draft) -> Iterator[Event]:
    """A VMI that refers to a device which another VMI has is told which one."""
    if not draft.binding or not (draft.in_use or draft.held):
        return
    for machine in draft.referrers:
        if machine.vmi.uid != draft.binding.uid and machine.may_be_bound:
            message = (
                f"GPUDevice {draft.device.name} is in use by VirtualMachineInstance {draft.binding.name}:"
                " stop that VM, or order another device"
            )
            yield about_machine(machine, "DeviceInUse", message, warning=True)
