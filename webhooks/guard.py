"""What keeps slow and hostile clients from holding connections: a time for each head, and a limit on their number."""

import asyncio
from collections.abc import Callable
from itertools import chain
from time import perf_counter
from typing import Final, cast

KEEP_ALIVE: Final = 120.0
"""Seconds. Longer than the 90 s after which the API server closes an idle connection, so that it is never the server
that closes one just as a call comes in on it (k8s.io/apimachinery/pkg/util/net, SetTransportDefaults)."""

_SWEEPS: Final = 10
"""How often slow heads are looked for in the time that a head has."""
_LATELY: Final = 1.0


def _nothing() -> bool:
    return False


class Guard:
    """Watches the connections of a listening socket; its transport says when a call begins and ends on one.

    From the first byte of a call on, its line and headers may take ``head_seconds``. A connection on which nothing was
    sent yet is left alone for as long as one that is idle between calls, ``idle_seconds``: Go's HTTP client opens some
    in advance and keeps them for a later call (net/http, Transport), which a close could lose.

    Of ``most`` connections one that never had a call makes room for another, else the one that has been without a call
    for longest. Where all have calls, ``free_one`` is asked to have one of them end soon; where it can't, the new
    connection is turned away.
    """

    def __init__(
        self,
        *,
        most: int,
        head_seconds: float,
        idle_seconds: float = KEEP_ALIVE,
        free_one: Callable[[], bool] = _nothing,
    ) -> None:
        self.last_arrival = 0.0
        self._most = most
        self._head_seconds = head_seconds
        self._idle_seconds = idle_seconds
        self._free_one = free_one
        self._new: dict[asyncio.BaseProtocol, _Watched] = {}
        self._idle: dict[asyncio.BaseProtocol, _Watched] = {}
        self._busy: dict[asyncio.BaseProtocol, _Watched] = {}
        self._sweep: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """How many connections are open."""
        return len(self._new) + len(self._idle) + len(self._busy)

    @property
    def hears_a_head(self) -> bool:
        """Whether a part of a call's head has come in on some connection."""
        return any(watched.head_since is not None for watched in self._without_a_call())

    def watched(self, protocol: asyncio.Protocol) -> asyncio.Protocol:
        """What to put between a transport and a protocol, so that the connection is watched."""
        return _Watched(protocol, self)

    def watch(self, make: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
        """A maker of protocols that are watched."""
        return lambda: self.watched(make())

    def begin(self, protocol: asyncio.BaseProtocol | None) -> None:
        """A call has come in whose head is whole."""
        if protocol is not None and (watched := self._idle.pop(protocol, None) or self._new.pop(protocol, None)):
            watched.head_since = None
            watched.busy = True
            self._busy[protocol] = watched

    def end(self, protocol: asyncio.BaseProtocol | None) -> None:
        """The call was answered."""
        if protocol is not None and (watched := self._busy.pop(protocol, None)):
            watched.busy = False
            watched.idle_since = asyncio.get_running_loop().time()
            self._idle[protocol] = watched

    def admit(self, watched: "_Watched") -> bool:
        """Take a connection in, if there is room or room can be made."""
        if len(self) >= self._most and not self._has_made_room():
            return False
        loop = asyncio.get_running_loop()
        self.last_arrival = perf_counter()
        watched.idle_since = loop.time()
        self._new[watched.inner] = watched
        if self._sweep is None:
            self._sweep = loop.call_later(self._head_seconds / _SWEEPS, self._end_slow_and_idle)
        return True

    def forget(self, watched: "_Watched") -> None:
        """A connection is gone."""
        for connections in (self._new, self._idle, self._busy):
            connections.pop(watched.inner, None)
        if not len(self) and self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def _without_a_call(self) -> chain["_Watched"]:
        return chain(self._new.values(), self._idle.values())

    def _has_made_room(self) -> bool:
        loop = asyncio.get_running_loop()
        lately = loop.time() - _LATELY
        for watched in self._without_a_call():
            # One on which a call comes in right now is spared.
            if watched.head_since is None or watched.head_since < lately:
                self.forget(watched)
                # Not before an answer that was just given has gone out.
                loop.call_soon(watched.abort)
                return True
        return self._free_one()

    def _end_slow_and_idle(self) -> None:
        loop = asyncio.get_running_loop()
        began_before = loop.time() - self._head_seconds
        idle_before = loop.time() - self._idle_seconds
        for watched in list(self._without_a_call()):
            if watched.head_since is not None:
                if watched.head_since < began_before:
                    watched.abort()
            elif watched.idle_since < idle_before:
                watched.close()
        self._sweep = loop.call_later(self._head_seconds / _SWEEPS, self._end_slow_and_idle)


class _Watched(asyncio.Protocol):
    """Stands between a transport and the server's protocol ``inner``, and passes everything on."""

    __slots__ = ("_admitted", "_guard", "_transport", "busy", "head_since", "idle_since", "inner")

    def __init__(self, inner: asyncio.Protocol, guard: Guard) -> None:
        self.inner = inner
        self.busy = False
        self.head_since: float | None = None
        self.idle_since = 0.0
        self._guard = guard
        self._admitted = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not narrowed by isinstance: transports of uvloop have no base class.
        self._transport = cast("asyncio.Transport", transport)
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
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

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
