"""A corner of a control plane: a namespace, classes and nodes of its own, and a client of the controller's that sees
nothing else and may be killed at a write. So many controllers can act on one control plane, each as if alone."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import _AsyncGeneratorContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from controlplane.plane import ControlPlane

from cluster import kinds
from cluster.api import Api
from cluster.connect import source
from cluster.errors import NotFound, Unreachable
from cluster.kinds import Kind
from controller.running import Running, running
from controller.state import Config

LABEL: Final = "example.com/corner"
"""On all that has no namespace, which corner it is of."""

Obj = dict[str, Any]
_numbers = itertools.count(1)
_LEFT_OUT: Final = frozenset({kinds.DEVICE_CLASSES, kinds.VOLUMES, kinds.CLAIMS, kinds.NAMESPACES, kinds.VMS})
"""Kinds that play no part: a watch of each costs a connection, and there are many controllers."""


@dataclass
class Fate:
    """What becomes of the write of this number, from 1; 0 for a client that nothing happens to.

    ``taken`` is whether the API server takes it all the same, ``killed`` whether it is the client's last.
    """

    write: int = 0
    taken: bool = True
    killed: bool = True


@dataclass
class Writes:
    """How many writes were begun, those that are under way, and whether the client is dead."""

    count: int = 0
    flying: set[asyncio.Task[Any]] = field(default_factory=set)
    dead: asyncio.Event = field(default_factory=asyncio.Event)


class Cornered(Api):
    """Sees one corner. Writes of Events, and those by which the Lease is held, are no writes of a plan: not counted."""

    corner: str
    fate: Fate
    writes: Writes

    def pages(
        self, kind: Kind, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> AsyncGenerator[Obj, None]:
        return super().pages(kind, **self._within(kind, namespace, labels, fields))

    def watch(
        self,
        kind: Kind,
        *,
        version: str,
        seconds: int,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        silence: float | None = None,
    ) -> _AsyncGeneratorContextManager[AsyncIterator[bytes]]:
        where = self._within(kind, namespace, labels, fields)
        return super().watch(
            kind,
            version=version,
            seconds=seconds,
            namespace=where["namespace"],
            labels=where["labels"],
            fields=where["fields"],
            silence=silence,
        )

    def _within(self, kind: Kind, namespace: str, labels: str, fields: str) -> dict[str, str]:
        self._live()
        if kind in _LEFT_OUT:
            raise NotFound({"code": 404, "message": "not served"}, asked=kind.resource)
        where = {"namespace": namespace or self.corner} if kind.namespaced else {"labels": f"{LABEL}={self.corner}"}
        return {"namespace": "", "labels": labels, "fields": fields, **where}

    def _live(self) -> None:
        if self.writes.dead.is_set():
            raise Unreachable("killed")

    async def get(self, kind: Kind, name: str, *, namespace: str = "") -> Obj:
        self._live()
        return await super().get(kind, name, namespace=namespace)

    async def create(self, kind: Kind, obj: Mapping[str, Any], *, namespace: str = "", dry_run: bool = False) -> Obj:
        return await self._fated(kind, obj, super().create(kind, obj, namespace=namespace, dry_run=dry_run))

    async def merge(
        self, kind: Kind, name: str, patch: Mapping[str, Any], *, namespace: str = "", subresource: str = ""
    ) -> Obj:
        call = super().merge(kind, name, patch, namespace=namespace, subresource=subresource)
        return await self._fated(kind, patch, call)

    async def delete(self, kind: Kind, name: str, *, namespace: str = "", version: str = "", uid: str = "") -> Obj:
        call = super().delete(kind, name, namespace=namespace, version=version, uid=uid)
        return await self._fated(kind, {}, call)

    async def _fated(self, kind: Kind, body: Mapping[str, Any], call: Any) -> Obj:
        if self.writes.dead.is_set():
            call.close()
            self._live()
        counted = kind != kinds.EVENTS and not (kind == kinds.LEASES and "spec" in body)
        self.writes.count += counted
        fatal = counted and self.writes.count == self.fate.write
        if fatal and self.fate.killed:
            self.writes.dead.set()
        if fatal and not self.fate.taken:
            call.close()
            raise Unreachable("the write is lost")
        # What is under way when the client dies, the API server takes: half of a deletion would be left to the pod
        # garbage collector, which is not there.
        flying = asyncio.create_task(call)
        self.writes.flying.add(flying)
        flying.add_done_callback(self.writes.flying.discard)
        answer = await asyncio.shield(flying)
        if fatal:
            raise Unreachable("the answer is lost")
        return dict(answer)


@asynccontextmanager
async def cornered(plane: ControlPlane, corner: str, fate: Fate | None = None) -> AsyncIterator[Cornered]:
    """The client of a controller of a corner."""
    api = await Cornered.of(source(kubeconfig=plane.kubeconfig(), context=None))
    api.corner, api.fate, api.writes = corner, fate or Fate(), Writes()
    try:
        yield api
    finally:
        await asyncio.gather(*api.writes.flying, return_exceptions=True)
        await api.close()


@asynccontextmanager
async def controlled(api: Cornered) -> AsyncIterator[Running]:
    """A controller runs within; the corner's namespace is its release's."""
    config = Config(namespace=api.corner, tenants={"matchLabels": {"example.com/nobody": ""}})
    async with running(api, config, service_account="none") as found:
        yield found


def new_corner() -> str:
    """A name that no other corner has."""
    return f"corner-{next(_numbers)}"
