"""VirtualMachine, VirtualMachineInstanceReplicaSet and VirtualMachinePool: warnings, never a refusal."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from gpu import fields, names
from gpu.errors import FieldError
from gpu.vmi import VMISpec
from webhooks.answer import Refusal, malformed
from webhooks.context import Context
from webhooks.mutating.vmi import mutate_vmi
from webhooks.review import Request
from webhooks.validating.vmi import validate_vmi
from webhooks.virtcontroller import vmi_of, vmi_template

_MOST: Final = 8
_AT_START: Final = "would be refused at start: "
_TO_START: Final = "to have it start: "
_VMIS: Final = ": its VMIs would be refused"
_CONFLICT: Final = 409


async def warn_about(request: Request, context: Context) -> list[str]:
    """What its author should know now, each a line: what would be refused at the start of its VMIs, and what surprises.

    Nothing is said of what is being deleted, and of an update that leaves the template alone. Raises CatalogError.
    """
    try:
        obj = request.manifest()
        found = vmi_template(obj)
        if found is None or _is_deleting(obj) or _is_same(found[0], request.old_object):
            return []
        vmi = vmi_of(obj, namespace=request.namespace)
        warnings = _surprises(obj, _read(vmi, found[1]), found[1])
        refusal = await _start(_creation_of(request, vmi), context)
    except FieldError as error:
        return [f"{error}{_VMIS}"]
    except RecursionError:  # too deep to be compared
        return []
    if refusal is None or (refusal.code == _CONFLICT and request.old_object is not None and obj["kind"] != names.VM):
        return warnings  # a set's VMIs have names of their own, so that the one that has the device may be among them
    return [*_refused(refusal, found[1]), *warnings]


def foretells_refusal(warning: str) -> bool:
    """Whether a warning is about what would be refused at start, or about how to have it start."""
    return warning.startswith((_AT_START, _TO_START)) or warning.endswith(_VMIS)


def _read(vmi: Mapping[str, Any], path: str) -> VMISpec:
    """Read a VMI that is made from the template at ``path``. Raises FieldError with the path in there."""
    try:
        return VMISpec.read(vmi)
    except FieldError as error:
        raise FieldError(f"{path}.{error.path}", error.problem, reason=error.reason) from None


def _creation_of(request: Request, vmi: dict[str, Any]) -> Request:
    """The request that would create ``vmi``; nothing is built for it."""
    return replace(
        request,
        group=names.KUBEVIRT_GROUP,
        kind=names.VMI,
        operation="CREATE",
        object=vmi,
        old_object=None,
        dry_run=True,
    )


async def _start(request: Request, context: Context) -> Refusal | None:
    """What would be refused when a VMI is started now.

    A VMI that the mutating path has rewritten is let in by the validating one, so for a VMI with a device the first
    says all there is to say.
    """
    try:
        vmi = VMISpec.read(request.manifest())
        if vmi.reference is None and vmi.template is None:
            return await validate_vmi(request, context)
        return (await mutate_vmi(request, context)).refusal
    except FieldError as error:
        return malformed(error)


def _refused(refusal: Refusal, path: str) -> list[str]:
    lines = [
        f"{_AT_START}{f'{path}.{cause.field}: ' if cause.field else ''}{cause.message}"
        for cause in refusal.causes[:_MOST]
    ]
    return [*lines, f"{_TO_START}{refusal.advice}"] if refusal.advice else lines


def _surprises(obj: Mapping[str, Any], vmi: VMISpec, path: str) -> list[str]:
    warnings = []
    if vmi.template is not None and obj.get("kind") != names.REPLICA_SET:
        warnings.append(
            f"{path}.metadata.annotations[{names.DEVICE_TEMPLATE}]: a stop of over 15 s gives the GPU back; "
            f"a GPUDevice of your own, by the label {names.DEVICE_REFERENCE}, keeps it"
        )
    spec = fields.optional_object(obj, "spec", "") or {}
    replicas = spec.get("replicas")
    if vmi.reference is not None and vmi.template is None and isinstance(replicas, int) and replicas > 1:
        warnings.append(
            f"{path}.metadata.labels[{names.DEVICE_REFERENCE}]: one device starts one of {replicas} replicas; "
            f"the annotation {names.DEVICE_TEMPLATE} has a device built for each"
        )
    return warnings


def _is_deleting(obj: Mapping[str, Any]) -> bool:
    return (fields.optional_object(obj, "metadata", "") or {}).get("deletionTimestamp") is not None


def _is_same(template: Mapping[str, Any], old: Mapping[str, Any] | None) -> bool:
    before = vmi_template(old) if old is not None else None
    return before is not None and before[0] == template
