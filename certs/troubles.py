"""What goes wrong again and again, told often enough and not too often."""

from __future__ import annotations

import time
from typing import Final

import structlog

from certs.errors import NotInstalled

_AGAIN: Final = 300.0

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Troubles:
    """Logs a failure when it is new or another one, every five minutes while it lasts, and that it is over."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[str, float]] = {}
        self.count = 0

    def failed(self, what: str, error: Exception) -> None:
        """`what` failed: a noun of what is to be kept right."""
        self.count += 1
        text = str(error) or type(error).__name__
        told, at = self._told.get(what, ("", 0.0))
        if text == told and time.monotonic() < at + _AGAIN:
            return
        self._told[what] = (text, time.monotonic())
        # Without the traceback: some renderers show the local variables of its frames, and a key is among them.
        log = _log.warning if isinstance(error, NotInstalled) else _log.error
        log("certificates: tried again until it goes", what=what, error=text, kind=type(error).__name__)

    def went_well(self, what: str) -> None:
        """`what` is right."""
        if self._told.pop(what, None) is not None:
            _log.info("certificates: right again", what=what)
