"""Who uses a device."""

from collections.abc import Iterable

from gpu.gpudevice import GPUDevice
from gpu.pod import Pod
from gpu.vmi import VMI


def in_use(device: GPUDevice, *, vmi: VMI | None, pods: Iterable[Pod]) -> bool:
    """Whether the device is in use: its binding's VMI exists, or a pod of that VMI is not finished.

    ``vmi`` is the VMI that has the binding's name now, ``pods`` those whose controller owner is the binding's uid.
    Labels never decide it.
    """
    if device.binding is None:
        return False
    if vmi is not None and vmi.uid == device.binding.uid:
        return True
    return any(not pod.finished and pod.vmi_uid == device.binding.uid for pod in pods)


def idle_template_devices(devices: Iterable[GPUDevice], vmis: Iterable[VMI]) -> int:
    """How many of a namespace's template devices have no VMI: none refers to them, none that exists is bound."""
    referred, existing = set(), set()
    for vmi in vmis:
        referred.add(vmi.device)
        existing.add(vmi.uid)
    return sum(
        device.from_template
        and device.name not in referred
        and (device.binding is None or device.binding.uid not in existing)
        for device in devices
    )
