"""Verdicts that are known before they are asked for, and what was answered instead."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import aiohttp
from controlplane.client import Client
from controlplane.errors import APIError

Outcome: TypeAlias = Literal["right", "wrong", "behind", "undecided", "not asked"]
"""``behind``: let in by what was true until a moment ago. ``undecided``: the pair said that it can't tell now.
``not asked``: the API server itself did not take the call."""

_OURS: Final = 'admission webhook "'
_CALLED: Final = (_OURS, "calling webhook")
_UNDECIDED: Final = "this can't be decided now"
_NOT_TAKEN: Final = frozenset({429, 500, 503, 504})
"""What the API server answers by itself while it starts or stops."""
_NO_ROLES_YET: Final = "cannot create resource"
"""What it answers while it has not read the roles."""

NO_ANSWER: Final = (aiohttp.ClientError, TimeoutError, OSError)


@dataclass(frozen=True, slots=True)
class LetIn:
    """The VMI is let in, with these GPUs in the end."""

    gpus: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """The VMI is refused, with this code and these words in the message."""

    code: int
    words: str


Verdict: TypeAlias = LetIn | Refused
Answer: TypeAlias = Mapping[str, Any] | APIError | None
"""The object that was created, the refusal, or None where no answer came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question: when it was put and answered, on the monotonic clock; ``changed`` is when its verdict became true,
    where memory may take a moment to follow."""

    case: str
    began: float
    ended: float
    wanted: Verdict
    answer: Answer
    outcome: Outcome
    changed: float | None

    def __str__(self) -> str:
        got = gpus_of(self.answer) if isinstance(self.answer, Mapping) else self.answer
        return f"{self.case}: {self.wanted} was known, the answer is {got}"


async def ask(kube: Client, case: str, vmi: Mapping[str, Any], wanted: Verdict, changed: float | None) -> Asked:
    """Create a VMI and compare what comes of it."""
    began = time.monotonic()
    answer: Answer
    try:
        answer = await kube.create(vmi)
    except APIError as refusal:
        answer = refusal
    except NO_ANSWER:
        answer = None
    return Asked(
        case=case,
        began=began,
        ended=time.monotonic(),
        wanted=wanted,
        answer=answer,
        outcome=compared(wanted, answer, changed=changed is not None),
        changed=changed,
    )


def compared(wanted: Verdict, answer: Answer, *, changed: bool) -> Outcome:
    """What an answer is worth; ``changed``: another verdict was right a moment ago."""
    if answer is None or (isinstance(answer, APIError) and not_taken(answer)):
        return "not asked"
    if isinstance(answer, APIError):
        if answer.code == 503 and _UNDECIDED in answer.message:
            return "undecided"
        ours = isinstance(wanted, Refused) and answer.code == wanted.code and wanted.words in answer.message
        return "right" if ours and _OURS in answer.message else "wrong"
    if isinstance(wanted, Refused):
        return "behind" if changed else "wrong"
    return "right" if gpus_of(answer) == list(wanted.gpus) else "wrong"


def not_taken(refusal: APIError) -> bool:
    """Whether the API server refuses the call by itself, for what is worth another try. That it could not call the
    webhook is not such a thing."""
    if any(called in refusal.message for called in _CALLED):
        return False
    return refusal.code in _NOT_TAKEN or (refusal.code == 403 and _NO_ROLES_YET in refusal.message)


def gpus_of(vmi: Mapping[str, Any]) -> list[str]:
    """The device names of a VMI's GPUs."""
    return [gpu["deviceName"] for gpu in vmi["spec"]["domain"]["devices"].get("gpus", ())]
