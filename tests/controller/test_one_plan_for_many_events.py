"""The loop: plans when something changed or is due, never while it does not lead or does not know enough."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from aiohttp import web
from scripted import Answer, Script, listed, serving, status, thing, watched
from structlog.testing import capture_logs
from waiting import eventually

from cluster.api import Api
from cluster.kinds import GPU_DEVICES
from controller.apply import Applier
from controller.events import Recorder
from controller.keeper import Keeper, Tables
from controller.loop import Loop
from controller.metrics import Metrics
from controller.writes import Event, Plan


@dataclass
class Lease:
    """A Lease that a test gives and takes."""

    ours: asyncio.Event = field(default_factory=asyncio.Event)
    others: asyncio.Event = field(default_factory=asyncio.Event)
    remaining: float = 0.0

    def give(self) -> None:
        self.remaining = 60.0
        self.others.clear()
        self.ours.set()

    def take(self) -> None:
        self.remaining = 0.0
        self.ours.clear()
        self.others.set()

    async def acquired(self) -> None:
        await self.ours.wait()

    async def lost(self) -> None:
        await self.others.wait()


def nothing(_: datetime) -> Plan:
    return Plan()


class Heard(Recorder):
    """Keeps what it is told."""

    def __init__(self, api: Api) -> None:
        super().__init__(api, by="test")
        self.heard: list[Event] = []

    def tell(self, event: Event) -> None:
        self.heard.append(event)


class Planner:
    """Plans nothing, or what ``make`` does, and keeps what each plan knew of devices."""

    def __init__(self) -> None:
        self.make: Callable[[datetime], Plan] = nothing
        self.knew: list[list[str]] = []
        self.forgot = 0

    def plan(self, tables: Tables, *, now: datetime) -> Plan:
        self.knew.append(list(tables.values[GPU_DEVICES]))
        return self.make(now)

    def forget(self) -> None:
        self.forgot += 1


@dataclass
class Running:
    """A loop that runs."""

    wake: asyncio.Event
    lease: Lease
    planner: Planner
    metrics: Metrics
    recorder: Heard

    async def plans(self, count: int) -> None:
        """Wait for as many plans as this, and a while for more."""
        await eventually(self.made(count), seconds=5, every=0.005)
        await asyncio.sleep(0.1)
        assert len(self.planner.knew) == count

    def made(self, count: int) -> Callable[[], Awaitable[bool]]:
        """Whether there were as many plans."""

        async def look() -> bool:
            return len(self.planner.knew) >= count

        return look


class Lists(Script):
    """Answers lists as it is told, and then with an empty one; watches are silent."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await watched()(request)
        return await (self.answers.pop(0) if self.answers else listed(version=30))(request)


@asynccontextmanager
async def running(*answers: Answer, leads: bool = True) -> AsyncIterator[Running]:
    script = Lists(*answers)
    lease, planner, wake, metrics = Lease(), Planner(), asyncio.Event(), Metrics()
    async with serving(script) as api:
        readers = {GPU_DEVICES: lambda obj: str(obj["metadata"]["name"])}
        keeper = Keeper(api, readers, namespace="gpu-system", lease="gpu-controller", notice=wake.set)
        recorder = Heard(api)
        applier = Applier(api, keeper=keeper, lead=lease, recorder=recorder, metrics=metrics)
        loop = Loop(
            keeper=keeper,
            lead=lease,
            planner=planner,
            applier=applier,
            metrics=metrics,
            recorder=recorder,
            wake=wake,
        )
        async with keeper.running():
            await keeper.filled()
            task = asyncio.create_task(loop.run())
            if leads:
                lease.give()
            yield Running(wake, lease, planner, metrics, recorder)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_events_that_come_together_cost_one_plan() -> None:
    async with running() as it:
        await it.plans(1)
        for _ in range(100):
            it.wake.set()
            await asyncio.sleep(0)
        await it.plans(2)


async def test_a_kind_that_is_served_from_now_on_is_planned_for_though_nothing_is_there_of_it() -> None:
    async with running(status(404), status(404)) as it:
        await it.plans(1)

        # It is looked for again every two seconds.
        await eventually(it.made(2), seconds=10)


async def test_what_is_due_is_planned_though_nothing_changes() -> None:
    async with running() as it:
        it.planner.make = lambda now: Plan(again=now + timedelta(seconds=0.3) if len(it.planner.knew) == 1 else None)
        await it.plans(1)
        await asyncio.sleep(0.3)
        await it.plans(2)


async def test_who_takes_over_knows_what_was_written_last_though_no_watch_has_told_it_yet() -> None:
    late = thing("held-by-the-one-before", 20)
    async with running(listed(version=10), listed(late, version=20)) as it:
        await it.plans(1)

        assert it.planner.knew == [["held-by-the-one-before"]]


async def test_nothing_is_planned_by_who_does_not_lead_and_a_new_lead_begins_afresh() -> None:
    async with running(leads=False) as it:
        it.wake.set()
        await asyncio.sleep(0.1)
        assert it.planner.knew == []
        leader = it.metrics.registry.get_sample_value
        it.lease.give()
        await it.plans(1)
        assert leader("gpu_controller_leader") == 1

        it.lease.take()
        await asyncio.sleep(0.05)
        it.wake.set()
        await asyncio.sleep(0.1)
        assert (len(it.planner.knew), leader("gpu_controller_leader")) == (1, 0)
        it.lease.give()
        await it.plans(2)
        assert it.planner.forgot == 2


async def test_a_change_at_the_moment_at_which_the_lead_is_lost_keeps_nobody_leading() -> None:
    """As when a process goes on that was stopped: its time is up, and what happened meanwhile comes all at once."""
    async with running() as it:
        await it.plans(1)
        leads = it.metrics.registry.get_sample_value

        it.wake.set()
        it.lease.take()

        await it.plans(1)
        assert leads("gpu_controller_leader") == 0
        it.lease.give()
        await it.plans(2)
        assert it.planner.forgot == 2


async def test_a_plan_that_fails_is_told_once_and_made_again() -> None:
    def broken(_: datetime) -> Plan:
        raise ValueError("a bug")

    with capture_logs() as logs:
        async with running() as it:
            it.planner.make = broken

            async def failed_often() -> bool:
                failed = it.metrics.registry.get_sample_value("gpu_controller_plans_total", {"outcome": "failed"})
                return bool(failed and failed > 2)

            await eventually(failed_often)
            it.planner.make = nothing

            async def well_again() -> bool:
                return bool(logs[-1]["event"] == "GPUs are held again")

            await eventually(well_again)

    told = [line["event"] for line in logs if line["log_level"] in ("error", "info")]
    assert told.count("no plan: our own code failed, it is tried again") <= 2
    assert told[-1] == "GPUs are held again"


async def test_without_an_answer_to_what_was_written_last_nothing_is_planned() -> None:
    late = thing("held-by-the-one-before", 20)
    async with running(listed(version=10), status(500), status(500), listed(late, version=20)) as it:
        await it.plans(1)

        assert it.planner.knew == [["held-by-the-one-before"]]


async def test_what_is_true_in_plan_after_plan_is_told_when_it_begins() -> None:
    told = Event(kind=GPU_DEVICES, namespace="a", name="d", uid="u", reason="Waits", message="m")
    async with running() as it:
        it.planner.make = lambda _: Plan(notices=(told,))
        await it.plans(1)
        it.wake.set()
        await it.plans(2)

        assert it.recorder.heard == [told]
