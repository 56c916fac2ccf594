"""A device as a plan finds it, and as the plan wants it."""

from dataclasses import dataclass, field
from datetime import datetime

from cluster import kinds
from controller.machine import Machine
from controller.state import State
from controller.unread import concerns, uses
from controller.writes import Event
from gpu.condition import Condition
from gpu.gpuclass import GPUClass
from gpu.gpudevice import Binding, GPUDevice, Reservation
from gpu.pod import Pod
from gpu.usage import in_use


@dataclass(slots=True, kw_only=True)
class Draft:
    """``device`` is as stored; the fields below ``in_use`` are as wanted, and begin as stored.

    ``user`` is the VMI that has it or is the next to have it, ``rivals`` whether others refer to it too; ``pods`` are
    the unfinished ones of the VMI of its binding; ``unread`` is whether something that can't be read uses it, or may;
    ``lost`` is why it can't stay where it is held, if it can't.
    """

    device: GPUDevice
    gpu_class: GPUClass | None
    user: Machine | None
    referrers: tuple[Machine, ...]
    pods: tuple[Pod, ...]
    in_use: bool
    unread: bool
    resource: str | None
    node: str | None
    held_at: str | None
    binding: Binding | None
    migration: Reservation | None
    waiting: Condition | None = None
    displaced: Condition | None = None
    lost: str | None = None
    waited: float | None = None
    events: list[Event] = field(default_factory=list)

    @property
    def held(self) -> bool:
        """Whether it is wanted to be held."""
        return bool(self.node and self.resource)

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.device.namespace, self.device.name

    def tell(self, reason: str, message: str, *, warning: bool = False, user: bool = False) -> None:
        """Tell of it on the device, and on its VMI where ``user`` says so."""
        self.events.append(about_device(self.device, reason, message, warning=warning))
        if user and self.user:
            self.events.append(about_machine(self.user, reason, message, warning=warning))


def about_device(device: GPUDevice, reason: str, message: str, *, warning: bool = False) -> Event:
    """Something to tell about a device."""
    return Event(
        kind=kinds.GPU_DEVICES,
        namespace=device.namespace,
        name=device.name,
        uid=device.uid or "",
        reason=reason,
        message=message,
        type="Warning" if warning else "Normal",
    )


def about_machine(machine: Machine, reason: str, message: str, *, warning: bool = False) -> Event:
    """Something to tell about a VMI."""
    return Event(
        kind=kinds.VMIS,
        namespace=machine.vmi.namespace,
        name=machine.vmi.name,
        uid=machine.vmi.uid,
        reason=reason,
        message=message,
        type="Warning" if warning else "Normal",
    )


def draft_of(device: GPUDevice, state: State) -> Draft:
    """A device with what concerns it."""
    binding = device.binding
    found = state.machines.get((device.namespace, binding.name)) if binding else None
    bound = found if found and binding and found.vmi.uid == binding.uid else None
    pods = tuple(state.pods_of.get(binding.uid, ())) if binding else ()
    unread = [one for one in state.unread_users.get(device.namespace, ()) if concerns(one, device)]
    used = in_use(device, vmi=bound.vmi if bound else None, pods=pods) or any(uses(one, device) for one in unread)
    referrers = tuple(state.referrers.get((device.namespace, device.name), ()))
    held = device.held
    return Draft(
        device=device,
        gpu_class=state.classes.get(device.class_name),
        user=bound if used else next_user(device, referrers, state),
        referrers=referrers,
        pods=pods,
        in_use=used,
        unread=bool(unread),
        resource=device.resource_name if held else None,
        node=device.node_name if held else None,
        held_at=device.held_at if held else None,
        binding=binding,
        migration=device.migration if held else None,
    )


def next_user(device: GPUDevice, referrers: tuple[Machine, ...], state: State) -> Machine | None:
    """A VMI of the same controller owner goes first, then the oldest.

    Whose VMI used the device before is remembered; after a restart the name tells, which a VM's VMIs share.
    """
    candidates = [machine for machine in referrers if machine.may_be_bound] if not device.deleting else []
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    owner = state.seen.owners.get(device.uid or "")
    name = device.binding.name if device.binding else None

    def turn(machine: Machine) -> tuple[bool, bool, datetime, str]:
        same_owner = machine.vmi.owner_uid == owner if owner else machine.vmi.name == name
        return not same_owner, machine.created is None, machine.created or state.now, machine.vmi.name

    return min(candidates, key=turn)
