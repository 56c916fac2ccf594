"""A controller, put together and run."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from socket import gethostname
from typing import NamedTuple

from cluster.api import Api
from cluster.leader import Leader
from cluster.lease import DEFAULT, Term
from cluster.metrics import WatchMetrics
from cluster.watchdog import Progress
from controller.apply import Applier
from controller.events import Recorder
from controller.keeper import Keeper
from controller.leaving import Installation
from controller.loop import Loop
from controller.metrics import Metrics
from controller.planner import Planner
from controller.state import READERS, Config


class Running(NamedTuple):
    """A controller that runs: what it counts, what it knows, the loop, which ends only by a failure, and what says why
    that is stuck, empty where it is not."""

    metrics: Metrics
    keeper: Keeper
    loop: asyncio.Task[None]
    stuck: Callable[[], str]


def identity() -> str:
    """A name for this process that no other has, not even an earlier one of the same pod."""
    return f"{gethostname()}_{uuid.uuid4().hex[:8]}"


@asynccontextmanager
async def running(api: Api, config: Config, *, service_account: str, term: Term = DEFAULT) -> AsyncIterator[Running]:
    """A controller runs within, and leads whenever the Lease comes to it. Raises CatalogError."""
    installation = await Installation.of(api, namespace=config.namespace, service_account=service_account)
    me, wake, metrics = identity(), asyncio.Event(), Metrics()
    keeper = Keeper(api, READERS, namespace=config.namespace, lease=config.lease, notice=wake.set)
    metrics.registry.register(WatchMetrics(keeper.watches))
    leader = Leader(api, namespace=config.namespace, name=config.lease, me=me, barred=installation.bars, term=term)
    recorder = Recorder(api, by=me)
    progress = Progress()
    applier = Applier(api, keeper=keeper, lead=leader, recorder=recorder, metrics=metrics, progress=progress)
    loop = Loop(
        keeper=keeper,
        lead=leader,
        planner=Planner(config),
        applier=applier,
        metrics=metrics,
        recorder=recorder,
        wake=wake,
        progress=progress,
    )
    # The Lease is given back last: when nothing is being written any more.
    async with keeper.running(), leader:
        tasks = [asyncio.create_task(recorder.run(), name="events"), asyncio.create_task(loop.run(), name="loop")]
        try:
            yield Running(metrics, keeper, tasks[1], loop.stuck)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
