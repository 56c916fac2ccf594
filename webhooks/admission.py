"""The pair behind its two paths, apart from transport: the bytes of a review in, those of its answer out."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Self

import structlog

from gpu.catalog import Catalog
from gpu.clock import Clock, utc_now
from gpu.errors import CatalogError, FieldError
from gpu.fields import clip, printable
from webhooks.answer import LET_IN, Answer, Refusal, failed, late, malformed, unavailable
from webhooks.context import Context
from webhooks.deadline import in_time
from webhooks.kinds import is_family, version_is_known
from webhooks.metrics import Metrics
from webhooks.mutating import mutate
from webhooks.review import Request, Unjudgeable, decode, encode
from webhooks.settings import Settings
from webhooks.validating import validate

_log = structlog.get_logger("gpu-webhooks")

_DEFAULTS: Final = Settings()
_DECIDERS: Final[Mapping[str, Callable[[Request, Context], Coroutine[Any, Any, Answer]]]] = {
    "mutate": mutate,
    "validate": validate,
}
_UNDECIDED: Final = "this can't be decided now"
_AGAIN: Final = "try again"
PATHS: Final = frozenset(_DECIDERS)
"""``mutate`` and ``validate``."""


class Admission:
    """Has reviews judged, counts the answers and logs the refusals."""

    def __init__(self, context: Context, metrics: Metrics) -> None:
        self.context = context
        self.metrics = metrics

    @classmethod
    def of(cls, *, catalog: Catalog, settings: Settings = _DEFAULTS, clock: Clock = utc_now) -> Self:
        """The pair on a catalog, with metrics of its own."""
        metrics = Metrics()

        def count(outcome: str) -> None:
            metrics.devices.labels(outcome).inc()

        return cls(Context(catalog=catalog, settings=settings, clock=clock, devices=count), metrics)

    async def answered(self, body: bytes, path: str, *, until: float | None = None) -> bytes:
        """The answer to an AdmissionReview that came to ``mutate`` or ``validate``.

        At ``until``, in seconds of the running loop's clock, the answer is that it was late, and nothing more is built.
        Raises UnreadableReviewError.
        """
        request = decode(body)
        if isinstance(request, Unjudgeable):
            _log.warning("unjudgeable", path=path, uid=_shown(request.uid), why=request.refusal.message)
            self.metrics.failures.labels(path, "unreadable").inc()
            return encode(request.uid, Answer(request.refusal))
        answer = await self._decided(request, path, until)
        if answer.refusal is not None and is_family(request):
            # What VMIs are made from is never refused, not even for a failure of our own.
            answer = LET_IN
        if answer.refusal is not None:
            _log_refusal(path, request, answer.refusal)
        self.metrics.count(path, request.kind, request.operation, _verdict(answer))
        return encode(request.uid, answer)

    async def _decided(self, request: Request, path: str, until: float | None) -> Answer:
        if refusal := version_is_known(request):
            return Answer(refusal)
        if request.operation == "CREATE" and not self.context.catalog.synced:
            self.metrics.failures.labels(path, "catalog").inc()
            return Answer(unavailable(f"{_UNDECIDED}: the cluster is not read yet, or out of touch", _AGAIN))
        try:
            return await in_time(_DECIDERS[path](request, self.context), until)
        except FieldError as error:
            return Answer(malformed(error))
        except TimeoutError:
            self.metrics.failures.labels(path, "late").inc()
            return Answer(late())
        except CatalogError as error:
            self.metrics.failures.labels(path, "catalog").inc()
            return Answer(unavailable(f"{_UNDECIDED}: {error}", _AGAIN))
        except Exception:  # noqa: BLE001 - the one place where a failure of our code becomes an answer
            self.metrics.failures.labels(path, "code").inc()
            _log.exception("failed", path=path, uid=_shown(request.uid), kind=_shown(request.kind))
            return Answer(failed(clip(request.uid)))


def _shown(text: str, longest: int = 63) -> str:
    return printable(clip(text, longest))


def _verdict(answer: Answer) -> str:
    if answer.refusal is None:
        return "patched" if answer.patch else "admitted"
    return "failed" if answer.refusal.code >= 500 else "refused"


def _log_refusal(path: str, request: Request, refusal: Refusal) -> None:
    """One line: who, what, where, why; a warning for what could not be decided."""
    log = _log.warning if refusal.code >= 500 else _log.info
    log(
        "refused",
        path=path,
        uid=_shown(request.uid),
        user=_shown(request.username, 253),
        operation=_shown(request.operation),
        kind=_shown(request.kind),
        namespace=_shown(request.namespace),
        name=_shown(request.name, 253),
        fields=[cause.field for cause in refusal.shown_causes if cause.field],
        code=refusal.code,
        why=refusal.message,
        dry_run=request.dry_run,
    )
