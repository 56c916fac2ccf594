"""Who may call: judged once for each connection, by the certificate that its client has shown."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, NamedTuple

import structlog

from gpu.fields import clip, printable
from webhooks.metrics import Metrics

NO_CERTIFICATE: Final = "no certificate"
NAME: Final = "name"
HANDSHAKE: Final = "handshake"

_SILENCE: Final = 10.0
_MOST_NAMES: Final = 8
_KINDS: Final = ("DNS", "URI", "email", "IP Address")
_WHERE: Final = "docs/client-certificates.md has how an API server is told to show one"

_log = structlog.get_logger("gpu-webhooks")


class Refusal(NamedTuple):
    """Why a client may not call: for the metric, and as a sentence."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Clients:
    """Clients with a certificate for one of ``names`` may call; where there are no names, with any.

    That a certificate is of the right authority was found out by TLS.
    """

    names: frozenset[str]

    def refusal(self, certificate: Mapping[str, Any] | None) -> Refusal | None:
        """Why a client may not call, by its verified certificate as ``ssl.SSLSocket.getpeercert`` has it."""
        if not certificate:
            return Refusal(NO_CERTIFICATE, f"API servers alone may call, with a client certificate; {_WHERE}")
        found = list(names_of(certificate))
        if not self.names or not self.names.isdisjoint(found):
            return None
        called = printable(clip(", ".join(found[:_MOST_NAMES]), 253))
        return Refusal(NAME, f"the client certificate is for {called or 'nobody'}, who may not call; see --client-name")


def names_of(certificate: Mapping[str, Any]) -> Iterator[str]:
    """The common name, and the alternative ones, of a certificate as ``ssl.SSLSocket.getpeercert`` has it."""
    for distinguished in certificate.get("subject", ()):
        for key, value in distinguished:
            if key == "commonName":
                yield value
    for key, value in certificate.get("subjectAltName", ()):
        if key in _KINDS:
            yield value


class Refused:
    """Counts the refused, and logs them: the first of a reason, then at most one line in ten seconds for many."""

    def __init__(self, metrics: Metrics, *, silence: float = _SILENCE) -> None:
        self._counter = metrics.clients_refused
        self._silence = silence
        self._silent_until = dict.fromkeys((NO_CERTIFICATE, NAME, HANDSHAKE), 0.0)
        self._untold = dict.fromkeys(self._silent_until, 0)
        for reason in self._untold:
            self._counter.labels(reason)

    def note(self, refusal: Refusal, *, peer: str) -> None:
        """One was refused, that called from ``peer``."""
        reason = refusal.reason
        self._counter.labels(reason).inc()
        self._untold[reason] += 1
        now = monotonic()
        if now >= self._silent_until[reason]:
            _log.warning("client refused", reason=reason, peer=peer, why=refusal.message, times=self._untold[reason])
            self._silent_until[reason] = now + self._silence
            self._untold[reason] = 0

    def handshake(self, peer: str, why: str) -> None:
        """A client's certificate was not verified; ``why`` is OpenSSL's word on it."""
        self.note(
            Refusal(HANDSHAKE, f"{why}; it is none of the clients' CA (--client-ca-file), or out of date"), peer=peer
        )


def peer_of(address: object) -> str:
    """The host of a socket's address."""
    return str(address[0]) if isinstance(address, tuple) and address else ""
