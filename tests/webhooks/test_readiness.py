"""What a replica that is not ready says that it waits for."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import aiohttp
import pytest

from certs import Authority, SelfSigned, ServingContext, utc_now
from webhooks import make_app
from webhooks.app import TRANSPORT
from webhooks.probes import Wait
from webhooks.server import Listen, Server
from webhooks.testing import InMemoryCatalog

DAY = timedelta(days=1)


class Filling(InMemoryCatalog):
    """Never filled."""

    @property
    def synced(self) -> bool:
        return False


async def readiness(catalog: InMemoryCatalog, waits: Sequence[Wait]) -> tuple[int, str]:
    tls = SelfSigned(names=["127.0.0.1"]).serving.context
    listen = Listen(port=0, plain_port=0, quiet=0.0)
    server = Server(make_app(catalog=catalog)[TRANSPORT], tls=tls, listen=listen, waits=waits)
    await server.start()
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{server.plain_port}/readyz") as answer,
        ):
            return answer.status, await answer.text()
    finally:
        await server.stop()


async def test_all_that_speaks_against_it_is_told_a_line_each(gpu_catalog: InMemoryCatalog) -> None:
    filling = Filling()

    assert await readiness(gpu_catalog, [lambda: "", lambda: ""]) == (200, "ok\n")
    assert await readiness(gpu_catalog, [lambda: "", lambda: "a", lambda: "b"]) == (503, "a\nb\n")
    assert await readiness(filling, [lambda: "b"]) == (503, "the catalog is not filled yet\nb\n")
    assert await readiness(filling, []) == (503, "the catalog is not filled yet\n")


@pytest.mark.parametrize(("later", "said"), [(DAY / 2, ""), (2 * DAY, "the serving certificate expired at ")])
def test_a_serving_certificate_is_waited_for_and_one_that_has_expired(later: timedelta, said: str) -> None:
    now = utc_now()
    times: list[datetime] = [now]
    serving = ServingContext(clock=lambda: times[0])
    assert serving.waiting() == "there is no serving certificate yet"

    serving.swap(Authority.create(common_name="a", now=now, lifetime=9 * DAY).issue(names=["a"], now=now, lifetime=DAY))
    times[0] = now + later

    assert serving.waiting().startswith(said)
    assert bool(serving.waiting()) is bool(said)
