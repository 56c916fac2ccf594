"""VirtualMachineInstance, CREATE: find or build its device, stamp the label, rewrite its GPU requests."""

from typing import Final

from gpu.fields import clip
from gpu.gpudevice import GPUDevice
from gpu.rewrite import rewrite, stamp
from gpu.template import read_template
from gpu.vmi import VMISpec
from webhooks.answer import LET_IN, Answer, Refusal
from webhooks.context import Context
from webhooks.facts import Facts, judged
from webhooks.mutating.device import Fit, template_device, what_fits
from webhooks.review import Request
from webhooks.rules.reference import Claimant, usable_device, what_is_granted

_LONGEST_WARNING: Final = 120


async def mutate_vmi(request: Request, context: Context) -> Answer:
    """Give a VMI with the label or the annotation what its device grants; others are let in untouched."""
    vmi = VMISpec.read(request.manifest())
    if vmi.template is not None:
        found = await template_device(request, context, vmi, read_template(vmi.template))
        if isinstance(found, Refusal):
            return Answer(found)
        return _rewritten(vmi, found.device, found.fit, found.note)
    if vmi.reference is not None:
        return await _by_reference(vmi, vmi.reference, request.namespace, context)
    return LET_IN


async def _by_reference(vmi: VMISpec, reference: str, namespace: str, context: Context) -> Answer:
    def judge(facts: Facts) -> Answer | Refusal:
        device = usable_device(facts, reference, None, Claimant(namespace, vmi.name, None))
        if isinstance(device, Refusal):
            return device
        fit = what_fits(vmi, what_is_granted(device, facts.offer), facts.offer)
        return fit if isinstance(fit, Refusal) else _rewritten(vmi, device, fit)

    verdict = await judged(judge, context.catalog, namespace, reference)
    return Answer(verdict) if isinstance(verdict, Refusal) else verdict


def _rewritten(vmi: VMISpec, device: GPUDevice, fit: Fit, note: str = "") -> Answer:
    label = stamp(vmi, device.name)
    change = rewrite(vmi, grant=fit.grant, gpu_names=fit.gpu_names)
    warnings = [clip(line, _LONGEST_WARNING) for line in ([note, *change.changes] if note else change.changes)]
    return Answer(None, [label, *change.operations] if label else change.operations, warnings)
