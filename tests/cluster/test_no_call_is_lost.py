"""VMIs are created without pause through two replicas of the service; whatever happens to those, no call is lost."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

import pytest
import pytest_asyncio
from balancer import Balancer
from controlplane.client import Client, ref
from controlplane.versions import NEWEST
from fleet import Fleet
from installed import Installed
from replicas import KINDS
from steady import Event, Load
from waiting import eventually

from gpu import names

RARE: Final = 0.6
"""Seconds without a call: more than the silence that a stop waits for."""

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True, slots=True)
class Scene:
    """The replicas, the load on them, and a client of the platform's admin."""

    fleet: Fleet
    load: Load
    kube: Client
    namespace: str

    @property
    def authority(self) -> dict[str, object]:
        """What names the Secret that the replicas share."""
        return ref("v1", "Secret", names.AUTHORITY, self.namespace)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(installations: Callable[[str], Installed]) -> AsyncIterator[Scene]:
    installed = await asyncio.to_thread(installations, NEWEST)
    # Its own service makes way: the webhooks' url leads to the balancer from here on.
    await asyncio.to_thread(installed.stop)
    async with Balancer(installed.port) as balancer, installed.plane.client() as kube:
        fleet, load = Fleet(installed, balancer, "--drain-least", "1.5"), Load(kube)
        made = Scene(fleet, load, kube, installed.namespace)
        try:
            await asyncio.gather(fleet.start(), fleet.start())
            await load.prepare()
            await eventually(load.right)
            yield made
        finally:
            await fleet.kill_all()
            print("", *load.events, sep="\n")
            await kube.delete(made.authority)
    await asyncio.to_thread(installed.start)


def none_lost(event: Event, *, inside: int) -> None:
    """No call of the event was lost, and at least so many were made inside."""
    assert event.lost == []
    assert len(event.within) >= inside


async def test_a_replica_that_is_replaced_under_a_steady_load(scene: Scene) -> None:
    # Given two replicas
    old = scene.fleet.replicas[0]
    async with scene.load.during("a replica replaced, as by a rollout") as event:
        # When one is replaced as a Deployment does, the new one first
        await scene.fleet.start()
        await scene.fleet.stop(old)
    # Then no call is lost, and it drained
    none_lost(event, inside=60)
    assert old.logged('"event":"stopped"') == 1


async def test_a_replica_that_is_replaced_where_calls_are_rare(scene: Scene) -> None:
    # Given two replicas, and calls that come together, with silence between
    old = scene.fleet.replicas[0]
    await scene.fleet.start()
    rare = Load(scene.kube, pause=RARE)
    async with rare.during("the other one, while calls are rare", around=4) as event:
        # When one of them stops
        await scene.fleet.stop(old)
        await event.more(8)
    scene.load.events += rare.events
    # Then it takes every connection until nobody sends it any
    none_lost(event, inside=12)
    assert old.backend.refused == 0


async def test_a_replica_that_is_killed_loses_the_calls_that_it_was_at_and_no_other(scene: Scene) -> None:
    # Given two replicas
    killed = scene.fleet.replicas[0]
    # And a balancer that tries another where one refuses: else new connections are lost until its rules are changed.
    scene.fleet.balancer.tries_others = True
    async with scene.load.during("SIGKILL of one replica") as event:
        # When one is killed
        await scene.fleet.kill(killed)
        gone = time.monotonic()
        await event.more(60)
        await scene.fleet.start()
    scene.fleet.balancer.tries_others = False
    # Then only calls that were under way are lost
    event.notes.append(f"{len(event.lost)} under way on it")
    assert [call for call in event.lost if call.began > gone] == []
    assert len(event.lost) <= 4
    assert len(event.within) >= 60


async def test_the_authoritys_secret_deleted(scene: Scene) -> None:
    before = await scene.kube.get(scene.authority)
    async with scene.load.during("CA Secret deleted") as event:
        began = time.monotonic()
        await scene.kube.delete(scene.authority)
        after = await eventually(lambda: scene.kube.get(scene.authority), every=0.01)
        event.notes.append(f"Secret back after {time.monotonic() - began:.2f} s")
        await event.more(50)
    assert after["data"]["ca.crt"] == before["data"]["ca.crt"]
    none_lost(event, inside=50)


async def test_a_wiped_bundle_is_right_again_within_a_second(scene: Scene) -> None:
    wipe = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
    async with scene.load.during("caBundle wiped") as event:
        wiped = time.monotonic()
        await asyncio.gather(
            *(scene.kube.patch(ref(kind.api_version, kind.name, names.WEBHOOKS), wipe) for kind in KINDS)
        )
        await event.more(50)
    last = max((call.ended for call in event.lost), default=wiped) - wiped
    event.notes.append(f"right after {last:.2f} s")
    assert last < 1
    assert all("failed calling webhook" in call.wrong for call in event.lost)
