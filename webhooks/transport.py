"""HTTP in front of admission: which calls are reviews, how much is taken on, and what becomes of the rest."""

import asyncio
import re
from functools import lru_cache
from time import perf_counter
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

import orjson
import structlog
from aiohttp import hdrs, web

from webhooks.admission import PATHS, Admission
from webhooks.bodies import Bodies, BodyError
from webhooks.guard import Guard
from webhooks.review import UnreadableReviewError

_log = structlog.get_logger("gpu-webhooks")

_JSON: Final = "application/json"
_HEADERS: Final = {hdrs.CONTENT_TYPE: _JSON}
_TIMEOUT: Final = re.compile(r"([1-9]|[12][0-9]|30)s")
_PATIENCE: Final = 10
"""Seconds that the API server waits where ``timeoutSeconds`` is not set (admissionregistration.k8s.io/v1)."""
_FOR_THE_WAY_BACK: Final = 0.1
"""The part of the caller's time that is left to the answer."""


class Target(NamedTuple):
    """What a call is for: ``mutate``, ``validate`` or another path, and the seconds until the answer has to be out."""

    path: str
    seconds: float


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

    def is_quiet(self, seconds: float) -> bool:
        """Whether no call is open or coming in, none has ended and no connection has been made for that long."""
        if self._open or self.guard.hears_a_head:
            return False
        return perf_counter() - max(self._last_end, self.guard.last_arrival) >= seconds

    async def handle(self, call: web.BaseRequest) -> web.Response:
        """Answer a call, whatever it is."""
        self._open += 1
        self.guard.begin(call.protocol)
        try:
            response = await self._answered(call)
            # What is left of a body that nobody wants would be taken for the next call's head.
            if self.draining or not call.content.is_eof():
                response.force_close()
            return response
        finally:
            self.guard.end(call.protocol)
            self._open -= 1
            self._last_end = perf_counter()

    async def _answered(self, call: web.BaseRequest) -> web.Response:
        target = _target(call.raw_path)
        if target.path not in PATHS:
            return _status(404, "NotFound", "there are POST /mutate and POST /validate here, and no other paths")
        if call.method != hdrs.METH_POST:
            response = _status(405, "MethodNotAllowed", "post an AdmissionReview")
            response.headers[hdrs.ALLOW] = hdrs.METH_POST
            return response
        if not _is_plain_json(call):
            message = "send application/json, not compressed"
            return self._no_verdict(target.path, "content type", 415, "UnsupportedMediaType", message)
        until = asyncio.get_running_loop().time() + target.seconds
        try:
            body = self._bodies.take(call)
            if body is None:
                body = await self._bodies.read(call, until)
        except BodyError as error:
            return self._no_verdict(target.path, error.cause, error.code, error.reason, str(error))
        if self.in_flight >= self._most_in_flight:
            self._bodies.release(body)
            return self._no_verdict(
                target.path, "busy", 503, "ServiceUnavailable", "too many reviews in flight; try again"
            )
        self.in_flight += 1
        start = perf_counter()
        try:
            answer = await self.admission.answered(body, target.path, until=until)
        except UnreadableReviewError as error:
            return self._no_verdict(target.path, "unreadable", 400, "BadRequest", str(error))
        finally:
            self._bodies.release(body)
            self.in_flight -= 1
            self._metrics.observe(target.path, perf_counter() - start)
        return web.Response(body=answer, headers=_HEADERS)

    def _no_verdict(self, path: str, cause: str, code: int, reason: str, message: str) -> web.Response:
        """An HTTP error for what has no review to answer with."""
        self._metrics.failures.labels(path, cause).inc()
        _log.warning("no verdict", path=path, cause=cause, code=code, why=message)
        return _status(code, reason, message)


@lru_cache(maxsize=64)
def _target(raw_path: str) -> Target:
    """The API server says ``?timeout=5s``, the webhook's ``timeoutSeconds``."""
    try:
        url = urlsplit(raw_path)
        given = parse_qs(url.query, max_num_fields=8).get("timeout", [""])[0]
    except ValueError:
        return Target("", 0.0)
    match = _TIMEOUT.fullmatch(given)
    seconds = int(match[1]) if match else _PATIENCE
    return Target(url.path.removeprefix("/"), seconds * (1 - _FOR_THE_WAY_BACK))


def _is_plain_json(call: web.BaseRequest) -> bool:
    headers = call.headers
    if hdrs.CONTENT_ENCODING not in headers and headers.get(hdrs.CONTENT_TYPE) == _JSON:
        return True
    if headers.get(hdrs.CONTENT_ENCODING, "identity").lower() != "identity":
        return False
    return call.content_type == _JSON


def _status(code: int, reason: str, message: str) -> web.Response:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    body = orjson.dumps({**status, "message": message, "reason": reason, "code": code})
    return web.Response(status=code, body=body, headers=_HEADERS)
