"""Objects on which writes fail: each tried again after a pause that grows, and told of once."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from controller.writes import Target

FIRST: Final = 0.5
LONGEST: Final = 60.0
"""Seconds between two tries at least: the first pause, doubled with each failure in a row."""

PATIENCE: Final = 3
"""How often in a row an object may not be as it was thought to be before it has to wait."""

FORGOTTEN: Final = 2 * LONGEST
"""Seconds after its last pause that a failure is still remembered, so that pauses grow and lines do not repeat."""

_log = structlog.get_logger("gpu-webhooks")


@dataclass(slots=True)
class _Rest:
    until: float
    failures: int
    why: str


class Rests:
    """Which objects are to be left alone for how long."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._rests: dict[Target, _Rest] = {}

    def __len__(self) -> int:
        return len(self._rests)

    def resting(self, what: Target) -> bool:
        """Whether it is to be left alone now."""
        rest = self._rests.get(what)
        return rest is not None and rest.until > self._monotonic()

    @property
    def next_end(self) -> float | None:
        """In how many seconds the next pause ends; None where none is going on."""
        now = self._monotonic()
        return min((rest.until - now for rest in self._rests.values() if rest.until > now), default=None)

    def failed(self, what: Target, why: str, *, did: str, retry_after: float = 0) -> None:
        """A write on it failed; told once for each object and reason."""
        known = self._rests.get(what)
        if known is None or known.why != why:
            _log.warning("write failed, it is tried again", what=shown(what), did=did, why=why)
        self._pause(what, why, known.failures + 1 if known else 1, retry_after)

    def missed(self, what: Target) -> bool:
        """It is not as it was thought to be: whether to try again at once, as is right but for one that never is."""
        known = self._rests.get(what)
        failures = known.failures + 1 if known else 1
        self._pause(what, known.why if known else "", failures, 0, free=PATIENCE)
        return failures <= PATIENCE

    def _pause(self, what: Target, why: str, failures: int, retry_after: float, *, free: int = 0) -> None:
        self._tidy()
        doubled = FIRST * 2 ** min(failures - free - 1, 10) if failures > free else 0.0
        pause = max(min(LONGEST, doubled), min(retry_after, LONGEST))
        self._rests[what] = _Rest(self._monotonic() + pause, failures, why)

    def succeeded(self, what: Target) -> None:
        """A write on it was made."""
        rest = self._rests.pop(what, None)
        if rest and rest.why:
            _log.info("write made after failures", what=shown(what), failures=rest.failures)

    def _tidy(self) -> None:
        """Forget what nobody tried to write for long: it is gone, or its trouble is."""
        before = self._monotonic() - FORGOTTEN
        for what in [what for what, rest in self._rests.items() if rest.until < before]:
            del self._rests[what]


def shown(target: Target) -> str:
    """An object as a log names it."""
    kind, namespace, name = target
    return f"{kind.name} {namespace}/{name}" if namespace else f"{kind.name} {name}"
