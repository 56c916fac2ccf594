"""The authorities that clients' certificates are of, from a file that may change."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NoReturn

import structlog
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from certs.errors import CertificateError
from certs.pem import read_certificates, write_certificates
from certs.troubles import Part, Troubles
from gpu.clock import Clock, utc_now

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

    from certs.context import ServingContext

_INTERVAL: Final = 1.0
_LARGEST: Final = 1024 * 1024

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class ClientAuthorities(Collector):
    """Has a context verify clients' certificates by the authorities of a file (PEM), and follows the file.

    A file that can't be read later, or has no certificate in it, changes nothing: what was read before stays, the log
    and a metric say so. Raises CertificateError where there is nothing to begin with.
    """

    def __init__(self, path: Path, serving: ServingContext, *, clock: Clock = utc_now) -> None:
        self._path = path
        self._serving = serving
        self._clock = clock
        self._read: bytes | None = None
        self._troubles = Troubles([Part.CLIENT_CA])
        self.expires: datetime
        self.refresh()

    def refresh(self) -> bool:
        """Read the file again, and go by it if it has changed; whether it had. Raises CertificateError."""
        content = self._content()
        if content == self._read:
            return False
        try:
            certificates = read_certificates(content)
            # OpenSSL is given certificates and nothing else: it would pass over what it can't read.
            self._serving.trust_clients(write_certificates(certificates))
        except CertificateError as error:
            raise CertificateError(f"The clients' CA in {self._path}: {error}") from None
        self._read = content
        self.expires = max(certificate.not_valid_after_utc for certificate in certificates)
        told = {"file": str(self._path), "certificates": len(certificates), "expires": self.expires.isoformat()}
        if self.expires <= self._clock():
            _log.error("no client can be let in: every certificate in the clients' CA has expired", **told)
        else:
            _log.info("clients' CA read", **told)
        return True

    async def keep_fresh(self, *, interval: float = _INTERVAL) -> NoReturn:
        """Look at the file every `interval` seconds, until cancelled."""
        while True:
            await asyncio.sleep(interval)
            try:
                self.refresh()
            except Exception as error:  # noqa: BLE001 - the next look may find it right again
                self._troubles.failed(Part.CLIENT_CA, error)
            else:
                self._troubles.went_well(Part.CLIENT_CA)

    def _content(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                content = file.read(_LARGEST + 1)
        except OSError as error:
            reason = str(error.strerror).lower()
            raise CertificateError(f"The clients' CA in {self._path} can't be read: {reason}.") from None
        if len(content) > _LARGEST:
            raise CertificateError(f"The clients' CA in {self._path} is over {_LARGEST} bytes: no list of authorities.")
        return content

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client.registry.Collector."""
        yield GaugeMetricFamily(
            "gpu_webhooks_client_ca_expiry_timestamp_seconds",
            "When the last of the clients' authorities expires, in seconds since 1970.",
            value=self.expires.timestamp(),
        )
        yield CounterMetricFamily(
            "gpu_webhooks_client_ca_failures",
            "Times that the file of the clients' CA could not be gone by; what was read before stays.",
            value=self._troubles.count,
        )
