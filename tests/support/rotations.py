"""Rotations of the CA that replicas share, and replicas that are killed at one of the writes that these are made of."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self

from aiohttp import web
from controlplane.client import ref
from gate import Call, Gate
from replicas import KINDS, subject_of

from certs.authorities import certificate_of, read_secret, trusts
from gpu import names

if TYPE_CHECKING:
    from collections.abc import Collection

    from fleet import Fleet, Replica
    from scene import Scene
    from steady import Call as Create

    from certs import Authority

_OBJECTS: Final = re.compile(
    rf"/(secrets)/{names.AUTHORITY}|/((?:mutating|validating)webhookconfigurations)/{names.WEBHOOKS}"
)
_TOLD_WITHIN: Final = 0.1
"""Seconds after the end of a process within which the API server knows that its connections ended with it."""

DAYS: Final = ("--ca-lifetime", "100d", "--leaf-lifetime", "100d", "--settle-time", "1s")
"""The options of replicas that rotate their CA when their clocks are set ahead by ``DUE``, and not before."""
DUE: Final = timedelta(days=80)
"""Above two thirds of such a life, and by far less than all of it."""


@dataclass
class Rotation:
    """A rotation away from the authority ``due``, and the one replica that is killed in it, if any is.

    It is the one that makes the first write, whichever that is, that is not among those ``spared``: right after the API
    server has taken it, before the replica hears of that; where ``taken`` is false, before the API server gets it. That
    write is ``last``; ``at`` and ``gone`` are when the replica was killed and gone (as ``began``, on the monotonic
    clock). ``lapses`` are the bundles that were seen not to trust ``due``.
    """

    scene: Scene
    due: Authority
    spared: Collection[str]
    taken: bool
    began: float = field(default_factory=time.monotonic)
    last: str = ""
    at: float = 0.0
    gone: float = 0.0
    lapses: list[bytes] = field(default_factory=list)

    def cut(self, call: Create) -> bool:
        """Whether a create may have been under way on the replica that was killed."""
        return call.began <= self.gone + _TOLD_WITHIN and call.ended >= self.at

    def __str__(self) -> str:
        return f"SIGKILL in a CA rotation, {'after' if self.taken else 'before'} writing {self.last}"

    async def kills(self, replica: Replica, write: str, *, taken: bool) -> bool:
        """Kill a replica, if it is the one, and this the write and the moment; whether it is."""
        if self.last or not write or write in self.spared or taken != self.taken:
            return False
        self.last, self.at = write, time.monotonic()
        await self.scene.fleet.kill(replica)
        self.gone = time.monotonic()
        return True

    async def ended(self) -> bool:
        """True once another authority signs, every webhook trusts that and the one that was due and no other, every
        replica serves a certificate of it, and nothing is left of the steps. An AssertionError before.

        To be asked again and again: each time every replica looks at all of it too.
        """
        bundles = await self.scene.bundles()
        self.lapses += [bundle for bundle in bundles if not trusts(bundle, self.due)]
        stored = await self.scene.touch()
        assert stored.current != self.due, "the authority that was due signs still"
        assert stored.next is None, "there is another that is to sign next"
        assert stored.old == (certificate_of(self.due),), f"besides the one that signs {len(stored.old)} are trusted"
        assert set(bundles) == {stored.bundle}, "not every webhook trusts what is stored"
        assert await self._owned() == [], "a configuration has an owner of its caBundle"
        served = await _issuers(self.scene.fleet)
        assert set(served) == {subject_of(stored.current)}, f"certificates of other authorities are served: {served}"
        return True

    async def _owned(self) -> list[Any]:
        """What the service's field manager owns of the configurations."""
        found = [await self.scene.kube.get(ref(kind.api_version, kind.name, names.WEBHOOKS)) for kind in KINDS]
        entries = [entry for config in found for entry in config["metadata"]["managedFields"]]
        return [entry for entry in entries if entry["manager"] == names.BUNDLE_MANAGER]


class Roads:
    """A road to the API server for each replica, on which the writes of a rotation are seen."""

    def __init__(self, scene: Scene, *options: str) -> None:
        """``options`` are those of every replica that is started here."""
        self.scene = scene
        self.rotation: Rotation | None = None
        self._options = options
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    async def start(self) -> Replica:
        """Start a replica that takes a road of its own."""
        road = await self._open.enter_async_context(_Road(self))
        road.replica = await self.scene.fleet.start(*self._options, server=road.url)
        return road.replica

    async def begin(self, *, spared: Collection[str], taken: bool) -> Rotation:
        """The rotation that is to come now, away from the authority whose certificates all replicas serve."""
        due = await self.scene.signer()
        assert await _issuers(self.scene.fleet) == [subject_of(due)] * 2
        self.rotation = Rotation(self.scene, due, spared, taken)
        return self.rotation


class _Road(Gate):
    def __init__(self, roads: Roads) -> None:
        super().__init__(roads.scene.fleet.plane)
        self._roads = roads
        self.replica: Replica | None = None

    async def comes(self, call: Call) -> None:
        if await self._ends_at(call, taken=False):
            raise web.HTTPServiceUnavailable

    async def is_answered(self, call: Call, code: int) -> None:
        if code < 300:
            await self._ends_at(call, taken=True)

    async def _ends_at(self, call: Call, *, taken: bool) -> bool:
        rotation, replica = self._roads.rotation, self.replica
        return bool(rotation and replica and await rotation.kills(replica, _write(call), taken=taken))


async def _issuers(fleet: Fleet) -> list[str]:
    """The names of the authorities whose certificates are served. An AssertionError where a replica is just going."""
    try:
        return await asyncio.gather(*(replica.issuer() for replica in fleet.replicas))
    except OSError as error:
        raise AssertionError("a replica takes no connection") from error


def _write(call: Call) -> str:
    """What a call does to the CA's Secret or to a configuration, in words; empty where it does nothing to those."""
    found = _OBJECTS.search(call.path)
    if not found or call.method == "GET":
        return ""
    if found[2]:
        return f"the {'caBundles' if 'webhooks' in call.body else 'managedFields'} of {found[2]}"
    stored = read_secret(call.body)
    assert stored
    return f"a Secret with {'the next CA' if stored.next else 'no next CA'} and {len(stored.old)} old"
