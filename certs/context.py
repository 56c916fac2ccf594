"""TLS contexts for a server, and one that changes its certificate while it serves."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from certs.errors import CertificateError
from certs.keyfile import secret_file
from gpu.clock import Clock, utc_now

if TYPE_CHECKING:
    from datetime import datetime

    from certs.authority import Pair


def server_context(pair: Pair, *, now: datetime | None = None, client_ca: bytes | None = None) -> ssl.SSLContext:
    """A new server context with the pair loaded: TLS 1.2 or later, ALPN `http/1.1`.

    With `client_ca` (PEM) it asks for a client's certificate, verifies one by these authorities, and takes clients
    without one too. Raises CertificateError when the pair has expired at `now` (aware; the wall clock's time if not
    given) or OpenSSL does not accept it, for instance as its key is too weak, nor `client_ca`. A pair that is not
    valid yet is taken, as the clock that is wrong may be ours.
    """
    if (utc_now() if now is None else now) >= pair.not_after:
        raise CertificateError(f"The certificate expired at {pair.not_after.isoformat()}.")
    context = _bare_context()
    try:
        with secret_file(pair.certificate_pem + pair.key_pem) as path:
            context.load_cert_chain(path)
    except ssl.SSLError as error:
        raise CertificateError(f"The certificate or its key was refused: {error.reason or error}.") from error
    except OSError as error:
        raise CertificateError(f"The certificate and its key could not be handed over: {error}.") from error
    if client_ca is not None:
        _ask_clients(context)
        try:
            context.load_verify_locations(cadata=client_ca.decode("ascii", "replace"))
        except ssl.SSLError as error:
            raise CertificateError(f"The clients' authorities were refused: {error.reason or error}.") from error
    return context


class ServingContext:
    """A listening context that gives each handshake the current pair, so that pairs can be swapped while it serves.

    Give `context` to whatever listens. `pair` is the current one; without one, handshakes are refused until the first
    swap. Raises what `server_context` raises. Swapping never changes a context that is in use: connections that are
    open keep theirs, and sessions resume across a swap, since tickets belong to the listening context.
    """

    def __init__(self, pair: Pair | None = None, *, clock: Clock = utc_now) -> None:
        self._clock = clock
        self._client_ca: bytes | None = None
        self._current = None if pair is None else (pair, server_context(pair, now=clock()))
        # It has no certificate of its own: there is none that could be served by mistake when it has grown old.
        self._listening = _bare_context()
        self._listening.sni_callback = self._choose

    @property
    def context(self) -> ssl.SSLContext:
        """The context to listen with: the same object for ever."""
        return self._listening

    @property
    def empty(self) -> bool:
        """Whether there is no pair yet."""
        return self._current is None

    @property
    def pair(self) -> Pair:
        """The pair that the next handshake gets; raises CertificateError when there is none yet."""
        if self._current is None:
            raise CertificateError("There is no certificate to serve yet.")
        return self._current[0]

    def waiting(self) -> str:
        """Why nobody can connect now: there is no certificate yet, or it has expired; empty where they can."""
        if self._current is None:
            return "there is no serving certificate yet"
        if self._clock() >= self._current[0].not_after:
            return f"the serving certificate expired at {self._current[0].not_after.isoformat()}"
        return ""

    def swap(self, pair: Pair) -> None:
        """Serve `pair` from the next handshake on; raises what `server_context` raises, and then keeps the old one."""
        self._current = (pair, server_context(pair, now=self._clock(), client_ca=self._client_ca))

    def trust_clients(self, client_ca: bytes) -> None:
        """Ask clients for a certificate from the next handshake on, and verify it by these authorities (PEM).

        To be called before the first handshake, and again when they change; raises CertificateError, and then keeps
        those that it has. A client without a certificate gets in, one whose certificate is not of theirs does not.
        From then on it is TLS 1.3 without session tickets: a resumed session would be verified no more.
        """
        if self._current is not None:
            pair = self._current[0]
            self._current = (pair, server_context(pair, now=self._clock(), client_ca=client_ca))
        if self._client_ca is None:
            _ask_clients(self._listening)
        self._client_ca = client_ca

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _listening: ssl.SSLContext) -> int | None:
        # OpenSSL calls this for every ClientHello, with None as the name for clients that dial an IP address.
        if self._current is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = self._current[1]
        return None


def _bare_context() -> ssl.SSLContext:
    # The versions and options of a connection come from the listening context, certificate and ALPN from the inner
    # one: both are made here, so that they cannot disagree.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    return context


def _ask_clients(context: ssl.SSLContext) -> None:
    # How a connection verifies comes from the listening context, by whom from the inner one.
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    # An authority of the file is believed though its own issuer is not in there, as by the API server.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_mode = ssl.CERT_OPTIONAL
