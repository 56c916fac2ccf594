"""The loop: stuck where it finishes nothing though there is work, and not while there is none or nobody to ask."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from aiohttp import web
from scripted import Script, listed, serving, status, watched
from waiting import eventually

from cluster.kinds import GPU_DEVICES
from cluster.watchdog import Progress
from controller.apply import Applier
from controller.events import Recorder
from controller.keeper import Keeper, Tables
from controller.loop import STUCK, Loop
from controller.metrics import Metrics
from controller.writes import Plan, Write


class Readable(Script):
    """Has empty lists and silent watches, and nothing else."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await watched()(request)
        lists = request.method == "GET" and request.path.endswith("/gpudevices")
        return await (listed(version=10) if lists else status(503))(request)


class Always:
    """Leads for ever."""

    remaining = 60.0

    async def acquired(self) -> None:
        return

    async def lost(self) -> None:
        await asyncio.Event().wait()


@dataclass
class Watched:
    """A loop that runs by a clock that a test moves; ``plans`` counts those that were begun."""

    make: Callable[[], Plan]
    plans: int = 0
    now: float = 0.0
    stuck: Callable[[], str] = str

    def plan(self, tables: Tables, *, now: datetime) -> Plan:  # noqa: ARG002 - the loop's
        self.plans += 1
        return self.make()

    def forget(self) -> None:
        return

    async def planned(self, count: int = 1) -> None:
        async def look() -> bool:
            return self.plans >= count

        await eventually(look, seconds=20, every=0.01)

    async def says(self, wanted: str) -> None:
        async def look() -> bool:
            said = self.stuck()
            assert wanted in said if wanted else not said
            return True

        await eventually(look, seconds=20, every=0.01)


@asynccontextmanager
async def looping(make: Callable[[], Plan]) -> AsyncIterator[Watched]:
    found = Watched(make)
    wake, metrics, progress = asyncio.Event(), Metrics(), Progress(monotonic=lambda: found.now)
    async with serving(Readable()) as api:
        readers = {GPU_DEVICES: lambda obj: str(obj["metadata"]["name"])}
        keeper = Keeper(api, readers, namespace="gpu-system", lease="gpu-controller", notice=wake.set)
        recorder, lead = Recorder(api, by="test"), Always()
        applier = Applier(api, keeper=keeper, lead=lead, recorder=recorder, metrics=metrics, progress=progress)
        loop = Loop(
            keeper=keeper,
            lead=lead,
            planner=found,
            applier=applier,
            metrics=metrics,
            recorder=recorder,
            wake=wake,
            progress=progress,
        )
        found.stuck = loop.stuck
        async with keeper.running():
            task = asyncio.create_task(loop.run())
            try:
                yield found
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


async def test_it_is_stuck_when_a_plan_does_not_end() -> None:
    go_on = threading.Event()

    def hang() -> Plan:
        go_on.wait(60)
        return Plan()

    async with looping(hang) as it:
        await it.planned()
        it.now += STUCK - 1
        assert it.stuck() == ""
        it.now += 2
        assert it.stuck() == "no plan and no write has come to its end for 121 s, though there is work"

        go_on.set()
        await it.says("")


async def test_it_is_stuck_when_plan_after_plan_fails_and_says_why() -> None:
    def broken() -> Plan:
        raise ValueError("a bug")

    async with looping(broken) as it:
        await it.planned()
        it.now += STUCK + 1
        await it.planned(3)
        await it.says("though there is work: our own code failed: ValueError('a bug')")


async def test_it_is_not_stuck_while_there_is_nothing_to_do() -> None:
    async with looping(Plan) as it:
        await it.planned()
        it.now += 10 * STUCK
        await it.says("")


async def test_it_is_not_stuck_while_the_api_server_can_not_be_asked() -> None:
    """A new start would help nobody."""
    write = Write(kind=GPU_DEVICES, verb="merge", namespace="a", name="d", why="a test")
    async with looping(lambda: Plan(writes=(write,))) as it:
        # Nobody knows whether the write was made, and nobody can be asked, so that no other plan is made.
        await it.planned()
        it.now += 10 * STUCK
        await it.says("")
        assert it.plans == 1
