"""The loop: whatever happens, a plan; after a plan, its writes; and neither by who does not lead."""

import asyncio
import random
from contextlib import suppress
from datetime import datetime
from typing import Final, Protocol

import structlog

from cluster.events import pause
from cluster.kinds import GPU_CLASSES, GPU_DEVICES
from cluster.watchdog import Progress
from controller.apply import Applier, Outcome
from controller.events import Recorder
from controller.keeper import Keeper, Tables
from controller.metrics import Metrics
from controller.writes import Event, Plan
from gpu.clock import Clock, utc_now
from gpu.errors import CatalogError

BREATH: Final = 0.02
"""Seconds that a change waits for others: events that come together cost one plan."""

LONGEST_WAIT: Final = 60.0
"""Seconds after which a plan is made though nothing happened."""

STUCK: Final = 120.0
"""Seconds without a plan or a write, though there is work, after which the loop counts as stuck."""

_log = structlog.get_logger("gpu-webhooks")


class Lead(Protocol):
    """The Lease, as far as the loop is concerned; see cluster.leader.Leader."""

    async def acquired(self) -> None:
        """Wait until we are the leader."""

    async def lost(self) -> None:
        """Wait until we are not."""


class Planner(Protocol):
    """Makes plans; see controller.planner."""

    def plan(self, tables: Tables, *, now: datetime) -> Plan:
        """What is to be written; called in a thread, one call at a time."""

    def forget(self) -> None:
        """Another led meanwhile: what was seen before counts for nothing."""


class Loop:
    """Plans and writes for as long as it leads. ``wake`` is set by whoever knows of a change."""

    def __init__(
        self,
        *,
        keeper: Keeper,
        lead: Lead,
        planner: Planner,
        applier: Applier,
        metrics: Metrics,
        recorder: Recorder,
        wake: asyncio.Event,
        clock: Clock = utc_now,
        progress: Progress | None = None,
        stuck: float = STUCK,
    ) -> None:
        self._keeper = keeper
        self._lead = lead
        self._planner = planner
        self._applier = applier
        self._metrics = metrics
        self._recorder = recorder
        self._wake = wake
        self._clock = clock
        self._progress = progress or Progress()
        self._stuck = stuck
        self._noticed: frozenset[Event] = frozenset()
        self._failures = 0
        self._problem = ""

    def stuck(self) -> str:
        """Why a new start would be better: nothing gets on though there is work; empty where all is well.

        While the API server can't be reached a new start helps nobody. May be called from another thread.
        """
        seconds = self._progress.stuck
        if seconds <= self._stuck:
            return ""
        why = f": {self._problem}" if self._problem else ""
        return f"no plan and no write has come to its end for {seconds:.0f} s, though there is work{why}"

    async def run(self) -> None:
        """Lead whenever the Lease is ours, for ever."""
        while True:
            await self._lead.acquired()
            self._metrics.led(leads=True)
            leading = asyncio.create_task(self._leading(), name="leading")
            try:
                await self._lead.lost()
            finally:
                # At once: another may write from now on.
                leading.cancel()
                await asyncio.gather(leading, return_exceptions=True)
                self._metrics.led(leads=False)
                self._progress.rest()

    async def _leading(self) -> None:
        self._planner.forget()
        knows = False
        while True:
            try:
                if not knows:
                    await self._keeper.filled()
                    self._progress.step()
                    # The watches may not have told yet what the one before us wrote last: GPUs that it gave away.
                    await self._keeper.catch_up((GPU_CLASSES, GPU_DEVICES))
                    knows = True
                wait = await self._round()
            except CatalogError as error:
                self._progress.rest()
                await asyncio.sleep(self._trouble(str(error)))
                self._progress.step()
            except Exception as error:  # noqa: BLE001 - it must not end; the log has the traceback
                why = f"our own code failed: {error!r}"
                if why != self._problem:
                    _log.exception("no plan: our own code failed, it is tried again")
                self._metrics.plans.labels("failed").inc()
                await asyncio.sleep(self._trouble(why))
            else:
                self._well()
                self._progress.rest()
                with suppress(TimeoutError):
                    # Not wait_for: up to Python 3.11 that goes on after a cancel that comes together with a change, and
                    # who lost the lead would plan for ever.
                    async with asyncio.timeout(wait):
                        await self._wake.wait()
                self._progress.step()
                await asyncio.sleep(BREATH)

    async def _round(self) -> float:
        """One plan and its writes; how many seconds to wait for a change before the next. Raises CatalogError."""
        self._wake.clear()
        if missing := self._keeper.missing:
            raise CatalogError("; ".join(missing))
        await self._keeper.settle()
        with self._metrics.plan_seconds.time():
            plan = await asyncio.to_thread(self._planner.plan, self._keeper.tables(), now=self._clock())
        self._metrics.planned(plan)
        self._progress.step()
        self._notice(plan)
        outcome = await self._applier.apply(plan.writes)
        if outcome.unreachable:
            raise CatalogError(outcome.unreachable)
        return self._until_next(plan, outcome)

    def _notice(self, plan: Plan) -> None:
        """Tell what is true now and was not at the last plan."""
        now = frozenset(plan.notices)
        for event in now - self._noticed:
            self._recorder.tell(event)
        self._noticed = now

    def _until_next(self, plan: Plan, outcome: Outcome) -> float:
        ends = [LONGEST_WAIT]
        if plan.again is not None:
            ends.append((plan.again - self._clock()).total_seconds())
        if (end := self._applier.rests.next_end) is not None:
            ends.append(end)
        if outcome.missed:
            ends.append(0.0)
        return max(0.0, min(ends))

    def _trouble(self, why: str) -> float:
        """Seconds to wait after no plan, or not all of one, came about."""
        self._failures += 1
        if why != self._problem and self._failures > 1:
            _log.warning("no GPUs are held for now", why=why)
            self._problem = why
        return pause(self._failures, chance=random.random())  # noqa: S311 - to spread them, not to hide them

    def _well(self) -> None:
        if self._problem:
            _log.info("GPUs are held again", tries=self._failures)
        self._failures, self._problem = 0, ""
