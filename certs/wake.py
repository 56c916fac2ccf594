"""Being woken when an object changes.

What is done on it looks at the API server afresh, so a watch that is late or lost costs time and nothing else.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NoReturn

import structlog

from cluster.errors import ApiError
from gpu.errors import GPUError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from cluster.api import Api
    from cluster.kinds import Kind

_SECONDS: Final = 300
_SILENCE: Final = 120.0
"""The API server sends a bookmark about every minute (k8s.io/apiserver/pkg/storage/cacher, bookmarkFrequency)."""

_PAUSE: Final = 0.5
_BOOKMARK: Final = b'{"type":"BOOKMARK"'

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@asynccontextmanager
async def watching(api: Api, objects: Sequence[tuple[Kind, str, str]], woken: asyncio.Event) -> AsyncIterator[None]:
    """While the context lasts, set `woken` at each change of the objects (kind, name, namespace), there or not."""
    tasks = [asyncio.create_task(_watch(api, kind, name, namespace, woken)) for kind, name, namespace in objects]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _watch(api: Api, kind: Kind, name: str, namespace: str, woken: asyncio.Event) -> NoReturn:
    told = ""
    while True:
        try:
            await _watch_once(api, kind, name, namespace, woken)
            told = ""
        except ApiError as error:
            if str(error) != told:
                told = str(error)
                _log.warning("certificates: a change is noticed late", error=told, what=f"{kind.plural}/{name}")
        except (GPUError, OSError):
            pass  # The rounds meet the same and tell it.
        except Exception as error:  # noqa: BLE001 - a watch that ended would never be missed
            _log.error("certificates: a watch failed", error=str(error), kind=type(error).__name__)
        await asyncio.sleep(_PAUSE)


async def _watch_once(api: Api, kind: Kind, name: str, namespace: str, woken: asyncio.Event) -> None:
    # Without a resource version the watch begins with the object as it is, which makes up for what was missed.
    async with api.watch(
        kind, version="", seconds=_SECONDS, namespace=namespace, fields=f"metadata.name={name}", silence=_SILENCE
    ) as lines:
        async for line in lines:
            if not line.startswith(_BOOKMARK):
                woken.set()
