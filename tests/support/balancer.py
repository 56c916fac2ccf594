"""What a Service does for its pods: new connections go to those that are ready, as far as that is known by now."""

import asyncio
import itertools
from contextlib import suppress
from typing import Any, Final, Self, cast

_ADDRESS: Final = "127.0.0.1"
_PROBE_SECONDS: Final = 3.0
"""As in the chart; a busy machine is to cost no replica its calls."""


class Backend:
    """A process to send connections to. ``taken`` counts those it got, ``refused`` those that it would not take."""

    def __init__(self, port: int, plain_port: int) -> None:
        self.port = port
        self.plain_port = plain_port
        self.ready = False
        self.leaving = False
        self.taken = 0
        self.refused = 0


class Balancer:
    """Passes TCP connections on to backends in turn.

    It asks each for ``/readyz`` every ``interval`` seconds, as kubelets do, and goes by an answer only ``lag`` seconds
    later, since it takes that long until every node's rules have it. Until then a backend that stops gets new
    connections still, and the connections that it has stay what they are for as long as both ends want. A connection
    that a backend does not take is lost; with ``tries_others`` the next backend gets it.
    """

    def __init__(self, port: int, *, interval: float = 0.2, lag: float = 0.7) -> None:
        self.port = port
        self.interval = interval
        self.lag = lag
        self.tries_others = False
        self.backends: list[Backend] = []
        self._turns = itertools.count()
        self._open: set[_End] = set()
        self._entering: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._probing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Front(self), _ADDRESS, self.port)
        self._probing = asyncio.create_task(self._probe())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._probing:
            self._probing.cancel()
            await asyncio.wait([self._probing])
        if self._server:
            self._server.close()
        while self._entering or self._open:
            for end in list(self._open):
                end.abort()
            await asyncio.sleep(0)

    def add(self, port: int, plain_port: int) -> Backend:
        """Look after another process."""
        backend = Backend(port, plain_port)
        self.backends.append(backend)
        return backend

    def remove(self, backend: Backend) -> None:
        """Have done with a process that is gone, as soon as that is known."""
        backend.leaving = True

    async def _probe(self) -> None:
        loop = asyncio.get_running_loop()
        seen: dict[Backend, bool] = {}
        while True:
            self.backends = [backend for backend in self.backends if backend.ready or not backend.leaving]
            for backend in self.backends:
                ready = await _is_ready(backend.plain_port)
                if seen.get(backend, False) != ready:
                    seen[backend] = ready
                    loop.call_later(self.lag, setattr, backend, "ready", ready)
            await asyncio.sleep(self.interval)

    def enter(self, front: "_Front") -> None:
        """A connection has come in."""
        task = asyncio.get_running_loop().create_task(self._connect(front))
        self._entering.add(task)
        task.add_done_callback(self._entering.discard)

    async def _connect(self, front: "_Front") -> None:
        ready = [backend for backend in self.backends if backend.ready]
        first = next(self._turns)
        for turn in range(len(ready) if self.tries_others else min(1, len(ready))):
            backend = ready[(first + turn) % len(ready)]
            try:
                _, back = await asyncio.get_running_loop().create_connection(lambda: _End(self), _ADDRESS, backend.port)
            except OSError:
                backend.refused += 1
                continue
            backend.taken += 1
            front.meet(back)
            return
        front.abort()

    def opened(self, end: "_End") -> None:
        self._open.add(end)

    def closed(self, end: "_End") -> None:
        self._open.discard(end)


class _End(asyncio.Protocol):
    """One end of a connection; what comes in at one goes out at the other, its end too."""

    def __init__(self, balancer: Balancer) -> None:
        self._balancer = balancer
        self._transport: asyncio.Transport | None = None
        self.other: _End | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._balancer.opened(self)

    def data_received(self, data: bytes) -> None:
        if self.other and self.other._transport:
            self.other._transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._balancer.closed(self)
        if self.other and self.other._transport:
            # A reset is passed on as one.
            (self.other.abort if exc else self.other._transport.close)()

    def abort(self) -> None:
        if self._transport:
            self._transport.abort()

    def read_on(self, *, on: bool) -> None:
        if self._transport and not self._transport.is_closing():
            (self._transport.resume_reading if on else self._transport.pause_reading)()

    def pause_writing(self) -> None:
        if self.other:
            self.other.read_on(on=False)

    def resume_writing(self) -> None:
        if self.other:
            self.other.read_on(on=True)


class _Front(_End):
    """The end of who called."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.read_on(on=False)
        self._balancer.enter(self)

    def meet(self, back: Any) -> None:
        """Pass on to another end from now on."""
        self.other, back.other = back, self
        if self._transport is None:
            back.abort()
        self.read_on(on=True)


async def _is_ready(port: int) -> bool:
    with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
        async with asyncio.timeout(_PROBE_SECONDS):
            reader, writer = await asyncio.open_connection(_ADDRESS, port)
            try:
                writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                return b" 200 " in await reader.readline()
            finally:
                writer.close()
    return False
