"""The plain port: /healthz, /readyz and /metrics."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from cluster.aside import served_aside
from cluster.watchdog import Pulse, stacks

_log = structlog.get_logger("gpu-webhooks")


@asynccontextmanager
async def probes(
    registry: CollectorRegistry,
    missing: Callable[[], list[str]],
    *,
    stuck: Callable[[], str],
    host: str,
    port: int,
    pulse: Pulse | None = None,
) -> AsyncIterator[int]:
    """Serve within, from a thread of its own; gives the port. Raises OSError where a port can't be had.

    Ready while nothing is ``missing``; healthy while the event loop turns and ``stuck`` has nothing to say. Both are
    called in that thread.
    """
    async with pulse or Pulse() as beating:
        app = _Probes(registry, missing, lambda: list(filter(None, (beating.problem(), stuck()))))
        async with served_aside(app.make, host=host, port=port) as found:
            yield found


class _Probes:
    def __init__(
        self, registry: CollectorRegistry, missing: Callable[[], list[str]], ailing: Callable[[], list[str]]
    ) -> None:
        self._registry = registry
        self._missing = missing
        self._ailing = ailing
        self._told = False

    def make(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        return app

    async def _healthz(self, _: web.Request) -> web.Response:
        reasons = self._ailing()
        if reasons and not self._told:
            why = "; ".join(reasons)
            _log.error("not healthy: where that stays so, kubelet starts it anew", why=why, stacks=stacks())
        self._told = bool(reasons)
        return _answer(reasons)

    async def _readyz(self, _: web.Request) -> web.Response:
        return _answer(self._missing())

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _answer(reasons: list[str]) -> web.Response:
    return web.Response(status=503 if reasons else 200, text="".join(f"{why}\n" for why in reasons) or "ok\n")
