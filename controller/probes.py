"""The plain port: /healthz, /readyz and /metrics."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

_CUT_OFF: Final = 1.0


@asynccontextmanager
async def probes(
    registry: CollectorRegistry, missing: Callable[[], list[str]], *, host: str, port: int
) -> AsyncIterator[int]:
    """Serve within; gives the port. Ready while nothing is ``missing``. Raises OSError where a port can't be had."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        reasons = missing()
        return web.Response(status=503 if reasons else 200, text="".join(f"{why}\n" for why in reasons) or "ok\n")

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_CUT_OFF)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
