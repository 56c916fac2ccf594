"""Where connections come in: listening sockets, and the handshakes of what connects to them."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

import structlog

from webhooks.clients import peer_of

MOST_HANDSHAKES: Final = 1024

_BACKLOG: Final = 1024
_AT_ONCE: Final = 32
_REST: Final = 0.1
_HANDSHAKE: Final = 10.0
_FAREWELL: Final = 2.0

_log = structlog.get_logger("gpu-webhooks")


def _untold(_peer: str, _why: str) -> None:
    """Nobody wants to know."""


class Door:
    """Takes connections in, over TLS where a context is given, and has each served by a protocol of ``make``.

    A handshake may take ten seconds. Where too many go on at once the oldest is given up for a new one: what connects
    and never speaks TLS holds nobody up. ``refused`` is told of each client whose certificate is not verified.
    """

    def __init__(
        self,
        make: Callable[[], asyncio.Protocol],
        *,
        tls: ssl.SSLContext | None = None,
        most_handshakes: int = MOST_HANDSHAKES,
        refused: Callable[[str, str], None] = _untold,
    ) -> None:
        self._make = make
        self._refused = refused
        self._options: dict[str, Any] = {}
        if tls is not None:
            # Without the last one, a connection whose peer never says goodbye would be kept for half a minute.
            times = {"ssl_handshake_timeout": _HANDSHAKE, "ssl_shutdown_timeout": _FAREWELL}
            self._options = {"ssl": tls, **times}
        self._most_handshakes = most_handshakes
        self._listening: list[socket.socket] = []
        self._entering: dict[asyncio.Task[None], None] = {}

    async def open(self, host: str, port: int) -> int:
        """Listen on each address of a host; the port. Raises OSError."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(found):
            listening = _listen(family, (address[0], port, *address[2:]))
            port = listening.getsockname()[1]
            self._listening.append(listening)
            loop.add_reader(listening, self._accept, listening)
        return port

    def close(self) -> None:
        """Stop listening. What has connected by now still comes in."""
        loop = asyncio.get_running_loop()
        for listening in self._listening:
            self._accept(listening)
            loop.remove_reader(listening)
            listening.close()
        self._listening.clear()

    def give_up(self) -> None:
        """End the handshakes that still go on."""
        for entering in list(self._entering):
            entering.cancel()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._rest(listening, error)
                return
            connection.settimeout(0)
            if len(self._entering) >= self._most_handshakes:
                oldest = next(iter(self._entering))
                del self._entering[oldest]
                oldest.cancel()
            entering = asyncio.get_running_loop().create_task(self._enter(connection, peer_of(address)))
            self._entering[entering] = None
            entering.add_done_callback(lambda entered: self._entering.pop(entered, None))

    async def _enter(self, connection: socket.socket, peer: str) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._make, connection, **self._options)
        except ssl.SSLCertVerificationError as error:
            self._refused(peer, error.verify_message)
            connection.close()
        except OSError:  # no TLS, or gone
            connection.close()

    def _rest(self, listening: socket.socket, error: OSError) -> None:
        """Leave connections waiting for a moment: there are no open files left for them."""
        _log.warning("connections wait", why=str(error))
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        loop.call_later(_REST, self._go_on, listening)

    def _go_on(self, listening: socket.socket) -> None:
        if listening in self._listening:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)


def _listen(family: int, address: tuple[Any, ...]) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.settimeout(0)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        message = f"can't listen on {address[0]} port {address[1]}: {str(error.strerror).lower()}"
        raise OSError(error.errno, message) from None
    return listening
