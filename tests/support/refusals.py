"""What came of a request: who refused it with which words, and how often the webhooks were called for it."""

import re
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, NamedTuple

import pytest
from controlplane.client import Client
from controlplane.errors import APIError
from installed import Installed
from prometheus_client.parser import text_string_to_metric_families
from waiting import eventually

_DENIED: Final = re.compile(r'admission webhook "([^"]+)" denied the request: (.*)', re.DOTALL)
_FORBIDDEN: Final = re.compile(
    r".* is forbidden: ValidatingAdmissionPolicy '([^']+)' with binding '\1' denied request: (.*)", re.DOTALL
)
NO_FIELDS: Final = [""]
"""``fields`` of what a policy refuses: the API server gives one cause, which names none."""
_CALLS: Final = re.compile(r"^apiserver_admission_webhook_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


class Refused(NamedTuple):
    """A refusal: ``by`` names the webhook or the policy that refused, and is empty where it was neither; ``said`` is
    the message apart from who says it."""

    code: int
    reason: str
    by: str
    said: str
    fields: list[str]


class Answered(NamedTuple):
    """What the service answered, as it counts it."""

    path: str
    kind: str
    operation: str
    verdict: str


class Call(NamedTuple):
    """A call of a webhook, as the API server counts it: ``path`` is mutate or validate."""

    path: str
    webhook: str
    operation: str


Calls = Callable[..., AbstractAsyncContextManager[None]]
"""See the fixture ``calls``."""


async def refused(call: Awaitable[object]) -> Refused:
    """The refusal of a call, which fails the test when it is let in."""
    with pytest.raises(APIError) as caught:
        await call
    error = caught.value
    denied = _DENIED.fullmatch(error.message) or _FORBIDDEN.fullmatch(error.message)
    by, said = denied.groups() if denied else ("", error.message)
    return Refused(error.code, error.reason, by, said, [cause.get("field", "") for cause in error.causes])


async def known(call: Callable[[], Awaitable[object]], *, by: str = "") -> None:
    """Wait until a dry run is refused (``by``: by this webhook or policy), since what speaks against it has reached the
    memory of the service, or of the API server for a policy.

    What lets a VMI in rests on memory; the guarantee is with its pod, which is let in on fresh reads alone.
    """

    async def is_refused() -> bool:
        try:
            await call()
        except APIError as refusal:
            return by in refusal.message
        return False

    await eventually(is_refused)


def answered(installed: Installed) -> Counter[Answered]:
    """How often the service has answered what; subtract what it was before."""
    status, metrics = installed.asked("metrics")
    assert status == 200
    answers: Counter[Answered] = Counter()
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if sample.name == "gpu_webhooks_requests_total":
                answers[Answered(**sample.labels)] += int(sample.value)
    return answers


async def webhook_calls(kube: Client) -> Counter[Call]:
    """How often the API server has called each webhook of the pair, or tried to; subtract what it was before."""
    metrics = await kube.raw("GET", "/metrics")
    calls: Counter[Call] = Counter()
    for written, number in _CALLS.findall(metrics["text"]):
        labels = dict(_LABEL.findall(written))
        name = labels["name"]
        if name.endswith(".gpu.cozystack.io"):
            path = {"admit": "mutate", "validating": "validate"}[labels["type"]]
            calls[Call(path, name.removesuffix(".gpu.cozystack.io"), labels["operation"])] += int(float(number))
    return calls
