"""What an admission decision comes to: an answer, and the refusal that it may carry."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from gpu.errors import FieldError
from gpu.fields import clip, printable
from gpu.patch import Operation

_MOST_CAUSES: Final = 16
_LONGEST: Final = 2048
_LONGEST_FIELD: Final = 256


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that is wrong: the field path (empty where no field is to blame), a sentence, and a CauseType."""

    field: str
    message: str
    reason: str = "FieldValueForbidden"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A request that is not let in: HTTP-like ``code``, the API's ``reason``, the causes, and what to do about it."""

    code: int
    reason: str
    causes: tuple[Cause, ...]
    advice: str = ""

    @property
    def message(self) -> str:
        """The sentence for the person who asked: where, what is wrong, what to do."""
        shown = [f"{c.field}: {c.message}" if c.field else c.message for c in self.shown_causes]
        hidden = len(self.causes) - len(shown)
        end = [f"and {hidden} more like these"] if hidden else []
        end += [clip(self.advice, _LONGEST // 2)] if self.advice else []
        room = _LONGEST - sum(len(part) + len("; ") for part in end)
        return printable("; ".join([clip("; ".join(shown), room), *end]))

    @property
    def shown_causes(self) -> tuple[Cause, ...]:
        """The causes that an answer carries; a thousand entries or a hostile name don't make a thousand lines."""
        return tuple(
            Cause(printable(clip(c.field, _LONGEST_FIELD)), printable(clip(c.message, _LONGEST)), c.reason)
            for c in self.causes[:_MOST_CAUSES]
        )


class Answer(NamedTuple):
    """Let in with a patch and warnings, or refused."""

    refusal: Refusal | None = None
    patch: Sequence[Operation] = ()
    warnings: Sequence[str] = ()


LET_IN: Final = Answer()


def forbidden(where: str, message: str, advice: str = "") -> Refusal:
    """403: what is not allowed."""
    return Refusal(code=403, reason="Forbidden", causes=(Cause(where, message),), advice=advice)


def invalid(where: str, message: str, advice: str = "", *, reason: str = "FieldValueInvalid") -> Refusal:
    """422: what is malformed, or names what does not exist."""
    return Refusal(code=422, reason="Invalid", causes=(Cause(where, message, reason),), advice=advice)


def conflict(where: str, message: str, advice: str = "") -> Refusal:
    """409: a device that another VMI uses."""
    return Refusal(code=409, reason="Conflict", causes=(Cause(where, message),), advice=advice)


def bad_request(where: str, message: str) -> Refusal:
    """400: a review that this service does not understand."""
    return Refusal(code=400, reason="BadRequest", causes=(Cause(where, message, "FieldValueInvalid"),))


def unavailable(message: str, advice: str = "") -> Refusal:
    """503: what can't be decided now and is worth a retry."""
    return Refusal(code=503, reason="ServiceUnavailable", causes=(Cause("", message, "InternalError"),), advice=advice)


def late() -> Refusal:
    """504: what could not be decided in the time that the caller gave."""
    message = "this could not be decided in the time that the call has"
    return Refusal(code=504, reason="Timeout", causes=(Cause("", message, "InternalError"),), advice="try again")


def failed(uid: str) -> Refusal:
    """500: a failure of our own code."""
    message = f"gpu-webhooks failed while it judged this request; its log has the details under uid {uid}"
    return Refusal(code=500, reason="InternalError", causes=(Cause("", message, "InternalError"),))


def malformed(error: FieldError) -> Refusal:
    """422 for a field that can't be read."""
    return invalid(error.path, error.problem, reason=error.reason)


def merged(refusals: Iterable[Refusal | None]) -> Refusal | None:
    """One refusal for all that is wrong at once, with the first one's code; None where nothing is."""
    found = [refusal for refusal in refusals if refusal is not None]
    if len(found) < 2:
        return found[0] if found else None
    return Refusal(
        code=found[0].code,
        reason=found[0].reason,
        causes=tuple(cause for refusal in found for cause in refusal.causes),
        advice="; ".join(dict.fromkeys(refusal.advice for refusal in found if refusal.advice)),
    )
