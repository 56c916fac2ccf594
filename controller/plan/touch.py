"""VMIs whose device has become theirs."""

from cluster import kinds
from controller.plan.draft import Draft
from controller.writes import Target, Write
from gpu import names


def touch(draft: Draft, *, after: Target | None) -> Write | None:
    """When a device becomes held and bound, its VMI is touched, and virt-controller, which had been refused the pod,
    tries again at once."""
    user, binding = draft.user, draft.binding
    if not draft.held or draft.pods or user is None or binding is None:
        return None
    if binding.uid != user.vmi.uid or not user.may_be_bound:
        return None
    text = f"{draft.node} {draft.held_at}"
    if user.told == text:
        return None
    return Write(
        kind=kinds.VMIS,
        verb="merge",
        namespace=user.vmi.namespace,
        name=user.vmi.name,
        body={"metadata": {"annotations": {names.DEVICE_HELD: text}}},
        uid=user.vmi.uid,
        after=after,
        why=f"GPUDevice {draft.device.name} is held for it, so that virt-controller tries again at once",
    )
