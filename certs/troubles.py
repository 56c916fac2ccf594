"""What goes wrong again and again, told often enough and not too often."""

from __future__ import annotations

import time
from enum import Enum
from typing import TYPE_CHECKING, Final

import structlog

from certs.errors import NotInstalled

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_AGAIN: Final = 300.0

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Part(Enum):
    """What is to be kept right: its name in metrics, and a noun for people."""

    AUTHORITY = ("authority", "the authority's Secret")
    BUNDLE = ("bundle", "the caBundle")
    CERTIFICATE = ("certificate", "the serving certificate")
    FILES = ("files", "the certificate's files")
    CLIENT_CA = ("client_ca", "the clients' CA")

    @property
    def metric(self) -> str:
        """The name in metrics."""
        return self.value[0]

    @property
    def told(self) -> str:
        """The noun for people."""
        return self.value[1]


class Troubles:
    """Logs a failure when it is new or another one, every five minutes while it lasts, and that it is over.

    `counts` and `failing` are for metrics: the failures so far, by part, and the parts whose last try failed.
    """

    def __init__(self, parts: Iterable[Part]) -> None:
        self._told: dict[Part, tuple[str, float]] = {}
        self._counts = dict.fromkeys(parts, 0)

    @property
    def count(self) -> int:
        """The failures so far."""
        return sum(self._counts.values())

    @property
    def counts(self) -> Mapping[str, int]:
        """The failures so far, by part."""
        return {part.metric: count for part, count in self._counts.items()}

    @property
    def failing(self) -> frozenset[str]:
        """The parts whose last try failed."""
        return frozenset(part.metric for part in self._told)

    def failed(self, part: Part, error: Exception) -> None:
        """A part failed."""
        self._counts[part] += 1
        text = str(error) or type(error).__name__
        told, at = self._told.get(part, ("", 0.0))
        if text == told and time.monotonic() < at + _AGAIN:
            return
        self._told[part] = (text, time.monotonic())
        # Without the traceback: some renderers show the local variables of its frames, and a key is among them.
        log = _log.warning if isinstance(error, NotInstalled) else _log.error
        log("certificates: tried again until it goes", what=part.told, error=text, kind=type(error).__name__)

    def went_well(self, part: Part) -> None:
        """A part is right."""
        if self._told.pop(part, None) is not None:
            _log.info("certificates: right again", what=part.told)
