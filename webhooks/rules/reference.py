"""Rules on the device that a VMI refers to."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from gpu import fields, names, template
from gpu.gpudevice import GPUDevice
from gpu.offer import Offer
from gpu.rewrite import Grant, granted
from gpu.template import DeviceTemplate
from gpu.vmi import REFERENCE_FIELD, read_marks
from webhooks.answer import Refusal, conflict, forbidden, invalid, merged
from webhooks.facts import Facts


class Claimant(NamedTuple):
    """The VMI that wants a device. ``uid`` is None in the mutating phase, where a VMI has none yet."""

    namespace: str
    name: str
    uid: str | None


def device_exists(device: GPUDevice | None, name: str, *, namespace: str) -> GPUDevice | Refusal:
    """The device that is referred to exists, in the VMI's own namespace."""
    if device is not None:
        return device
    return invalid(
        REFERENCE_FIELD,
        f"there is no GPUDevice {fields.clip(name)!r} in namespace {fields.clip(namespace)!r}",
        "order it there first, or name one of: kubectl get gpudevices",
        reason="FieldValueNotFound",
    )


def device_stays(device: GPUDevice, *, field: str = REFERENCE_FIELD) -> Refusal | None:
    """The device is not being deleted."""
    if not device.deleting:
        return None
    return forbidden(
        field, f"GPUDevice {device.name!r} is being deleted", "refer to another, or wait and order it anew"
    )


def device_is_free(facts: Facts, claimant: Claimant) -> Refusal | None:
    """The device is in use by no other VMI."""
    user = _other_user(facts, claimant)
    if user is None or facts.device is None:
        return None
    return conflict(
        REFERENCE_FIELD,
        f"GPUDevice {facts.device.name!r} is in use by VirtualMachineInstance {user!r}",
        "stop that VM first, or order another device"
        if user != claimant.name
        else "its pod of an earlier run still runs: virt-controller tries again once it is gone",
    )


def _other_user(facts: Facts, claimant: Claimant) -> str | None:
    """The name of another VMI that uses the device.

    In the mutating phase a VMI of the claimant's own name counts as itself, if it exists in truth: the claimant can't
    be created beside it. Memory may still have one that is gone, whose pod runs on.
    """
    if facts.device is None or facts.device.binding is None or not facts.in_use:
        return None
    binding = facts.device.binding
    if claimant.uid is None:
        exists = facts.holder is not None and facts.holder.uid == binding.uid
        return None if exists and facts.fresh and binding.name == claimant.name else binding.name
    return None if binding.uid == claimant.uid else binding.name


def template_devices_need_their_annotation(device: GPUDevice, wanted: DeviceTemplate | None) -> Refusal | None:
    """A template device is used only beside a device-template annotation that fits it."""
    if not device.from_template:
        return None
    if wanted is None:
        message = f"GPUDevice {device.name!r} was built from another VM's template and can't be referred to by name"
        return forbidden(REFERENCE_FIELD, message, "order a GPUDevice of your own, or use the annotation yourself")
    if device.fits(wanted.class_name, wanted.count):
        return None
    return forbidden(
        REFERENCE_FIELD,
        f"GPUDevice {device.name!r} is {device.count} of class {device.class_name!r}, "
        f"not the {wanted.count} of {fields.clip(wanted.class_name)!r} that the device-template annotation asks for",
        "take the label out: the annotation alone has the right device built",
    )


def one_way_of_ordering(device: GPUDevice, wanted: DeviceTemplate | None) -> Refusal | None:
    """A device-template annotation does not stand beside a reference to a device that a tenant ordered."""
    if wanted is None or device.from_template:
        return None
    message = f"refers to GPUDevice {device.name!r} while the annotation {names.DEVICE_TEMPLATE} orders another"
    return forbidden(REFERENCE_FIELD, message, "use one of the two")


def usable_device(facts: Facts, name: str, wanted: DeviceTemplate | None, claimant: Claimant) -> GPUDevice | Refusal:
    """The device exists, is not being deleted, fits the way it is ordered, and is in use by no other VMI."""
    device = device_exists(facts.device, name, namespace=claimant.namespace)
    if isinstance(device, Refusal):
        return device
    return (
        one_way_of_ordering(device, wanted)
        or template_devices_need_their_annotation(device, wanted)
        or device_stays(device)
        or device_is_free(facts, claimant)
        or device
    )


def idle_device(facts: Facts, name: str, wanted: DeviceTemplate, claimant: Claimant) -> GPUDevice | Refusal:
    """A template device that fits, is not being deleted and that no other VMI uses or refers to is kept or taken over.

    Referring counts as using: of two VMIs that share a device that is not bound yet, one would wait for ever.
    """
    device = usable_device(facts, name, wanted, claimant)
    other = next((vmi.name for vmi in facts.referrers if vmi.name != claimant.name), None)
    if isinstance(device, Refusal) or other is None:
        return device
    message = f"GPUDevice {name!r} is referred to by VirtualMachineInstance {other!r}"
    return conflict(REFERENCE_FIELD, message, "take the label out: the annotation alone has a device built")


def what_is_granted(device: GPUDevice, offer: Offer) -> Grant | Refusal:
    """What the device grants is known: it holds GPUs, or its class says of which resource they are."""
    grant = granted(device, offer.classes.get(device.class_name))
    return _nothing_to_grant(device.name, device.class_name) if grant is None else grant


def what_is_to_be_granted(wanted: DeviceTemplate, name: str, offer: Offer) -> Grant | Refusal:
    """What a new device is to grant is known: its class says of which resource its GPUs are."""
    gpu_class = offer.classes.get(wanted.class_name)
    if gpu_class is None or (resource := gpu_class.resource_name) is None:
        return _nothing_to_grant(name, wanted.class_name)
    return Grant(resource, wanted.count)


def _nothing_to_grant(name: str, class_name: str) -> Refusal:
    message = f"GPUDevice {name!r} holds nothing, and GPUClass {class_name!r} names no resource to grant"
    return forbidden(REFERENCE_FIELD, message, "order a device of a class that is offered: kubectl get gpuclasses")


def reference_is_kept(old: Mapping[str, Any], new: Mapping[str, Any]) -> Refusal | None:
    """The device-reference label and the device-template annotation of a VMI are never added, changed or dropped, by
    nobody.
    """
    old_marks, new_marks = read_marks(old), read_marks(new)
    fields_changed = [
        field
        for field, before, after in zip((REFERENCE_FIELD, template.FIELD), old_marks, new_marks, strict=True)
        if before != after
    ]
    return merged(
        forbidden(
            field, "can't be added, changed or dropped on a VMI", "set it on the VM's template and restart the VM"
        )
        for field in fields_changed
    )
