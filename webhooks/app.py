"""The aiohttp application."""

from typing import Final

from aiohttp import web

from gpu.catalog import Catalog
from gpu.clock import Clock, utc_now
from webhooks.admission import Admission
from webhooks.settings import Settings
from webhooks.transport import Transport

ADMISSION: Final = web.AppKey("admission", Admission)
TRANSPORT: Final = web.AppKey("transport", Transport)

_DEFAULTS: Final = Settings()


def make_app(*, catalog: Catalog, settings: Settings = _DEFAULTS, clock: Clock = utc_now) -> web.Application:
    """The aiohttp application with POST /mutate and POST /validate.

    ``app[ADMISSION]`` is what judges, ``app[TRANSPORT]`` what takes the calls.
    """
    admission = Admission.of(catalog=catalog, settings=settings, clock=clock)
    transport = Transport(admission)
    app = web.Application()
    app[ADMISSION] = admission
    app[TRANSPORT] = transport
    app.router.add_route("*", "/{path:.*}", transport.handle, expect_handler=_leave_it)
    return app


async def _leave_it(_: web.BaseRequest) -> None:
    """The transport asks for a body itself, once it knows that it wants it."""
