"""Other replicas of the service than the one of an installation, called for a while in its place."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from controlplane.client import Client, ref
from controlplane.errors import APIError
from installed import RELEASE, Installed
from proxy import Proxy
from refusals import answered
from waiting import eventually

_KINDS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_PATHS: Final = {"mutate", "validate"}


@asynccontextmanager
async def served_by(
    kube: Client, home: Installed, services: Sequence[Installed], *, attempt: Callable[[], Awaitable[object]]
) -> AsyncIterator[None]:
    """Have the API server call these services of the installation ``home``, by turns; those that do not run yet run
    within. ``attempt`` is a call on which both paths are asked, and which is let in."""
    own = [service for service in services if service.service is None]
    await asyncio.gather(*(asyncio.to_thread(service.start) for service in own))
    try:
        async with Proxy(*(service.port for service in services)) as front:
            before = [answered(service) for service in services]

            async def all_are_called() -> bool:
                await asyncio.gather(*(attempt() for _ in services))
                new = [answered(service) - old for service, old in zip(services, before, strict=True)]
                return all({answer.path for answer in found} >= _PATHS for found in new)

            await _call(kube, front.url)
            try:
                await eventually(all_are_called)
                yield
            finally:
                await _call(kube, home.url)
        await eventually(lambda: _let_in(attempt))
    finally:
        for service in own:
            service.stop()


async def _let_in(attempt: Callable[[], Awaitable[object]]) -> bool:
    try:
        await attempt()
    except APIError:
        return False
    return True


async def _call(kube: Client, url: str) -> None:
    """Have both configurations name another address; paths and bundles stay."""
    for kind in _KINDS:
        found = await kube.get(ref("admissionregistration.k8s.io/v1", kind, RELEASE))
        urls = [webhook["clientConfig"]["url"] for webhook in found["webhooks"]]
        change = [
            {
                "op": "replace",
                "path": f"/webhooks/{number}/clientConfig/url",
                "value": url + "/" + old.split("/", 3)[3],
            }
            for number, old in enumerate(urls)
        ]
        await kube.patch(found, change)
