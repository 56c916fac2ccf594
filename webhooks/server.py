"""The server: admission over TLS, probes and metrics on a plain port."""

import asyncio
import math
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog
from aiohttp import web

from webhooks.clients import Clients
from webhooks.door import Door
from webhooks.guard import KEEP_ALIVE, Guard
from webhooks.probes import Wait, make_probe_app
from webhooks.shortcut import Shortcuts
from webhooks.transport import Transport

MOST_PROBES: Final = 128

_PROBE_HEAD: Final = 10.0
_MOST_HEADERS: Final = 32
"""Of up to 8 KiB each: with them a connection holds no more of a head than of a body that comes in."""
_LINGERING: Final = 0.5
_LAST_CALLS: Final = 3.0
_CUT_OFF: Final = 1.0
_NEVER: Final = 10.0**9
"""Seconds after which aiohttp would close an idle connection: the guard does, which knows of every call."""

_log = structlog.get_logger("gpu-webhooks")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Where to listen; port 0 takes a free one. Times are in seconds.

    A connection is closed, with an answer, after between half of ``connection_age`` and all of it; 0 keeps it.
    On a stop the server goes on listening until nothing has come in for ``quiet``, for ``least_drain`` in any case and
    at most for ``longest_drain``. Then the calls that are still to be answered have up to 3 s more. Silence alone does
    not tell that nobody will call any more: where calls are rare, nodes may still have it in their rules.
    """

    host: str = "127.0.0.1"
    port: int = 9443
    plain_port: int = 8080
    connection_age: float = 300.0
    quiet: float = 0.5
    least_drain: float = 0.0
    longest_drain: float = 20.0


class Server:
    """Serves a transport's calls from ``start`` to ``stop``; it is not ready while one of ``waits`` says why.

    With ``clients`` those alone may call; ``tls`` has to ask for their certificates.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        tls: ssl.SSLContext,
        listen: Listen,
        waits: Sequence[Wait] = (),
        clients: Clients | None = None,
    ) -> None:
        self.shortcuts = Shortcuts(transport, age=listen.connection_age or math.inf, clients=clients)
        self._transport = transport
        self._tls = tls
        self._listen = listen
        self._waits = waits
        self._doors: list[Door] = []
        self._runners: list[web.AppRunner | web.ServerRunner] = []
        self.port = listen.port
        self.plain_port = listen.plain_port

    async def start(self) -> None:
        """Listen on both ports. Raises OSError where a port can't be had."""
        options: dict[str, Any] = {
            "access_log": None,
            "keepalive_timeout": _NEVER,
            "lingering_time": _LINGERING,
            "max_headers": _MOST_HEADERS,
        }
        try:
            # Without the router of a web.Application, whose work shows at thousands of calls a second.
            server = web.Server(self.shortcuts.handle, auto_decompress=False, **options)
            admission = web.ServerRunner(server, shutdown_timeout=_CUT_OFF)
            protocols = self.shortcuts.before(server)
            await self._set_up(admission)
            self.port = await self._serve(protocols, self._listen.port, self._tls)

            guard = Guard(most=MOST_PROBES, head_seconds=_PROBE_HEAD, idle_seconds=KEEP_ALIVE)
            app = make_probe_app(self._transport, guard, self._waits)
            probes = web.AppRunner(app, shutdown_timeout=_CUT_OFF, **options)
            await self._set_up(probes)
            assert probes.server is not None  # noqa: S101 - it was set up
            self.plain_port = await self._serve(guard.watch(probes.server), self._listen.plain_port, None)
        except BaseException:
            await self._close()
            raise

    async def _set_up(self, runner: web.AppRunner | web.ServerRunner) -> None:
        await runner.setup()
        self._runners.append(runner)

    async def _serve(self, make: Callable[[], asyncio.Protocol], port: int, tls: ssl.SSLContext | None) -> int:
        door = Door(make, tls=tls, refused=self.shortcuts.refused.handshake)
        self._doors.append(door)
        return await door.open(self._listen.host, port)

    async def stop(self) -> None:
        """Not ready at once, close each connection after its answer, wait for quiet, stop listening, finish.

        Calls may still come in on connections that were made before the ports closed; they are waited for too.
        """
        self._transport.drain()
        _log.info("draining")
        await self._quiet(self._listen.longest_drain, least=self._listen.least_drain)
        for door in self._doors:
            door.close()
        await self._quiet(_LAST_CALLS)
        await self._close()
        _log.info("stopped")

    async def _quiet(self, longest: float, *, least: float = 0.0) -> None:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        while (passed := loop.time() - begin) < longest:
            if passed >= least and self._transport.is_quiet(self._listen.quiet):
                return
            await asyncio.sleep(0.05)

    async def _close(self) -> None:
        # Taken out first: a stop may be asked for twice.
        doors, runners = self._doors[:], self._runners[:]
        self._doors.clear()
        self._runners.clear()
        for door in doors:
            door.close()
            door.give_up()
        for runner in runners:
            await runner.cleanup()
