"""Events (events.k8s.io/v1), told without ever holding up what they tell of, and without flooding."""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import structlog

from cluster.api import Api
from cluster.errors import Conflict, NotFound
from cluster.kinds import EVENTS
from controller.writes import Event
from gpu.clock import Clock, utc_now
from gpu.errors import CatalogError

COMPONENT: Final = "gpu.cozystack.io/controller"

QUEUE: Final = 1000
"""Events that wait to be written at most; what comes then is lost, as Events may be."""

AGAIN: Final = 60.0
"""Seconds within which the same said of the same object is counted, and written once."""

BURST: Final = 10
REFILL: Final = 30.0
"""Of one object so many different Events at once, and one more every so many seconds (client-go's spam filter is alike:
k8s.io/client-go/tools/record, EventSourceObjectSpamFilter)."""

REMEMBERED: Final = 4096
"""Events, and objects, whose past is kept."""

_LONGEST_NOTE: Final = 1024
_TIME: Final = "%Y-%m-%dT%H:%M:%S.%fZ"

_log = structlog.get_logger("gpu-webhooks")


class Story:
    """What was told of which object when: says whether an Event is to be written now, and as the how-manieth."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._told: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._tokens: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def count(self, event: Event) -> int:
        """How often it happened, where that is to be written now; 0 where it is not."""
        now, key = self._monotonic(), name_of(event)
        count, written = self._told.pop(key, (0, float("-inf")))
        due = now - written >= AGAIN and self._may_speak(event.uid or event.name, now)
        _kept(self._told, key, (count + 1, now if due else written))
        return count + 1 if due else 0

    def _may_speak(self, about: str, now: float) -> bool:
        tokens, since = self._tokens.pop(about, (float(BURST), now))
        tokens = min(float(BURST), tokens + (now - since) / REFILL)
        spoken = tokens >= 1
        _kept(self._tokens, about, (tokens - spoken, now))
        return spoken


def _kept(book: OrderedDict[str, Any], key: str, value: object) -> None:
    book[key] = value
    if len(book) > REMEMBERED:
        book.popitem(last=False)


def name_of(event: Event) -> str:
    """The name of an Event: the same for the same said of the same object."""
    said = "\0".join((event.uid, event.type, event.reason, event.message))
    return f"{event.name[:200]}.{hashlib.sha256(said.encode()).hexdigest()[:16]}"


def manifest(event: Event, *, at: datetime, by: str) -> dict[str, Any]:
    """A new Event. What has no namespace is told of in ``default`` (k8s.io/kubernetes/pkg/apis/core/validation)."""
    about = {
        "apiVersion": event.kind.api_version,
        "kind": event.kind.name,
        "name": event.name,
        "namespace": event.namespace,
        "uid": event.uid,
    }
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.name,
        "metadata": {"name": name_of(event), "namespace": event.namespace or "default"},
        "eventTime": at.strftime(_TIME),
        "reportingController": COMPONENT,
        "reportingInstance": by[:128],
        "action": event.reason,
        "reason": event.reason,
        "type": event.type,
        "note": event.message[:_LONGEST_NOTE],
        "regarding": {key: value for key, value in about.items() if value},
    }


class Recorder:
    """Writes Events one after the other, in a task of its own."""

    def __init__(self, api: Api, *, by: str, clock: Clock = utc_now) -> None:
        self._api = api
        self._by = by
        self._clock = clock
        self._story = Story()
        self._waiting: asyncio.Queue[tuple[Event, int]] = asyncio.Queue(QUEUE)
        self._complained = False

    def tell(self, event: Event) -> None:
        """Have it written, some time soon."""
        if (count := self._story.count(event)) and not self._waiting.full():
            self._waiting.put_nowait((event, count))

    async def run(self) -> None:
        """Write what is told, for ever."""
        while True:
            event, count = await self._waiting.get()
            try:
                await self._write(event, count)
            except CatalogError as error:
                if not self._complained:
                    _log.warning("events can't be written; later ones may be lost as well", why=str(error))
                self._complained = True
            else:
                self._complained = False
            finally:
                self._waiting.task_done()

    async def told(self) -> None:
        """Wait until all that was to be told is written, or lost."""
        await self._waiting.join()

    async def _write(self, event: Event, count: int) -> None:
        at = self._clock()
        obj = manifest(event, at=at, by=self._by)
        with suppress(NotFound):
            # They are kept for an hour or so; one that is gone begins anew.
            if count > 1:
                await self._count(obj, count, at)
                return
        try:
            await self._api.create(EVENTS, obj, namespace=obj["metadata"]["namespace"])
        except Conflict:
            # It was told before we started, or by another replica.
            await self._count(obj, 2, at)

    async def _count(self, obj: Mapping[str, Any], count: int, at: datetime) -> None:
        metadata = obj["metadata"]
        series = {"series": {"count": count, "lastObservedTime": at.strftime(_TIME)}}
        await self._api.merge(EVENTS, metadata["name"], series, namespace=metadata["namespace"])
