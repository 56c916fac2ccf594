"""The mutating path: VMIs are rewritten to ask for what their device grants, launcher pods are pinned to its node."""

from webhooks.answer import LET_IN, Answer
from webhooks.context import Context
from webhooks.kinds import is_creation, is_pod, is_vmi
from webhooks.mutating.pod import mutate_pod
from webhooks.mutating.vmi import mutate_vmi
from webhooks.review import Request


async def mutate(request: Request, context: Context) -> Answer:
    """The answer of the mutating path; whatever it has no say in is let in untouched.

    Raises FieldError for what is malformed and CatalogError for what can't be decided now.
    """
    if is_creation(request):
        if is_vmi(request):
            return await mutate_vmi(request, context)
        if is_pod(request):
            return await mutate_pod(request, context)
    return LET_IN
