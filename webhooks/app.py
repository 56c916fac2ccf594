"""The aiohttp application: transport, apart from decision."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Final, TypeAlias

import orjson
import structlog
from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from gpu.catalog import Catalog
from gpu.clock import Clock, utc_now
from gpu.errors import CatalogError, FieldError
from gpu.fields import clip, printable
from webhooks.answer import LET_IN, Answer, Refusal, failed, malformed, unavailable
from webhooks.context import Context
from webhooks.kinds import is_family, version_is_known
from webhooks.metrics import Metrics
from webhooks.mutating import mutate
from webhooks.review import Request, Unjudgeable, UnreadableReviewError, decode, encode
from webhooks.settings import Settings
from webhooks.validating import validate

_log = structlog.get_logger("gpu-webhooks")

Decide: TypeAlias = Callable[[Request, Context], Awaitable[Answer]]

_DECIDERS: Final[Mapping[str, Decide]] = {"mutate": mutate, "validate": validate}

_TIMEOUT: Final = re.compile(r"([1-9]|[12][0-9]|30)s")
_PATIENCE: Final = 10
"""Seconds that the API server waits where ``timeoutSeconds`` is not set (admissionregistration.k8s.io/v1)."""
_FOR_THE_WAY_BACK: Final = 0.1
"""The part of the caller's time that is left to the answer."""


class Admission:
    """The pair behind its two paths: reads reviews, has them judged, answers, counts and logs."""

    def __init__(self, context: Context, metrics: Metrics) -> None:
        self.context = context
        self.metrics = metrics
        self.in_flight = 0
        self.draining = False
        self._open = 0
        self._last_end = 0.0

    def drain(self) -> None:
        """Be not ready from now on, and close each connection after its answer."""
        self.draining = True
        self._last_end = perf_counter()

    def is_quiet(self, seconds: float) -> bool:
        """Whether no call is open and none has ended for that long."""
        return not self._open and perf_counter() - self._last_end >= seconds

    async def mutate(self, call: web.Request) -> web.Response:
        """POST /mutate."""
        return await self._serve(call, "mutate", mutate)

    async def validate(self, call: web.Request) -> web.Response:
        """POST /validate."""
        return await self._serve(call, "validate", validate)

    async def answered(self, body: bytes, path: str) -> bytes:
        """The answer to an AdmissionReview that came to ``mutate`` or ``validate`` by another way than HTTP.

        Raises UnreadableReviewError.
        """
        return await self._reviewed(body, path, _DECIDERS[path], None)

    async def _serve(self, call: web.Request, path: str, decide: Decide) -> web.Response:
        self._open += 1
        try:
            until = asyncio.get_running_loop().time() + _seconds(call)
            return await self._read(call, path, decide, until)
        finally:
            self._open -= 1
            self._last_end = perf_counter()

    async def _read(self, call: web.Request, path: str, decide: Decide, until: float) -> web.Response:
        compressed = call.headers.get("Content-Encoding", "identity").lower() != "identity"
        if compressed or call.content_type != "application/json":
            message = "send application/json, not compressed"
            return self._no_verdict(path, "content type", 415, "UnsupportedMediaType", message)
        try:
            async with asyncio.timeout_at(until):
                body = await call.read()
        except web.HTTPRequestEntityTooLarge:
            most = self.context.settings.largest_body
            return self._no_verdict(path, "too large", 413, "RequestEntityTooLarge", f"the body is over {most} bytes")
        except TimeoutError:
            return self._no_verdict(path, "slow body", 408, "Timeout", "the body was not whole in time")
        except (OSError, web.RequestPayloadError):
            return self._no_verdict(
                path, "lost", 400, "BadRequest", "the connection was lost before the body was whole"
            )
        if self.in_flight >= self.context.settings.most_in_flight:
            return self._no_verdict(path, "busy", 503, "ServiceUnavailable", "too many reviews in flight; try again")
        self.in_flight += 1
        start = perf_counter()
        try:
            return self._response(200, await self._reviewed(body, path, decide, until))
        except UnreadableReviewError as error:
            return self._no_verdict(path, "unreadable", 400, "BadRequest", str(error))
        finally:
            self.in_flight -= 1
            self.metrics.seconds.labels(path).observe(perf_counter() - start)

    async def _reviewed(self, body: bytes, path: str, decide: Decide, until: float | None) -> bytes:
        request = decode(body)
        if isinstance(request, Unjudgeable):
            _log.warning("unjudgeable", path=path, uid=_shown(request.uid), why=request.refusal.message)
            self.metrics.failures.labels(path, "unreadable").inc()
            return encode(request.uid, Answer(request.refusal))
        answer = await self._judged(request, path, decide, until)
        if answer.refusal is not None:
            _log_refusal(path, request, answer.refusal)
        self.metrics.count(path, request.kind, request.operation, _verdict(answer))
        return encode(request.uid, answer)

    async def _judged(self, request: Request, path: str, decide: Decide, until: float | None) -> Answer:
        """The answer; what VMIs are made from is never refused, not even for a failure of our own."""
        answer = await self._decided(request, path, decide, until)
        return LET_IN if answer.refusal is not None and is_family(request) else answer

    async def _decided(self, request: Request, path: str, decide: Decide, until: float | None) -> Answer:
        if refusal := version_is_known(request):
            return Answer(refusal)
        try:
            async with asyncio.timeout_at(until):
                return await decide(request, self.context)
        except FieldError as error:
            return Answer(malformed(error))
        except TimeoutError:
            self.metrics.failures.labels(path, "late").inc()
            return Answer(unavailable("this could not be decided in the time that the call has", "try again"))
        except CatalogError as error:
            self.metrics.failures.labels(path, "catalog").inc()
            return Answer(unavailable(f"this can't be decided now: {error}", "try again"))
        except Exception:  # noqa: BLE001 - the one place where a failure of our code becomes an answer
            self.metrics.failures.labels(path, "code").inc()
            _log.exception("failed", path=path, uid=_shown(request.uid), kind=_shown(request.kind))
            return Answer(failed(clip(request.uid)))

    def _no_verdict(self, path: str, cause: str, code: int, reason: str, message: str) -> web.Response:
        """An HTTP error with a Status as its body, for what has no review to answer with."""
        self.metrics.failures.labels(path, cause).inc()
        _log.warning("no verdict", path=path, cause=cause, code=code, why=message)
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        return self._response(code, orjson.dumps({**status, "message": message, "reason": reason, "code": code}))

    def _response(self, code: int, body: bytes) -> web.Response:
        response = web.Response(status=code, body=body, content_type="application/json")
        if self.draining:
            response.force_close()
        return response


def _seconds(call: web.Request) -> float:
    """The seconds that the caller gives: the API server says ``?timeout=5s``, the webhook's ``timeoutSeconds``."""
    match = _TIMEOUT.fullmatch(call.query.get("timeout", ""))
    return (int(match[1]) if match else _PATIENCE) * (1 - _FOR_THE_WAY_BACK)


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


ADMISSION: Final = web.AppKey("admission", Admission)


_DEFAULTS: Final = Settings()


def make_app(*, catalog: Catalog, settings: Settings = _DEFAULTS, clock: Clock = utc_now) -> web.Application:
    """The aiohttp application with POST /mutate and POST /validate; ``app[ADMISSION]`` is what serves them."""
    metrics = Metrics()
    context = Context(
        catalog=catalog, settings=settings, clock=clock, devices=lambda outcome: metrics.devices.labels(outcome).inc()
    )
    admission = Admission(context, metrics)
    metrics.in_flight.set_function(lambda: admission.in_flight)
    app = web.Application(client_max_size=settings.largest_body)
    app[ADMISSION] = admission
    app.router.add_post("/mutate", admission.mutate)
    app.router.add_post("/validate", admission.validate)
    return app


def make_probe_app(admission: Admission) -> web.Application:
    """The application of the plain port: /healthz, /readyz and /metrics."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        if admission.draining:
            return web.Response(status=503, text="shutting down\n")
        if not admission.context.catalog.synced:
            return web.Response(status=503, text="the catalog is not filled yet\n")
        return web.Response(text="ok\n")

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(admission.metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    return app
