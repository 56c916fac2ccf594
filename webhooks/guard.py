"""What keeps slow and hostile clients from holding connections: a time for each head, and a limit on their number."""

import asyncio
from collections.abc import Callable
from typing import Final

_SWEEP: Final = 1.0


class Guard:
    """Watches the connections of a listening socket; its transport says when a call begins and ends on one.

    From the first byte of a call on, its line and headers may take ``head_seconds``. A connection on which nothing was
    sent yet is left alone: Go's HTTP client opens some in advance and keeps them for a later call (net/http,
    Transport), which a close could lose. Of ``most`` connections the one that has been without a call for longest makes
    room for another; where there is none, the new one is turned away.
    """

    def __init__(self, *, most: int, head_seconds: float) -> None:
        self._most = most
        self._head_seconds = head_seconds
        self._idle: dict[asyncio.BaseProtocol, _Watched] = {}
        self._busy: dict[asyncio.BaseProtocol, _Watched] = {}
        self._sweep: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """How many connections are open."""
        return len(self._idle) + len(self._busy)

    @property
    def hears_a_head(self) -> bool:
        """Whether a part of a call's head has come in on some connection."""
        return any(watched.head_since is not None for watched in self._idle.values())

    def watch(self, make: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
        """A maker of protocols that are watched, for ``loop.create_server``."""
        return lambda: _Watched(make(), self)

    def begin(self, protocol: asyncio.BaseProtocol | None) -> None:
        """A call has come in whose head is whole."""
        if protocol is not None and (watched := self._idle.pop(protocol, None)):
            watched.head_since = None
            watched.busy = True
            self._busy[protocol] = watched

    def end(self, protocol: asyncio.BaseProtocol | None) -> None:
        """The call was answered."""
        if protocol is not None and (watched := self._busy.pop(protocol, None)):
            watched.busy = False
            self._idle[protocol] = watched

    def admit(self, watched: "_Watched") -> bool:
        """Take a connection in, if there is room or room can be made."""
        if len(self) >= self._most:
            longest = next(iter(self._idle.values()), None)
            if longest is None:
                return False
            self._idle.pop(longest.inner)
            longest.abort()
        self._idle[watched.inner] = watched
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(_SWEEP, self._end_slow_heads)
        return True

    def forget(self, watched: "_Watched") -> None:
        """A connection is gone."""
        self._idle.pop(watched.inner, None)
        self._busy.pop(watched.inner, None)
        if not len(self) and self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def _end_slow_heads(self) -> None:
        loop = asyncio.get_running_loop()
        began_before = loop.time() - self._head_seconds
        for watched in list(self._idle.values()):
            if watched.head_since is not None and watched.head_since < began_before:
                watched.abort()
        self._sweep = loop.call_later(_SWEEP, self._end_slow_heads)


class _Watched(asyncio.Protocol):
    """Stands between a transport and the server's protocol, and passes everything on."""

    __slots__ = ("_admitted", "_guard", "_transport", "busy", "head_since", "inner")

    def __init__(self, inner: asyncio.Protocol, guard: Guard) -> None:
        self.inner = inner
        self.busy = False
        self.head_since: float | None = None
        self._guard = guard
        self._admitted = False
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._admitted = self._guard.admit(self)
        if self._admitted:
            self.inner.connection_made(transport)
        else:
            self.abort()

    def data_received(self, data: bytes) -> None:
        if not self.busy and self.head_since is None:
            self.head_since = asyncio.get_running_loop().time()
        if self._admitted:
            self.inner.data_received(data)

    def abort(self) -> None:
        if isinstance(self._transport, asyncio.Transport):
            self._transport.abort()

    def eof_received(self) -> bool | None:
        return self.inner.eof_received() if self._admitted else None

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._admitted:
            self._guard.forget(self)
            self.inner.connection_lost(exc)
