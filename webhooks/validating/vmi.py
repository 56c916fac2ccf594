"""VirtualMachineInstance, CREATE and UPDATE."""

from collections.abc import Set as AbstractSet

from gpu import fields, template
from gpu.gpudevice import GPUDevice
from gpu.offer import Offer
from gpu.rewrite import Grant
from gpu.template import DeviceTemplate, read_template
from gpu.vmi import VMISpec
from webhooks.answer import Refusal, merged
from webhooks.context import Context
from webhooks.facts import Facts, judged, judged_by_offer
from webhooks.review import Request
from webhooks.rules.order import order_is_offered
from webhooks.rules.reference import Claimant, idle_device, reference_is_kept, usable_device, what_is_granted
from webhooks.rules.vmi import (
    entries_are_what_is_granted,
    names_can_be_judged,
    no_claims_for_gpus,
    no_gpus_by_raw_name,
    no_gpus_in_resources,
    template_reached_the_mutating_path,
)


async def validate_vmi(request: Request, context: Context) -> Refusal | None:
    """What speaks against a new VMI, in its final form."""
    vmi = VMISpec.read(request.manifest())
    if vmi.reference is None:
        return await _without_device(vmi, context)
    return await _with_device(vmi, vmi.reference, request, context)


def validate_vmi_update(request: Request) -> Refusal | None:
    """What speaks against an update of a VMI."""
    old = fields.required("oldObject", "request", request.old_object)
    return reference_is_kept(
        fields.optional_object(old, "metadata", "") or {},
        fields.optional_object(request.manifest(), "metadata", "") or {},
    )


async def _without_device(vmi: VMISpec, context: Context) -> Refusal | None:
    def judge(offer: Offer) -> Refusal | None:
        return (
            template_reached_the_mutating_path(vmi)
            or no_gpus_by_raw_name(vmi, offer.names)
            or names_can_be_judged(vmi, offer)
        )

    return await judged_by_offer(judge, context.catalog)


async def _with_device(vmi: VMISpec, reference: str, request: Request, context: Context) -> Refusal | None:
    wanted = read_template(vmi.template) if vmi.template is not None else None
    claimant = Claimant(request.namespace, vmi.name, fields.optional_text(vmi.metadata, "uid", "metadata") or "")

    def judge(facts: Facts) -> Refusal | None:
        device = _device(facts, reference, wanted, claimant, dry_run=request.dry_run)
        grant = device if isinstance(device, Refusal) else what_is_granted(device, facts.offer)
        if isinstance(grant, Refusal):
            return grant
        return _spec(vmi, grant, grant.with_names(facts.offer.names)) or names_can_be_judged(vmi, facts.offer)

    return await judged(judge, context.catalog, request.namespace, reference)


def _device(
    facts: Facts, reference: str, wanted: DeviceTemplate | None, claimant: Claimant, *, dry_run: bool
) -> GPUDevice | Refusal:
    """The device that is referred to. On a dry run none was built for an annotation: the order itself is judged."""
    if wanted is None:
        return usable_device(facts, reference, wanted, claimant)
    if facts.device is not None or not dry_run:
        return idle_device(facts, reference, wanted, claimant)
    refusal = order_is_offered(facts.offer, wanted.class_name, wanted.count, field=template.FIELD)
    return refusal or wanted.device(claimant.namespace, "new")


def _spec(vmi: VMISpec, grant: Grant, gpu_names: AbstractSet[str]) -> Refusal | None:
    return merged(
        [
            no_claims_for_gpus(vmi, gpu_names) or entries_are_what_is_granted(vmi, grant, gpu_names),
            no_gpus_in_resources(vmi, gpu_names),
        ]
    )
