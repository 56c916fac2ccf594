"""A serving certificate out of files, which somebody else renews."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NoReturn

import structlog

from certs.authority import Pair
from certs.checks import check_usable
from certs.context import ServingContext
from certs.errors import CertificateError
from certs.figures import Figures, life
from certs.keeping import Keeping
from certs.troubles import Part, Troubles
from gpu.clock import Clock, utc_now

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

_TRIES: Final = 3

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class FileCertificates(Keeping):
    """The pair of a certificate's file (PEM: the leaf, then its chain) and a key's, read again when they change.

    `async with` it, or `start` and `stop` it. Give `serving.context` to the server at once: handshakes are refused
    until there is a usable pair. The files are looked at after each `interval`, their contents and no times, as a
    volume of a Secret is swapped by a symlink. A pair that does not fit together, has expired, is not for all of
    `names` or is refused by OpenSSL is not taken: what was served goes on being served, and that is told, once it was
    found twice, as one file may be written after the other.
    """

    def __init__(
        self,
        *,
        certificate: Path,
        key: Path,
        names: Sequence[str] = (),
        clock: Clock = utc_now,
        interval: timedelta = timedelta(seconds=5),
    ) -> None:
        self._paths = (certificate, key)
        self._names = tuple(names)
        self._clock = clock
        self._interval = interval.total_seconds()
        self._serving = ServingContext(clock=clock)
        self._served: tuple[bytes, bytes] | None = None
        self._suspect: str | None = None
        self._renewed_at: datetime | None = None
        self._troubles = Troubles([Part.FILES])
        self._why = ""

    @property
    def serving(self) -> ServingContext:
        """The context to listen with: the same object for ever."""
        return self._serving

    def waiting(self) -> str:
        """Why nothing of the files is served; empty where something is."""
        return f"{self._paths[0]} and {self._paths[1]}: {self._why}" if self._serving.empty else ""

    def figures(self) -> Figures:
        """See certs.figures.Source."""
        leaf = None if self._serving.empty else self._serving.pair
        return Figures(
            # Due by the rule of cert-manager, which is ours too.
            leaf=None if leaf is None else life(leaf, lifetime=leaf.not_after - leaf.not_before),
            renewed_at=self._renewed_at,
            failures=self._troubles.counts,
            failing=self._troubles.failing,
        )

    def look(self) -> None:
        """Read the files, and serve what is in them if it is another pair and a usable one."""
        try:
            found = self._read()
            if found == self._served:
                self._suspect = None
                self._troubles.went_well(Part.FILES)
                return
            self._take(found)
        except Exception as error:  # noqa: BLE001 - whatever it was, the next look may do better
            self._refuse(error)

    async def start(self) -> None:
        """Look once, and go on looking in a task of its own."""
        self.look()
        await super().start()

    async def keep(self) -> NoReturn:
        """Look again and again until cancelled; `start` runs it."""
        while True:
            await asyncio.sleep(self._interval)
            self.look()

    def _read(self) -> tuple[bytes, bytes]:
        """Both files as they were at one moment, or as nearly as that can be told."""
        before = self._contents()
        for _ in range(_TRIES):
            after = self._contents()
            if after == before:
                break
            before = after
        return before

    def _contents(self) -> tuple[bytes, bytes]:
        certificate, key = self._paths
        return certificate.read_bytes(), key.read_bytes()

    def _take(self, found: tuple[bytes, bytes]) -> None:
        now = self._clock()
        pair = Pair(certificate_pem=found[0], key_pem=found[1])
        check_usable(pair, names=self._names, now=now, instead=not self._serving.empty)
        self._serving.swap(pair)
        self._served, self._suspect, self._renewed_at = found, None, now
        self._troubles.went_well(Part.FILES)
        _log.info(
            "serving certificate read",
            file=str(self._paths[0]),
            serial=f"{pair.serial:x}",
            not_after=pair.not_after.isoformat(),
        )

    def _refuse(self, error: Exception) -> None:
        self._why = str(error)
        stays = "" if self._serving.empty else " What was served before goes on being served."
        suspect, self._suspect = self._suspect, self._why
        if suspect == self._why or self._serving.empty:
            told = f"{self._paths[0]} and {self._paths[1]}: {self._why}{stays}"
            self._troubles.failed(Part.FILES, CertificateError(told))
