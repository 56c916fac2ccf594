"""What the controller knows of the cluster: a table for each kind, kept by watches, with its own writes put in."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, NamedTuple, Self, TypeVar

import structlog

from cluster.api import Api
from cluster.errors import NotFound
from cluster.kinds import CONFIG_MAPS, LEASES, Kind
from cluster.table import Table
from cluster.watch import SILENCE, Watch
from controller.unread import salvage
from controller.writes import Target
from gpu import names
from gpu.errors import FieldError

T = TypeVar("T")
Reader = Callable[[Mapping[str, Any]], Any | None]

STALE: Final = 2 * SILENCE
"""Seconds without news of a kind after which no plan is made: so long it takes to be sure that no connection is to be
had. What a plan made on older news would write is refused where the object itself is newer, but not where another took
the GPU meanwhile."""

_log = structlog.get_logger("gpu-webhooks")


class Tables(NamedTuple):
    """The values of every kind, and which kinds the API server has."""

    values: Mapping[Kind, Sequence[Any]]
    served: frozenset[Kind]


class Noticed(Table[T]):
    """A table that tells when something in it became another."""

    def __init__(
        self,
        name: str,
        read: Callable[[Mapping[str, Any]], T | None],
        notice: Callable[[], None],
        *,
        salvage: Callable[[Mapping[str, Any], str], T | None],
    ) -> None:
        super().__init__(name, read, salvage=salvage)
        self._notice = notice
        self._served = False

    def begin(self, version: str) -> None:
        """See Table; without a version the kind is not served."""
        super().begin(version)
        self._served = bool(version)

    def end(self) -> None:
        """See Table. That a kind is served now is news, though nothing may be there of it yet."""
        super().end()
        if self._served:
            self._notice()

    def changed(self, old: T | None, new: T | None) -> None:
        """See Table."""
        super().changed(old, new)
        if old != new:
            self._notice()


class Keeper:
    """The values that ``readers`` make of every object of their kinds; a kind that is not served has none.

    What can't be read is there as what could be told of it (controller.unread).

    Of ConfigMaps and Leases only the settings and the Lease ``lease`` in ``namespace`` are kept. ``notice`` is called
    whenever something became another. What is in doubt is read afresh by ``settle``: a write of which nobody knows
    whether it was made, or that met an object that is not as memory has it.
    """

    def __init__(
        self,
        api: Api,
        readers: Mapping[Kind, Reader],
        *,
        namespace: str,
        lease: str,
        notice: Callable[[], None],
        silence: float = SILENCE,
    ) -> None:
        self._api = api
        self._tables: dict[Kind, Noticed[Any]] = {
            kind: Noticed(kind.name, read, notice, salvage=partial(salvage, kind)) for kind, read in readers.items()
        }
        only = {CONFIG_MAPS: names.SETTINGS, LEASES: lease}
        self.watches = [
            Watch(api, kind, table, silence=silence, **_where(namespace, only.get(kind)))
            for kind, table in self._tables.items()
        ]
        self._doubts: set[Target] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Kept up to date within; nothing is filled yet when it begins."""
        tasks = [asyncio.create_task(watch.run(), name=f"watch {watch.kind.resource}") for watch in self.watches]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def missing(self) -> list[str]:
        """What is not known well enough to plan on, and why: kinds not read yet, or not heard of for too long."""
        oldest = time.monotonic() - STALE
        return [
            f"{watch.kind.resource}: {watch.problem or 'still being read'}"
            for watch in self.watches
            if not watch.filled.is_set() or watch.heard < oldest
        ]

    async def filled(self) -> None:
        """Wait until everything was read once."""
        for watch in self.watches:
            await watch.filled.wait()

    @property
    def served(self) -> frozenset[Kind]:
        """The kinds that the API server has."""
        return frozenset(watch.kind for watch in self.watches if watch.served)

    def tables(self) -> Tables:
        """Everything there is now."""
        return Tables({kind: list(table.every()) for kind, table in self._tables.items()}, self.served)

    def get(self, kind: Kind, namespace: str, name: str) -> Any | None:
        """A value."""
        table = self._tables.get(kind)
        return table.get(namespace, name) if table else None

    def remember(self, kind: Kind, obj: Mapping[str, Any]) -> None:
        """Put in an object as the API server gave it, unless a watch has told of a later state."""
        table = self._tables.get(kind)
        if table is None:
            return
        try:
            table.remember(obj)
        except FieldError as error:
            # The watch will come to the same end, and says so once.
            _log.debug("what was written can't be read", what=kind.resource, why=str(error))

    def doubt(self, target: Target) -> None:
        """An object may not be as memory has it."""
        if target[0] in self._tables:
            self._doubts.add(target)

    async def settle(self) -> None:
        """Read what is in doubt. Raises CatalogError; what was not read then stays in doubt."""
        for target in list(self._doubts):
            kind, namespace, name = target
            # What is gone, the watch will tell; until then memory has it, and its GPUs are not given away.
            with suppress(NotFound):
                self.remember(kind, await self._api.get(kind, name, namespace=namespace))
            self._doubts.discard(target)

    async def catch_up(self, kinds: Iterable[Kind]) -> None:
        """Read all of these kinds as they are now, whatever the watches have told so far. Raises CatalogError."""
        for kind in kinds:
            if kind in self.served:
                async with aclosing(self._api.pages(kind)) as pages:
                    async for page in pages:
                        for obj in page["items"]:
                            self.remember(kind, obj)


def _where(namespace: str, name: str | None) -> dict[str, str]:
    return {"namespace": namespace, "fields": f"metadata.name={name}"} if name else {}
