"""What has to be remembered from one snapshot to the next, because no object says it.

After a restart it is empty: what waits for a time then waits for all of it again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from controller.machine import Machine
from gpu.gpudevice import GPUDevice
from gpu.pod import Pod
from gpu.usage import in_use


@dataclass(frozen=True, slots=True)
class Seen:
    """By the uid of a device.

    ``left`` has the devices that a VMI came for, and since when none is there any more: None while one is.
    ``owners`` has the controller owner's uid of the VMI that used it last.
    """

    left: Mapping[str, datetime | None] = field(default_factory=dict)
    owners: Mapping[str, str] = field(default_factory=dict)


def observe(
    before: Seen,
    devices: Iterable[GPUDevice],
    *,
    machines: Mapping[tuple[str, str], Machine],
    referrers: Mapping[tuple[str, str], Sequence[Machine]],
    pods_of: Mapping[str, Sequence[Pod]],
    now: datetime,
) -> Seen:
    """What is to be remembered of this snapshot, with what was remembered before."""
    left: dict[str, datetime | None] = {}
    owners: dict[str, str] = {}
    for device in devices:
        uid, binding = device.uid or "", device.binding
        user = machines.get((device.namespace, binding.name)) if binding else None
        if binding and user and user.vmi.uid == binding.uid:
            if user.vmi.owner_uid:
                owners[uid] = user.vmi.owner_uid
        elif uid in before.owners:
            owners[uid] = before.owners[uid]
        if not device.from_template:
            continue
        if (device.namespace, device.name) in referrers or (
            binding and in_use(device, vmi=user.vmi if user else None, pods=pods_of.get(binding.uid, ()))
        ):
            left[uid] = None
        elif uid in before.left or binding:
            left[uid] = before.left.get(uid) or now
    return Seen(left, owners)
