"""Structured logs."""

import logging
import sys
from typing import Any

import orjson
import structlog


def configure_logs(*, style: str, level: str) -> None:
    """Log to standard error, ``json`` or ``console`` style, from a level such as ``info`` on."""
    if style == "json":
        render: Any = structlog.processors.JSONRenderer(serializer=lambda event, **_: orjson.dumps(event, default=str))
        logger_factory: Any = structlog.BytesLoggerFactory(file=sys.stderr.buffer)
    else:
        render = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
        logger_factory = structlog.PrintLoggerFactory(file=sys.stderr)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([structlog.processors.dict_tracebacks] if style == "json" else []),
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=logger_factory,
        cache_logger_on_first_use=True,
    )
