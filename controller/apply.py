"""The writes of a plan, made: on time, in order, and none by who is not the leader any more."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog

from cluster.api import Api
from cluster.errors import ApiError, Conflict, NotFound
from cluster.kinds import PODS
from cluster.watchdog import Progress
from controller.events import Recorder
from controller.keeper import Keeper
from controller.metrics import Metrics
from controller.rests import Rests, shown
from controller.writes import Target, Write
from gpu.errors import CatalogError, FieldError
from gpu.pod import FINISHED, owning_vmi

AT_ONCE: Final = 32
"""Writes that are under way at the same time."""

MADE: Final = "made"

_log = structlog.get_logger("gpu-webhooks")


class Lead(Protocol):
    """Whether we may write, and for how many seconds more; see cluster.leader.Leader."""

    @property
    def remaining(self) -> float:
        """Seconds; 0 where we may not."""


@dataclass(slots=True)
class Outcome:
    """What came of a plan's writes.

    ``missed`` of the ``failed`` ones met objects that were not as they were thought to be; ``left`` were not tried;
    ``unreachable`` is why the API server gave no answer, empty where it did.
    """

    made: int = 0
    failed: int = 0
    missed: int = 0
    left: int = 0
    unreachable: str = ""


class Applier:
    """Makes writes. What a write changed is in ``keeper`` when it is done; what it may have changed is in doubt there.

    Writes of different objects are made at the same time, those of one object, and those that say what they come after,
    one after the other; where one fails, what comes after it is left for the next plan.
    """

    def __init__(
        self,
        api: Api,
        *,
        keeper: Keeper,
        lead: Lead,
        recorder: Recorder,
        metrics: Metrics,
        progress: Progress | None = None,
    ) -> None:
        self._api = api
        self._keeper = keeper
        self._lead = lead
        self._recorder = recorder
        self._metrics = metrics
        self._progress = progress or Progress()
        self.rests = Rests()

    async def apply(self, writes: Sequence[Write]) -> Outcome:
        """Make these writes, as far as it goes."""
        outcome, room = Outcome(), asyncio.Semaphore(AT_ONCE)
        last: dict[Target, asyncio.Task[bool]] = {}
        async with asyncio.TaskGroup() as group:
            for write in writes:
                before = [last[target] for target in (write.target, write.after) if target in last]
                last[write.target] = group.create_task(self._in_turn(write, before, room, outcome))
        return outcome

    async def _in_turn(
        self, write: Write, before: Sequence[asyncio.Task[bool]], room: asyncio.Semaphore, outcome: Outcome
    ) -> bool:
        """Whether it was made."""
        for task in before:
            if not await task:
                outcome.left += 1
                return False
        async with room:
            if outcome.unreachable or self.rests.resting(write.target) or not self._lead.remaining:
                outcome.left += 1
                return False
            how = await self._tried(write, outcome)
            self._metrics.written(write.kind, write.verb, how)
            self._progress.step()
            outcome.made += how == MADE
            outcome.failed += how != MADE
            return how == MADE

    async def _tried(self, write: Write, outcome: Outcome) -> str:
        """Make a write; how that went."""
        target = write.target
        try:
            # A call that is under way when the time is up is broken off: the one who leads next may begin then.
            async with asyncio.timeout(self._lead.remaining):
                if write.podless and await self._runs(write.namespace, write.podless):
                    outcome.missed += self.rests.missed(target)
                    return "in use"
                obj = await self._call(write)
        except (Conflict, NotFound) as error:
            if write.verb == "delete" and isinstance(error, NotFound):
                return self._made(write, None)
            # It is not as memory has it: it is read afresh, and the next plan will do right by it.
            self._keeper.doubt(target)
            outcome.missed += self.rests.missed(target)
            return "conflict" if isinstance(error, Conflict) else "gone"
        except ApiError as error:
            self.rests.failed(target, error.message, did=write.why, retry_after=error.retry_after)
            if error.code >= 500:
                self._keeper.doubt(target)
            return "refused"
        except (CatalogError, TimeoutError) as error:
            # Nobody knows whether it was made.
            self._keeper.doubt(target)
            outcome.unreachable = str(error) or "no answer before the end of the lease"
            return "unreachable"
        except asyncio.CancelledError:
            self._keeper.doubt(target)
            raise
        return self._made(write, obj)

    def _made(self, write: Write, obj: dict[str, Any] | None) -> str:
        self.rests.succeeded(write.target)
        if obj is not None:
            for event in write.events:
                self._recorder.tell(event)
            if write.waited is not None:
                self._metrics.held(str(obj["spec"]["className"]), write.waited)
            if obj.get("kind") == write.kind.name:
                # A delete is answered by a Status where the object is gone at once; that the watch tells.
                self._keeper.remember(write.kind, obj)
        _log.info("written", what=shown(write.target), verb=write.verb, why=write.why)
        return MADE

    async def _runs(self, namespace: str, uid: str) -> bool:
        """Whether an unfinished pod of the VMI of this uid is there, read afresh; one that is, is remembered."""
        async with aclosing(self._api.pages(PODS, namespace=namespace)) as pages:
            async for page in pages:
                if found := next((pod for pod in page["items"] if _runs_for(pod, uid)), None):
                    self._keeper.remember(PODS, found)
                    return True
        return False

    async def _call(self, write: Write) -> dict[str, Any]:
        kind, namespace, name = write.target
        match write.verb:
            case "create":
                return await self._api.create(kind, write.body, namespace=namespace)
            case "delete":
                return await self._api.delete(kind, name, namespace=namespace, version=write.version, uid=write.uid)
            case "status":
                return await self._api.merge(kind, name, _patch(write), namespace=namespace, subresource="status")
            case "merge":
                return await self._api.merge(kind, name, _patch(write), namespace=namespace)


def _patch(write: Write) -> dict[str, Any]:
    """The merge patch, with the resource version and the uid that the object must still have."""
    must = {key: value for key, value in (("resourceVersion", write.version), ("uid", write.uid)) if value}
    return {**write.body, "metadata": {**(write.body.get("metadata") or {}), **must}} if must else dict(write.body)


def _runs_for(pod: Mapping[str, Any], uid: str) -> bool:
    """Whether it is an unfinished pod of this VMI; one of which nobody can tell whose it is counts as such."""
    if (pod.get("status") or {}).get("phase") in FINISHED:
        return False
    try:
        return owning_vmi(pod["metadata"]) == uid
    except FieldError:
        return True
