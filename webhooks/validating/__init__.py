"""The validating path: the final object, after every mutating webhook, is let in or refused."""

from webhooks.answer import LET_IN, Answer
from webhooks.context import Context
from webhooks.kinds import is_creation, is_device, is_family, is_pod, is_vmi
from webhooks.review import Request
from webhooks.validating.device import validate_device
from webhooks.validating.family import warn_about
from webhooks.validating.pod import validate_pod
from webhooks.validating.vmi import validate_vmi, validate_vmi_update


async def validate(request: Request, context: Context) -> Answer:
    """The answer of the validating path; whatever it has no say in is let in.

    Raises FieldError for what is malformed and CatalogError for what can't be decided now.
    """
    if is_vmi(request) and request.operation == "UPDATE":
        return Answer(validate_vmi_update(request))
    if is_family(request) and request.operation in {"CREATE", "UPDATE"}:
        return Answer(warnings=await warn_about(request, context))
    if is_creation(request):
        if is_vmi(request):
            return Answer(await validate_vmi(request, context))
        if is_pod(request):
            return Answer(await validate_pod(request, context))
        if is_device(request):
            return Answer(await validate_device(request, context))
    return LET_IN
