"""The application of the plain port: /healthz, /readyz and /metrics."""

from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from webhooks.guard import Guard
from webhooks.transport import Transport

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


Wait = Callable[[], str]
"""Says why reviews should not be sent yet; empty where they may be."""


def make_probe_app(transport: Transport, guard: Guard, waits: Sequence[Wait] = ()) -> web.Application:
    """Says that the process lives, whether it should be sent reviews, and what it has counted.

    ``guard`` watches the port's connections. Not ready before every one of ``waits`` has nothing to say; the answer has
    all that speaks against it, a line each.
    """
    admission = transport.admission

    @web.middleware
    async def watched(request: web.Request, handler: Handler) -> web.StreamResponse:
        guard.begin(request.protocol)
        try:
            return await handler(request)
        finally:
            guard.end(request.protocol)

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        if transport.draining:
            return web.Response(status=503, text="shutting down\n")
        filled = admission.context.catalog.synced
        reasons = [reason for wait in waits if (reason := wait())]
        if not filled:
            reasons.insert(0, "the catalog is not filled yet")
        if reasons:
            return web.Response(status=503, text="".join(f"{reason}\n" for reason in reasons))
        return web.Response(text="ok\n")

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(admission.metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    app = web.Application(middlewares=[watched])
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    return app
