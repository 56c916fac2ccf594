"""The short way from a connection to admission, for calls that could not be plainer."""

import asyncio
import gc
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

import structlog
from aiohttp import web

from webhooks.clients import Clients, Refusal, Refused, peer_of
from webhooks.eager import eager
from webhooks.heads import Head, Heads, first_head
from webhooks.transport import Target, Transport, is_plain
from webhooks.written import Written

_log = structlog.get_logger("gpu-webhooks")

_PATIENCE: Final = 0.05
_LARGEST: Final = 256 * 1024
_MOST_COMING: Final = 4 * 1024 * 1024
_REFUSED: Final = 10.0
_SWEEP: Final = 64


class Shortcuts:
    """Spares plain calls what aiohttp does for calls of every kind, which costs more than to judge them.

    It knows of no HTTP itself. A call goes the long way, through aiohttp, unless its head is the same as that of a call
    that went the long way before and was found plain, but for the length of its body; and unless the call is whole
    within a moment, and it is certain that on its connection there was nothing but such calls, all of them answered.
    A connection on which anything else came goes the long way for good.

    Where there are ``clients`` each connection is judged by them once, when it is made. One that may not call never
    takes the short way; its calls are refused, and it has ten seconds for them. A connection that is older than
    ``age`` seconds, or a part of it between half and all, is closed with its next answer: so those who call come to
    spread over all replicas again, and a certificate is looked at again.

    ``patience`` is the moment, in seconds, and a small part of the time that a call has; ``taken`` is how many calls
    have gone the short way, ``coming`` how many bytes are set aside for bodies that come in on it.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        patience: float = _PATIENCE,
        age: float = math.inf,
        clients: Clients | None = None,
    ) -> None:
        self.patience = patience
        self.transport = transport
        self.clients = clients
        self.refused = Refused(transport.admission.metrics)
        self._age = age
        self.heads: Heads[Target] = Heads()
        self.coming = 0
        self.taken = 0
        self._gone = 0
        self._connections: dict[asyncio.BaseProtocol, _Shortcut] = {}
        self.written = Written()

    def before(self, make: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
        """A maker of protocols that take the short way where they can, and pass on the rest to those of ``make``.

        Those are to have their calls answered by ``handle``. The transport's guard watches them.
        """
        return lambda: _Shortcut(self, make())

    def add(self, shortcut: "_Shortcut") -> None:
        """A connection was made."""
        self._connections[shortcut.server] = shortcut

    def remove(self, shortcut: "_Shortcut") -> None:
        """A connection is gone."""
        self._connections.pop(shortcut.server, None)
        self._gone += 1
        if not self._gone % _SWEEP:
            # One that ended with an error is in a circle with its traceback, and has a buffer of 256 KiB that the
            # collector does not count: it would wait for a thousand of them (see collect_rarely).
            gc.collect(1)

    def life(self) -> float:
        """How many seconds a new connection is kept for calls."""
        return self._age * random.uniform(0.5, 1.0)  # noqa: S311 - no secret

    async def handle(self, call: web.BaseRequest) -> web.Response:
        """Answer a call that came the long way."""
        shortcut = self._connections.get(cast("asyncio.BaseProtocol", call.protocol))
        if self.clients is not None:
            if shortcut is None:
                # Gone before its call was begun: nobody hears the answer, and nobody knows who called.
                return await self.transport.handle(call, refusal="the connection is gone")
            if shortcut.refusal is not None:
                self.refused.note(shortcut.refusal, peer=shortcut.peer)
                return await self.transport.handle(call, refusal=shortcut.refusal.message)
        response = await self.transport.handle(call)
        if shortcut is not None:
            if shortcut.is_old:
                response.force_close()
            else:
                shortcut.has_answered(call)
        return response


class _Shortcut(asyncio.Protocol):
    """A connection: between its transport and what else would serve it."""

    __slots__ = (
        "_all",
        "_at_rest",
        "_behind",
        "_coming",
        "_head",
        "_long_way",
        "_old_at",
        "_passed",
        "_task",
        "_time_to_refuse",
        "_transport",
        "_writable",
        "refusal",
        "server",
    )

    def __init__(self, shortcuts: Shortcuts, server: asyncio.Protocol) -> None:
        self.server = server
        self.refusal: Refusal | None = None
        self._time_to_refuse: asyncio.TimerHandle | None = None
        self._old_at = math.inf
        self._long_way = shortcuts.transport.guard.watched(server)
        self._all = shortcuts
        self._transport: asyncio.Transport | None = None
        self._writable = True
        # Whether all that was passed on were whole plain calls, so that the next byte begins a call.
        self._at_rest = True
        self._head = b""
        self._passed = 0
        self._coming: _Coming | None = None
        self._task: asyncio.Task[None] | None = None
        self._behind = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not narrowed by isinstance: transports of uvloop have no base class.
        self._transport = cast("asyncio.Transport", transport)
        self._all.add(self)
        loop = asyncio.get_running_loop()
        self._old_at = loop.time() + self._all.life()
        if (clients := self._all.clients) is not None:
            self.refusal = clients.refusal(transport.get_extra_info("peercert"))
            if self.refusal is not None:
                # For good: nothing of it is ever found plain.
                self._at_rest = False
                self._time_to_refuse = loop.call_later(_REFUSED, self._transport.abort)
        self._long_way.connection_made(transport)

    @property
    def is_old(self) -> bool:
        """Whether the next answer should be the last."""
        return asyncio.get_running_loop().time() >= self._old_at

    @property
    def peer(self) -> str:
        """The address that the connection is from."""
        return peer_of(self._transport.get_extra_info("peername")) if self._transport is not None else ""

    def data_received(self, data: bytes) -> None:
        if self._task is not None:
            self._behind += data
            if self._transport is not None:
                self._transport.pause_reading()
        elif self._coming is not None:
            self._go_on(self._coming, data)
        elif not self._at_rest or not self._begin(data):
            self._pass_on(data)

    def _pass_on(self, data: bytes) -> None:
        if self._at_rest:
            self._at_rest = False
            self._head = first_head(data)
            self._passed = 0
        self._passed += len(data)
        self._long_way.data_received(data)

    def has_answered(self, call: web.BaseRequest) -> None:
        """A call that was passed on was answered. Where it was all that was, and plain, the next may be shorter."""
        is_all = bool(self._head) and self._passed == len(self._head) + (call.content_length or 0)
        if not is_all or not call.content.is_eof() or not is_plain(call):
            return
        heads = self._all.heads
        self._at_rest = heads.find(self._head) is not None or heads.learn(self._head, Target.of(call.raw_path))

    def _begin(self, data: bytes) -> bool:
        """Take a call on, if it can go the short way."""
        transport = self._all.transport
        head = self._all.heads.find(data)
        if head is None or transport.draining or not self._writable:
            return False
        missing = head.size + head.length - len(data)
        if missing < 0 or head.length > _LARGEST or not transport.has_room(head.length):
            return False
        if missing and self._all.coming + head.length > _MOST_COMING:
            return False
        loop = asyncio.get_running_loop()
        until = loop.time() + head.found.seconds
        transport.begin(self.server)
        if missing:
            self._all.coming += head.length
            self._coming = _Coming(head, until, [data], missing, loop.call_later(self._all.patience, self._hand_over))
        else:
            self._answer(head.found, data[head.size :], until)
        return True

    def _go_on(self, coming: "_Coming", data: bytes) -> None:
        coming.parts.append(data)
        coming.missing -= len(data)
        if coming.missing < 0:
            self._hand_over()
        elif not coming.missing:
            self._end_of(coming)
            self._answer(coming.head.found, b"".join(coming.parts)[coming.head.size :], coming.until)

    def _end_of(self, coming: "_Coming") -> None:
        coming.timer.cancel()
        self._all.coming -= coming.head.length
        self._coming = None

    def _hand_over(self) -> None:
        """Have a call go the long way after all."""
        if self._coming is not None:
            parts = self._coming.parts
            self._end_of(self._coming)
            self._all.transport.end(self.server)
            self._pass_on(b"".join(parts))

    def _answer(self, target: Target, body: bytes, until: float) -> None:
        self._all.taken += 1
        # A task even where the decision waits for nothing: what it calls may ask for the task that it is in.
        task = eager(self._write_answer(target, body, until), asyncio.get_running_loop())
        if not task.done():
            self._task = task

    async def _write_answer(self, target: Target, body: bytes, until: float) -> None:
        transport = self._all.transport
        try:
            reply = await transport.reply(target, body, until)
            # What was sent behind it already is answered first.
            closes = transport.sends_away or (self.is_old and not self._behind)
            if self._transport is not None and not self._transport.is_closing():
                self._transport.write(self._all.written(reply, closes=closes))
                if closes:
                    self._transport.close()
        finally:
            transport.end(self.server)
            self._task = None
            if self._behind:
                self._catch_up()

    def _catch_up(self) -> None:
        behind, self._behind = self._behind, b""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self.data_received(behind)

    def eof_received(self) -> bool | None:
        return self._long_way.eof_received()

    def pause_writing(self) -> None:
        self._writable = False
        self._long_way.pause_writing()

    def resume_writing(self) -> None:
        self._writable = True
        self._long_way.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._all.remove(self)
        if self._time_to_refuse is not None:
            self._time_to_refuse.cancel()
        if (coming := self._coming) is not None:
            self._end_of(coming)
            self._all.transport.lost(coming.head.found)
            self._all.transport.end(self.server)
        self._long_way.connection_lost(exc)


@dataclass(slots=True)
class _Coming:
    """A call whose body is not whole yet."""

    head: Head[Target]
    until: float
    parts: list[bytes]
    missing: int
    timer: asyncio.TimerHandle
