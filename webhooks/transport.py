"""HTTP in front of admission: which calls are reviews, how much is taken on, and what becomes of the rest."""

import asyncio
import re
from functools import lru_cache
from time import perf_counter
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

import orjson
import structlog
from aiohttp import HttpVersion11, hdrs, web

from webhooks.admission import PATHS, Admission
from webhooks.bodies import Bodies, BodyError, lost
from webhooks.guard import Guard
from webhooks.review import UnreadableReviewError

_log = structlog.get_logger("gpu-webhooks")

JSON: Final = "application/json"

AGAIN_AFTER: Final = "1"
"""Seconds after which a call that was not taken on may be made again. The API server does that in the time that a call
has, and never without being told (k8s.io/client-go/rest, withRetry)."""

_HEADERS: Final = {hdrs.CONTENT_TYPE: JSON}
BUSY: Final = 503
_NOT_ALLOWED: Final = 405
_OUT_OF_THE_PLAIN: Final = (
    hdrs.CONNECTION,
    hdrs.CONTENT_ENCODING,
    hdrs.EXPECT,
    hdrs.TRANSFER_ENCODING,
    hdrs.UPGRADE,
)
_TIMEOUT: Final = re.compile(r"([1-9]|[12][0-9]|30)s")
_PATIENCE: Final = 10
"""Seconds that the API server waits where ``timeoutSeconds`` is not set (admissionregistration.k8s.io/v1)."""
_FOR_THE_WAY_BACK: Final = 0.1
"""The part of the caller's time that is left to the answer."""


class Target(NamedTuple):
    """What a call is for: ``mutate``, ``validate`` or another path, and the seconds until the answer has to be out."""

    path: str
    seconds: float

    @staticmethod
    @lru_cache(maxsize=64)
    def of(raw_path: str) -> "Target":
        """The API server says ``?timeout=5s``, the webhook's ``timeoutSeconds``."""
        try:
            url = urlsplit(raw_path)
            given = parse_qs(url.query, max_num_fields=8).get("timeout", [""])[0]
        except ValueError:
            return Target("", 0.0)
        match = _TIMEOUT.fullmatch(given)
        seconds = int(match[1]) if match else _PATIENCE
        return Target(url.path.removeprefix("/"), seconds * (1 - _FOR_THE_WAY_BACK))


class Reply(NamedTuple):
    """What a call is answered with: an HTTP status, and JSON."""

    code: int
    body: bytes


class Transport:
    """Takes calls: POST /mutate and POST /validate go to admission, every other gets a Status that says why not."""

    def __init__(self, admission: Admission) -> None:
        settings = admission.context.settings
        self.admission = admission
        self.in_flight = 0
        self.draining = False
        self._most_in_flight = settings.most_in_flight
        self._bodies = Bodies(largest=settings.largest_body, most=settings.most_body_bytes)
        self.guard = Guard(
            most=settings.most_connections, head_seconds=settings.head_seconds, free_one=self._bodies.give_up_one
        )
        self._metrics = admission.metrics
        self._metrics.in_flight.set_function(lambda: self.in_flight)
        self._open = 0
        self._last_end = 0.0

    def drain(self) -> None:
        """Be not ready from now on, and close each connection after its answer."""
        self.draining = True
        self._last_end = perf_counter()

    @property
    def sends_away(self) -> bool:
        """Whether callers should come back over another connection, which leads to a replica that can judge."""
        return self.draining or not self.admission.context.catalog.synced

    def is_quiet(self, seconds: float) -> bool:
        """Whether no call is open or coming in, none has ended and no connection has been made for that long."""
        if self._open or self.guard.hears_a_head:
            return False
        return perf_counter() - max(self._last_end, self.guard.last_arrival) >= seconds

    def has_room(self, size: int) -> bool:
        """Whether a body of that size can be held beside those that are."""
        return self._bodies.has_room(size)

    def begin(self, protocol: asyncio.BaseProtocol | None) -> None:
        """A call has come in whose head is whole."""
        self._open += 1
        self.guard.begin(protocol)

    def end(self, protocol: asyncio.BaseProtocol | None) -> None:
        """It was answered."""
        self.guard.end(protocol)
        self._open -= 1
        self._last_end = perf_counter()

    async def handle(self, call: web.BaseRequest, *, refusal: str = "") -> web.Response:
        """Answer a call, whatever it is; where ``refusal`` says why, with no more than that."""
        self.begin(call.protocol)
        try:
            reply = _status(403, "Forbidden", refusal) if refusal else await self._answered(call)
            response = web.Response(status=reply.code, body=reply.body, headers=_HEADERS)
            if reply.code == _NOT_ALLOWED:
                response.headers[hdrs.ALLOW] = hdrs.METH_POST
            if reply.code == BUSY:
                response.headers[hdrs.RETRY_AFTER] = AGAIN_AFTER
            # What is left of a body that nobody wants would be taken for the next call's head.
            if self.sends_away or refusal or not call.content.is_eof():
                response.force_close()
            return response
        finally:
            self.end(call.protocol)

    async def _answered(self, call: web.BaseRequest) -> Reply:
        target = Target.of(call.raw_path)
        if target.path not in PATHS:
            return _status(404, "NotFound", "there are POST /mutate and POST /validate here, and no other paths")
        if call.method != hdrs.METH_POST:
            return _status(_NOT_ALLOWED, "MethodNotAllowed", "post an AdmissionReview")
        if not _is_json(call):
            message = "send application/json, not compressed"
            return self._no_verdict(target.path, "content type", 415, "UnsupportedMediaType", message)
        until = asyncio.get_running_loop().time() + target.seconds
        try:
            body = self._bodies.take(call)
            if body is None:
                body = await self._bodies.read(call, until)
        except BodyError as error:
            return self._no_verdict(target.path, error.cause, error.code, error.reason, str(error))
        try:
            return await self._judged(target.path, body, until)
        finally:
            self._bodies.release(body)

    async def reply(self, target: Target, body: bytes, until: float) -> Reply:
        """The reply to a call with a whole body that there is room for; ``until`` is of the loop's clock."""
        self._bodies.hold(body)
        try:
            return await self._judged(target.path, body, until)
        finally:
            self._bodies.release(body)

    async def _judged(self, path: str, body: bytes, until: float) -> Reply:
        if self.in_flight >= self._most_in_flight:
            return self._no_verdict(path, "busy", BUSY, "ServiceUnavailable", "too many reviews in flight; try again")
        self.in_flight += 1
        start = perf_counter()
        try:
            return Reply(200, await self.admission.answered(body, path, until=until))
        except UnreadableReviewError as error:
            return self._no_verdict(path, "unreadable", 400, "BadRequest", str(error))
        except Exception:  # noqa: BLE001 - admission has an answer for failures of rules, and this is for its own
            _log.exception("failed", path=path)
            return self._no_verdict(path, "code", 500, "InternalError", "gpu-webhooks failed; its log has the details")
        finally:
            self.in_flight -= 1
            self._metrics.observe(path, perf_counter() - start)

    def lost(self, target: Target) -> None:
        """A connection ended before its call was whole."""
        error = lost()
        self._no_verdict(target.path, error.cause, error.code, error.reason, str(error))

    def _no_verdict(self, path: str, cause: str, code: int, reason: str, message: str) -> Reply:
        """An HTTP error for what has no review to answer with."""
        self._metrics.failures.labels(path, cause).inc()
        _log.warning("no verdict", path=path, cause=cause, code=code, why=message)
        return _status(code, reason, message)


def is_plain(call: web.BaseRequest) -> bool:
    """Whether a call is as an API server sends it, with nothing about it that would change how it is answered."""
    return (
        call.version == HttpVersion11
        and call.method == hdrs.METH_POST
        and Target.of(call.raw_path).path in PATHS
        and call.keep_alive
        and call.headers.get(hdrs.CONTENT_TYPE) == JSON
        and not any(name in call.headers for name in _OUT_OF_THE_PLAIN)
    )


def _is_json(call: web.BaseRequest) -> bool:
    headers = call.headers
    if hdrs.CONTENT_ENCODING not in headers and headers.get(hdrs.CONTENT_TYPE) == JSON:
        return True
    if headers.get(hdrs.CONTENT_ENCODING, "identity").lower() != "identity":
        return False
    return call.content_type == JSON


def _status(code: int, reason: str, message: str) -> Reply:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return Reply(code, orjson.dumps({**status, "message": message, "reason": reason, "code": code}))
