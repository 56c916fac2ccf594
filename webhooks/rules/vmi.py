"""Rules on how a VMI asks for GPUs."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from itertools import islice

from gpu import names, template
from gpu.gpuclass import is_extended
from gpu.offer import Offer
from gpu.rewrite import Grant
from gpu.vmi import DEVICES, VMISpec
from webhooks.answer import Cause, Refusal, forbidden, unavailable

_ORDER: str = (
    f"order a GPUDevice and refer to it by the label {names.DEVICE_REFERENCE}, "
    f"or set the annotation {names.DEVICE_TEMPLATE} on the VM's template"
)


def template_reached_the_mutating_path(vmi: VMISpec) -> Refusal | None:
    """A VMI with the device-template annotation has the device-reference label, since the mutating path stamps it."""
    if vmi.template is None or vmi.reference is not None:
        return None
    message = "orders a device, but none was built: the mutating webhook of gpu-webhooks was not called"
    return forbidden(template.FIELD, message, "ask the platform's operator to look at its webhook configuration")


def no_gpus_by_raw_name(vmi: VMISpec, gpu_names: AbstractSet[str]) -> Refusal | None:
    """A VMI without a device has no ``gpus`` entry at all, and no GPU resource name in ``hostDevices`` or in
    ``domain.resources``.
    """
    causes = [Cause(entry.path, _asked(entry.device_name)) for entry in vmi.entries(gpu_names)]
    causes += [Cause(amount.path, _asked(amount.resource_name)) for amount in vmi.gpu_amounts(gpu_names)]
    if not causes:
        return None
    return Refusal(code=403, reason="Forbidden", causes=tuple(causes), advice=_ORDER)


def _asked(resource_name: str | None) -> str:
    return f"asks for {resource_name!r} by its raw name" if resource_name else "asks for a GPU by a resource claim"


def names_can_be_judged(vmi: VMISpec, offer: Offer) -> Refusal | None:
    """While the settings are missing, a VMI with a resource name that might be a GPU's can't be judged."""
    return settings_are_there(offer, [name for name in vmi.resource_names() if is_extended(name)])


def settings_are_there(offer: Offer, asked: Iterable[str]) -> Refusal | None:
    """Names that no class sells are judged by the settings, so these have to be there."""
    unknown = sorted(name for name in asked if name not in offer.names)
    if offer.settings is not None or not unknown:
        return None
    message = f"whether {unknown[0]!r} is a GPU can't be told: the ConfigMap {names.SETTINGS} is missing"
    return unavailable(message, "try again once the GPU controller has published it")


def no_more_entries_than_granted(vmi: VMISpec, grant: Grant, gpu_names: AbstractSet[str]) -> Refusal | None:
    """A VMI has no more GPU entries than its device grants."""
    asked = vmi.count(gpu_names)
    if asked <= grant.count:
        return None
    first = next(islice(vmi.entries(gpu_names), grant.count, None))
    message = f"is GPU entry {grant.count + 1} of {asked}, and the device grants {grant.count}"
    return forbidden(first.path, message, "take entries out, or order a device of more GPUs")


def entries_are_what_is_granted(vmi: VMISpec, grant: Grant, gpu_names: AbstractSet[str]) -> Refusal | None:
    """The GPU entries of ``gpus`` and ``hostDevices`` together are exactly what the device grants."""
    if refusal := no_more_entries_than_granted(vmi, grant, gpu_names):
        return refusal
    entries = list(vmi.entries(gpu_names))
    for entry in entries:
        if entry.device_name != grant.resource_name:
            message = f"asks for {entry.device_name or 'no device'!r}, and the device grants {grant.resource_name!r}"
            return forbidden(
                f"{entry.path}.deviceName", message, f"ask for {grant.resource_name}, or leave entries out"
            )
    if len(entries) < grant.count:
        message = f"the VMI has {len(entries)} GPU entries, and the device grants {grant.count}: some were taken out"
        return forbidden(f"{DEVICES}.gpus", message, "look for another mutating webhook that edits them")
    return None


def no_claims_for_gpus(vmi: VMISpec, gpu_names: AbstractSet[str]) -> Refusal | None:
    """No GPU entry asks by a resource claim; a ``hostDevices`` entry that only has a claim is none."""
    for entry in vmi.entries(gpu_names):
        if entry.by_claim:
            message = "asks by a resource claim, and what a device grants is asked for by deviceName"
            return forbidden(entry.path, message, "take claimName and requestName out")
    return None


def no_gpus_in_resources(vmi: VMISpec, gpu_names: AbstractSet[str]) -> Refusal | None:
    """No GPU resource name stands in ``domain.resources``: it would override the count that KubeVirt adds up."""
    causes = [
        Cause(amount.path, f"{amount.resource_name!r} is added by KubeVirt itself, for each GPU entry")
        for amount in vmi.gpu_amounts(gpu_names)
    ]
    if not causes:
        return None
    return Refusal(code=403, reason="Forbidden", causes=tuple(causes), advice="take it out")
