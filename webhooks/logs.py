"""Structured logs."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import structlog
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError

from gpu.fields import clip, printable


class _Forwarder(logging.Handler):
    """Hands on what libraries log. What a peer got wrong on the wire is one line, without a traceback."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        log = structlog.get_logger(record.name)
        if isinstance(error, (HttpProcessingError, RequestPayloadError)):
            log.warning("not HTTP", why=printable(clip(" ".join(str(error).split()), 253)))
        else:
            log.log(record.levelno, record.getMessage(), exc_info=error)


# Without the local variables of the frames: whole objects are among them.
_TRACEBACKS: Any = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)


def configure_logs(*, style: str, level: str) -> None:
    """Log to standard error, ``json`` or ``console`` style, from a level such as ``info`` on."""
    if style == "json":
        render: Any = structlog.processors.JSONRenderer(serializer=lambda event, **_: orjson.dumps(event, default=str))
        logger_factory: Any = structlog.BytesLoggerFactory(file=sys.stderr.buffer)
    else:
        plain = structlog.dev.plain_traceback
        render = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)
        logger_factory = structlog.PrintLoggerFactory(file=sys.stderr)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([_TRACEBACKS] if style == "json" else []),
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=logger_factory,
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers = [*(handler for handler in root.handlers if not isinstance(handler, _Forwarder)), _Forwarder()]


@contextmanager
def only_failures() -> Iterator[None]:
    """Within, what the pair logs is passed over, but for failures of its own code: those go to standard error."""
    before = structlog.get_config()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.configure(**before)
