"""Serving certificates for a service that stands alone: its own authority, kept in memory."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn

import structlog

from certs.authority import Authority, Pair
from certs.context import ServingContext
from certs.figures import Figures, life
from certs.renewal import check_lifetimes, leaf_renewal, renewal
from gpu.clock import Clock, utc_now

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

_logger: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


def log_failure(error: Exception) -> None:
    """Log that a round of renewal failed."""
    # Without the traceback: some renderers show the local variables of its frames, and a key is among them.
    _logger.error("certificate renewal failed", error=str(error), kind=type(error).__name__)


class SelfSigned:
    """An authority, a leaf for `names` (DNS names and IP literals) and the context that serves it.

    Clients trust `ca_pem`. It changes only when the authority itself is due for renewal, which in ten years is after
    more than six, or when the clock jumps out of the authority's life: then there is a new authority, its leaf is
    served at once, and clients that hold the old file must read the new one (`keep_fresh` says when). The old one is
    not kept: nothing that it signed is served any more.

    Raises CertificateError when the names or lifetimes make no certificate, or one that is due when it is born.
    """

    def __init__(
        self,
        *,
        names: Sequence[str],
        common_name: str = "gpu-webhooks",
        clock: Clock = utc_now,
        ca_lifetime: timedelta = timedelta(days=3650),
        leaf_lifetime: timedelta = timedelta(days=90),
    ) -> None:
        check_lifetimes(ca_lifetime, leaf_lifetime)
        self._names = tuple(names)
        self._common_name = common_name
        self._clock = clock
        self._ca_lifetime = ca_lifetime
        self._leaf_lifetime = leaf_lifetime
        now = clock()
        self._authority = self._new_authority(now)
        self._serving = ServingContext(self._new_leaf(self._authority, now), clock=clock)

    @property
    def ca_pem(self) -> bytes:
        """What clients trust: the authority's certificate, PEM, without its key."""
        return self._authority.certificate_pem

    @property
    def authority(self) -> Authority:
        """The current authority."""
        return self._authority

    @property
    def serving(self) -> ServingContext:
        """The context to listen with: the same object for ever."""
        return self._serving

    def figures(self) -> Figures:
        """See certs.figures.Source."""
        leaf, authority = self._serving.pair, self._authority
        return Figures(leaf=life(leaf, lifetime=self._leaf_lifetime), ca=life(authority, lifetime=self._ca_lifetime))

    def refresh(self, *, publish: Callable[[bytes], None] | None = None) -> str | None:
        """Renew what is due by the clock; the reason if anything was, else None.

        `publish` is called with the new `ca_pem` before the leaf of a new authority is served; when it raises,
        everything stays as it was.
        """
        now = self._clock()
        authority = self._authority
        if reason := self._authority_due(now):
            authority = self._new_authority(now)
        elif (reason := self._leaf_due(now)) is None:
            return None
        leaf = self._new_leaf(authority, now)
        if authority is not self._authority and publish is not None:
            publish(authority.certificate_pem)
        self._serving.swap(leaf)
        self._authority = authority
        _logger.info(
            "certificate renewed", reason=reason, serial=f"{leaf.serial:x}", not_after=leaf.not_after.isoformat()
        )
        return reason

    async def keep_fresh(
        self,
        *,
        interval: timedelta = timedelta(minutes=1),
        publish: Callable[[bytes], None] | None = None,
        report: Callable[[Exception], None] = log_failure,
    ) -> NoReturn:
        """Refresh now and after each `interval`, until cancelled; to be run as a task.

        The clock is asked each time, since sleeping counts no time that a machine was suspended and knows of no
        clock that was set. `publish` is `refresh`'s: write the file there that clients hold. An error of one round
        goes to `report`, which should not raise, and the next round tries again.
        """
        while True:
            try:
                self.refresh(publish=publish)
            except Exception as error:  # noqa: BLE001 - whatever it was, the next round may do better
                report(error)
            await asyncio.sleep(interval.total_seconds())

    def _authority_due(self, now: datetime) -> str | None:
        return renewal(self._authority, now=now, lifetime=self._ca_lifetime)

    def _leaf_due(self, now: datetime) -> str | None:
        return leaf_renewal(self._serving.pair, signer=self._authority, now=now, lifetime=self._leaf_lifetime)

    def _new_authority(self, now: datetime) -> Authority:
        return Authority.create(common_name=self._common_name, now=now, lifetime=self._ca_lifetime)

    def _new_leaf(self, authority: Authority, now: datetime) -> Pair:
        return authority.issue(names=self._names, now=now, lifetime=self._leaf_lifetime)
