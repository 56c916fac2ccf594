"""Held devices that can't stay where they are."""

from controller.plan.draft import Draft
from controller.plan.places import Places


def lost(draft: Draft, places: Places, published: frozenset[str]) -> str | None:
    """A device without a pod whose node is gone, cordoned or not ready, does not suit the VMI that binds, or no longer
    matches its class, goes back to waiting; so does one that no VMI refers to when its class sells another resource.
    Where what uses it can't be read, it stays.

    Returns why it can't stay.
    """
    gpu_class = draft.gpu_class
    if not draft.held or draft.device.deleting or draft.pods or draft.unread:
        return None
    if gpu_class is None or gpu_class.source is None:
        return None
    if why := places.unfit(draft.node or "", gpu_class, draft.user):
        return why
    resource = gpu_class.source.resource_name
    if draft.resource != resource and resource in published and not draft.in_use and not draft.referrers:
        return f"GPUClass {gpu_class.name} sells {resource} now, not {draft.resource}"
    return None
