"""The API server dies, etcd forgets, connections break, while tenants go on: no answer is wrong, and memory follows."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import gpukinds
import pytest
from actors import HOST_LABEL, VIRT_CONTROLLER
from controlplane.client import Client
from controlplane.errors import APIError
from controlplane.plane import ControlPlane
from controlplane.versions import NEWEST
from foreseen import NO_ANSWER, Asked
from installed import Installed
from policies.force import take_bindings_away
from proxy import Proxy
from traffic import Traffic
from waiting import eventually

RIGHT_AGAIN: Final = 5.0
"""Seconds after an event within which memory is right."""
BUSY: Final = 20.0
"""The same after one of the events, where other tests take the processor just then."""
_FOLLOWS: Final = 1.0
"""Seconds within which memory follows a change where nothing is broken."""
_READS_ROLES: Final = 20.0
"""Seconds more in which the API server may refuse by itself: it takes calls before it has read the roles."""
_TENANTS: Final = 2
_CALM: Final = 1.5


@dataclass(frozen=True, slots=True)
class Event:
    """What was done to the cluster, from when to when, and how long memory then was wrong."""

    name: str
    began: float
    ended: float
    right_after: float


class Probes:
    """Orders and classes that mean less from ``spoil`` on, so that memory has to know of it to refuse."""

    def __init__(self, kube: Client, namespace: str, name: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = name

    async def prepare(self) -> None:
        for part in ("kept", "lowered", "gone"):
            await self._kube.create(gpukinds.gpu_class(self._at(part), maxCount=4))
        for part in ("deleted", "bound"):
            device = gpukinds.gpu_device(self._namespace, self._at(part))
            await self._kube.create({**device, "spec": {"className": self._at("kept"), "count": 1}})
        self._user = await self._kube.create(gpukinds.vmi(self._namespace, self._at("user"), device=self._at("bound")))

    async def spoil(self) -> None:
        await self._kube.patch(gpukinds.gpu_class(self._at("lowered")), {"spec": {"maxCount": 1}})
        await self._kube.delete(gpukinds.gpu_class(self._at("gone")))
        await self._kube.delete(gpukinds.gpu_device(self._namespace, self._at("deleted")))
        binding = {"name": self._at("user"), "uid": self._user["metadata"]["uid"]}
        bound = gpukinds.gpu_device(self._namespace, self._at("bound"))
        await self._kube.patch(bound, {"status": {"binding": binding}}, subresource="status")

    async def refused(self) -> dict[str, bool]:
        """Which of them are; asked by dry runs."""
        made = {
            part: gpukinds.vmi(self._namespace, self._at("probe"), device=self._at(part))
            for part in ("deleted", "bound")
        }
        for part, count in (("lowered", 4), ("gone", 1)):
            made[part] = gpukinds.vmi(self._namespace, self._at("probe"))
            order = f'{{"className": "{self._at(part)}", "count": {count}}}'
            made[part]["metadata"]["annotations"] = {"gpu.cozystack.io/device-template": order}
        return {part: await self._is_refused(vmi) for part, vmi in made.items()}

    async def _is_refused(self, vmi: dict[str, Any]) -> bool:
        try:
            await self._kube.as_(VIRT_CONTROLLER).create(vmi, dry_run=True)
        except APIError as refusal:
            return refusal.code in (403, 409, 422)
        except NO_ANSWER:
            pass
        return False

    def _at(self, part: str) -> str:
        return f"{self._name}-{part}"


@asynccontextmanager
async def _running(tenants: Sequence[Traffic]) -> AsyncIterator[None]:
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for tenant in tenants:
            group.create_task(tenant.run(stop))
        yield
        stop.set()


class Cluster:
    """A control plane, and the pair installed on it with a proxy between that can be shut."""

    def __init__(self, plane: ControlPlane, proxy: Proxy, kube: Client) -> None:
        self.installed = Installed(plane, server=proxy.url)
        self.events: list[Event] = []
        self._plane, self._proxy, self._kube = plane, proxy, kube

    async def happen(self, name: str, do: Callable[[Probes], Awaitable[None]]) -> None:
        """Have something happen, and see how soon memory is right after it."""
        probes = Probes(self._kube, "probed", f"event-{len(self.events)}")
        await probes.prepare()
        assert not any((await probes.refused()).values()), "what is to be spoilt is good before"
        began = time.monotonic()
        await do(probes)
        ended = time.monotonic()

        async def all_refused() -> bool:
            refused = await probes.refused()
            assert all(refused.values()), f"memory is behind: {refused}"
            return True

        await eventually(all_refused, seconds=BUSY, every=0.02)
        self.events.append(Event(name, began, ended, time.monotonic() - ended))
        await asyncio.sleep(_CALM)

    async def break_watches(self, probes: Probes) -> None:
        self._proxy.cut()
        await probes.spoil()

    async def break_the_network(self, probes: Probes) -> None:
        await self._proxy.shut()
        await probes.spoil()
        await asyncio.sleep(2.0)
        await self._proxy.open()

    async def restart_apiserver(self, probes: Probes) -> None:
        await asyncio.to_thread(self._plane.kill_apiserver)
        await asyncio.to_thread(self._plane.start_apiserver)
        await probes.spoil()

    async def lose_the_past(self, probes: Probes) -> None:
        """What happened while the service was cut off can't be told any more: it has to read everything again."""
        await self._proxy.shut()
        await probes.spoil()
        await self._plane.compact_etcd()
        await asyncio.to_thread(self._plane.kill_apiserver)
        await asyncio.to_thread(self._plane.start_apiserver)
        await self._proxy.open()

    def lists(self) -> Counter[str]:
        """How often the service read all objects of a kind."""
        mine = [event for event in self._plane.audit_events() if event["verb"] == "list"]
        return Counter(
            event["objectRef"]["resource"]
            for event in mine
            if event.get("impersonatedUser", {}).get("username") == self.installed.user
            and "namespace" not in event["objectRef"]
        )


@asynccontextmanager
async def cluster(plane: ControlPlane) -> AsyncIterator[tuple[Cluster, list[Traffic]]]:
    """The installation, and tenants' namespaces."""
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(Proxy(int(urlsplit(plane.url).port or 0)))
        kube = await stack.enter_async_context(plane.client())
        made = Cluster(plane, proxy, kube)
        stack.callback(made.installed.stop)
        await asyncio.to_thread(made.installed.install)
        await kube.create(gpukinds.settings(made.installed.namespace))
        # What the pair says is judged here, and policies would speak first: of raw names, and to who changes a class.
        await take_bindings_away(kube)
        names = ["probed", *(f"tenant-{number}" for number in range(_TENANTS))]
        for name in names:
            metadata = {"name": name, "labels": {HOST_LABEL: name}}
            await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        await asyncio.to_thread(made.installed.start)
        yield made, [Traffic(kube, name) for name in names[1:]]


def _unexcused(asked: Asked, events: Sequence[Event]) -> bool:
    """Whether an answer is worse than an event excuses.

    In an event, and RIGHT_AGAIN seconds after, the pair may say that it can't tell, and let in by what was true before:
    a positive answer rests on memory. It never refuses by that.
    """
    ends = [event.ended + max(RIGHT_AGAIN, event.right_after) for event in events if event.began <= asked.ended]
    disturbed = max(ends, default=0.0)
    match asked.outcome:
        case "right":
            return False
        case "wrong":
            return True
        case "behind":
            return asked.began > max(disturbed, (asked.changed or 0.0) + _FOLLOWS)
        case "undecided":
            return asked.began > disturbed
        case "not asked":
            return asked.began > disturbed + _READS_ROLES


@pytest.mark.timeout(180)
async def test_no_answer_is_wrong_while_the_cluster_breaks(new_plane: Callable[..., ControlPlane]) -> None:
    plane = await asyncio.to_thread(lambda: new_plane(version=NEWEST, audit=True))
    async with cluster(plane) as (made, tenants):
        async with _running(tenants):
            await asyncio.sleep(_CALM)
            await made.happen("watches cut", made.break_watches)
            await made.happen("no network for a while", made.break_the_network)
            await made.happen("API server killed and restarted", made.restart_apiserver)
            listed = made.lists()
            await made.happen("etcd compacted", made.lose_the_past)
            listed_after = made.lists()
        service = made.installed.service
        assert service is not None
        assert service.running
    await asyncio.to_thread(plane.stop)

    asked = [answer for tenant in tenants for answer in tenant.asked]
    _show(asked, made.events)
    assert [str(answer) for answer in asked if _unexcused(answer, made.events)] == []
    assert all(tenant.rounds > 2 for tenant in tenants)
    for event in made.events:
        assert min(answer.began for answer in asked) < event.began, "the tenants were at it before"
        assert max(answer.began for answer in asked) > event.ended + event.right_after, "and after"
    assert sorted(event.right_after for event in made.events)[-2] < RIGHT_AGAIN
    assert listed_after["gpudevices"] > listed["gpudevices"], "the watch could not go on where it was"
    assert listed_after["virtualmachineinstances"] > listed["virtualmachineinstances"]


def _show(asked: Sequence[Asked], events: Sequence[Event]) -> None:
    behind = [answer for answer in asked if answer.outcome == "behind"]
    latest = max((answer.began - (answer.changed or 0) for answer in behind), default=0.0)
    print(f"{len(asked)} answers: {dict(Counter(answer.outcome for answer in asked))}")
    print(f"behind: up to {latest:.2f} s after the change")
    for event in events:
        within = [answer for answer in asked if event.began <= answer.ended <= event.ended + event.right_after]
        outcomes = dict(Counter(answer.outcome for answer in within))
        took = event.ended - event.began
        print(f"{event.name}: {took:.1f} s, memory right {event.right_after:.2f} s after; answers within: {outcomes}")
