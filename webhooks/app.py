"""The aiohttp application: transport, apart from decision."""

from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Final, TypeAlias

import orjson
import structlog
from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from gpu.catalog import Catalog
from gpu.clock import Clock, utc_now
from gpu.errors import CatalogError, FieldError
from gpu.fields import clip
from webhooks.answer import Answer, Refusal, failed, malformed, unavailable
from webhooks.context import Context
from webhooks.kinds import version_is_known
from webhooks.metrics import Metrics
from webhooks.mutating import mutate
from webhooks.review import Request, Unjudgeable, UnreadableReviewError, decode, encode
from webhooks.settings import Settings
from webhooks.validating import validate

_log = structlog.get_logger("gpu-webhooks")

Decide: TypeAlias = Callable[[Request, Context], Awaitable[Answer]]


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

    async def _serve(self, call: web.Request, path: str, decide: Decide) -> web.Response:
        self._open += 1
        try:
            return await self._read(call, path, decide)
        finally:
            self._open -= 1
            self._last_end = perf_counter()

    async def _read(self, call: web.Request, path: str, decide: Decide) -> web.Response:
        if call.content_type != "application/json":
            return self._no_verdict(path, "content type", 415, "UnsupportedMediaType", "send application/json")
        try:
            body = await call.read()
        except web.HTTPRequestEntityTooLarge:
            most = self.context.settings.largest_body
            return self._no_verdict(path, "too large", 413, "RequestEntityTooLarge", f"the body is over {most} bytes")
        except ConnectionError:
            return self._no_verdict(
                path, "lost", 400, "BadRequest", "the connection was lost before the body was whole"
            )
        if self.in_flight >= self.context.settings.most_in_flight:
            return self._no_verdict(path, "busy", 503, "ServiceUnavailable", "too many reviews in flight; try again")
        self.in_flight += 1
        start = perf_counter()
        try:
            return await self._answer(body, path, decide)
        finally:
            self.in_flight -= 1
            self.metrics.seconds.labels(path).observe(perf_counter() - start)

    async def _answer(self, body: bytes, path: str, decide: Decide) -> web.Response:
        try:
            request = decode(body)
        except UnreadableReviewError as error:
            return self._no_verdict(path, "unreadable", 400, "BadRequest", str(error))
        if isinstance(request, Unjudgeable):
            _log.warning("unjudgeable", path=path, uid=clip(request.uid), why=request.refusal.message)
            self.metrics.failures.labels(path, "unreadable").inc()
            return self._response(200, encode(request.uid, Answer(request.refusal)))
        answer = await self._judged(request, path, decide)
        if answer.refusal is not None:
            _log_refusal(path, request, answer.refusal)
        self.metrics.count(path, request.kind, request.operation, _verdict(answer))
        return self._response(200, encode(request.uid, answer))

    async def _judged(self, request: Request, path: str, decide: Decide) -> Answer:
        if refusal := version_is_known(request):
            return Answer(refusal)
        try:
            return await decide(request, self.context)
        except FieldError as error:
            return Answer(malformed(error))
        except CatalogError as error:
            self.metrics.failures.labels(path, "catalog").inc()
            return Answer(unavailable(f"this can't be decided now: {error}", "try again"))
        except Exception:  # noqa: BLE001 - the one place where a failure of our code becomes an answer
            self.metrics.failures.labels(path, "code").inc()
            _log.exception("failed", path=path, uid=clip(request.uid), kind=clip(request.kind))
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


def _verdict(answer: Answer) -> str:
    if answer.refusal is None:
        return "patched" if answer.patch else "admitted"
    return "failed" if answer.refusal.code >= 500 else "refused"


def _log_refusal(path: str, request: Request, refusal: Refusal) -> None:
    """One line: who, what, where, why."""
    _log.info(
        "refused",
        path=path,
        uid=clip(request.uid),
        user=clip(request.username, 253),
        operation=clip(request.operation),
        kind=clip(request.kind),
        namespace=clip(request.namespace),
        name=clip(request.name, 253),
        fields=[clip(cause.field, 253) for cause in refusal.shown_causes if cause.field],
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
