"""The server: admission over TLS, probes and metrics on a plain port."""

import asyncio
import ssl
from dataclasses import dataclass
from typing import Final

import structlog
from aiohttp import web

from webhooks.app import ADMISSION, Admission, make_probe_app

KEEP_ALIVE: Final = 120.0
"""Seconds. Longer than the 90 s after which the API server closes an idle connection, so that it is never the server
that closes one just as a call comes in on it (k8s.io/apimachinery/pkg/util/net, SetTransportDefaults)."""

_log = structlog.get_logger("gpu-webhooks")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Where to listen; port 0 takes a free one. Times are in seconds.

    On a stop the server goes on answering until nothing has come in for ``quiet``, at most for ``longest_drain``.
    """

    host: str = "127.0.0.1"
    port: int = 9443
    plain_port: int = 8080
    quiet: float = 0.5
    longest_drain: float = 25.0


class Server:
    """Serves an application of ``make_app`` from ``start`` to ``stop``."""

    def __init__(self, app: web.Application, *, tls: ssl.SSLContext, listen: Listen) -> None:
        self._app = app
        self._tls = tls
        self._listen = listen
        self._admission: Admission = app[ADMISSION]
        self._runners: list[web.AppRunner] = []
        self.port = listen.port
        self.plain_port = listen.plain_port

    async def start(self) -> None:
        """Listen on both ports. Raises OSError where a port can't be had."""
        try:
            self.port = await self._site(self._app, self._listen.port, self._tls)
            self.plain_port = await self._site(make_probe_app(self._admission), self._listen.plain_port, None)
        except BaseException:
            await self._cleanup()
            raise

    async def _site(self, app: web.Application, port: int, tls: ssl.SSLContext | None) -> int:
        runner = web.AppRunner(
            app, access_log=None, keepalive_timeout=KEEP_ALIVE, shutdown_timeout=5.0, auto_decompress=False
        )
        self._runners.append(runner)
        await runner.setup()
        site = web.TCPSite(runner, self._listen.host, port, ssl_context=tls, backlog=1024)
        await site.start()
        return int(runner.addresses[0][1])

    async def stop(self) -> None:
        """Not ready at once, close each connection after its answer, wait for quiet, stop listening, finish."""
        self._admission.drain()
        _log.info("draining")
        loop = asyncio.get_running_loop()
        end = loop.time() + self._listen.longest_drain
        while loop.time() < end and not self._admission.is_quiet(self._listen.quiet):  # noqa: ASYNC110 - no event ends a silence
            await asyncio.sleep(0.05)
        await self._cleanup()
        _log.info("stopped")

    async def _cleanup(self) -> None:
        for runner in self._runners:
            await runner.cleanup()
        self._runners.clear()
