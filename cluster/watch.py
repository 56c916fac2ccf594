"""List and watch: keeps a sink up to date with the objects of one kind, whatever happens on the way."""

import asyncio
import random
import time
from collections.abc import Collection, Mapping
from contextlib import aclosing
from typing import Any, Final, Protocol

import structlog

from cluster.api import Api
from cluster.errors import ApiError, Expired, NotFound, Silent, Unreachable, Unreadable
from cluster.events import Bookmark, Broken, Event, Failed, Gone, Put, number, pause, read_event, version_of
from cluster.kinds import Kind
from gpu.errors import CatalogError

SILENCE: Final = 90.0
"""Seconds without a word after which a connection counts as dead: bookmarks come about every minute."""

_SECONDS: Final = (240, 360)
"""How long one watch is asked for; each another time, so that they do not all end at once."""

LOOK_AGAIN: Final = 2.0
"""Seconds until a kind that is not served is looked for again."""

_BREATH: Final = 100
"""Objects that are read from a list before others have their turn."""

_STEADY: Final = 1.0
"""Seconds after which a watch that tells nothing counts as working."""

_DOUBTS: Final = 2
"""How often in a row a watch may fall silent or tell nonsense before everything is read again."""

_PASSING: Final = frozenset({410, 429, 500, 502, 503, 504})
"""What an API server answers while it starts, stops or has too much to do, and when a version is too old."""

_log = structlog.get_logger("gpu-webhooks")


class Sink(Protocol):
    """What a watch fills; see Table."""

    def __len__(self) -> int:
        """How many objects it holds."""

    @property
    def unreadable(self) -> Collection[object]:
        """The objects that are left out: they can't be read."""

    def begin(self, version: str) -> None:
        """A list as of this version comes in: what it lacks is gone once it has ended."""

    def end(self) -> None:
        """The list is whole."""

    def put(self, obj: Mapping[str, Any]) -> None:
        """An object is there, in this state."""

    def drop(self, obj: Mapping[str, Any]) -> None:
        """An object is gone; this was its last state."""

    def reached(self, version: str) -> None:
        """All that happened up to this version has been told."""


class Watch:
    """The watching of one kind; ``run`` never ends by itself.

    ``filled`` is set once everything of the kind was read; ``heard`` is when, by the monotonic clock, the API server
    last told us something, or took up the telling; ``problem`` is what goes wrong now, empty where nothing does;
    ``served`` is whether the API server has the kind, once ``filled`` is set. ``events``, ``lists`` and ``failures``
    count since the start.
    """

    def __init__(
        self, api: Api, kind: Kind, sink: Sink, *, namespace: str = "", fields: str = "", silence: float = SILENCE
    ) -> None:
        self.kind = kind
        self.sink = sink
        self.filled = asyncio.Event()
        self.heard = time.monotonic()
        self.problem = ""
        self.served = False
        self.events = self.lists = self.failures = 0
        self._api = api
        self._where = {"namespace": namespace, "fields": fields}
        self._silence = silence
        self._version = ""
        self._in_a_row = self._doubts = self._absent = 0
        self._trouble = Trouble(kind)

    async def run(self) -> None:
        """List, watch, and begin again where that ended."""
        while True:
            try:
                wait = await self._turn()
            except Exception as error:  # noqa: BLE001 - it must not end; the log has the traceback
                # Whatever it is, what was read before may be wrong or not whole: everything is read again.
                _log.exception("watch failed in our own code, it begins again", what=self.kind.resource)
                self._version = ""
                wait = self._failed(error)
            await asyncio.sleep(wait)

    async def _turn(self) -> float:
        """One list or one watch; how many seconds to wait before the next."""
        listing = not self._version
        try:
            await (self._list() if listing else self._watch())
        except Expired as error:
            self._version = ""
            # That a watch has expired is no failure, that lists expire again and again is.
            return self._failed(error) if listing else 0.0
        except NotFound as error:
            return self._not_served(error)
        except CatalogError as error:
            return self._failed(error)
        return 0.0

    async def _list(self) -> None:
        version, read = "", 0
        async with aclosing(self._api.pages(self.kind, **self._where)) as pages:
            async for page in pages:
                if not version:
                    version = version_of(page)
                    self.sink.begin(version)
                for item in page["items"]:
                    self.sink.put(item)
                    read += 1
                    if not read % _BREATH:
                        await asyncio.sleep(0)
                # Pages are big: one is gone before the next comes.
                page.clear()
        self.sink.end()
        self.served = True
        self.lists += 1
        self._version = version
        self._well()
        self.filled.set()

    async def _watch(self) -> None:
        before, steady = self.events, False

        def hold() -> None:
            nonlocal steady
            steady = True
            self._well()

        async with self._api.watch(
            self.kind,
            version=self._version,
            seconds=random.randint(*_SECONDS),  # noqa: S311 - to spread them, not to hide them
            silence=self._silence,
            **self._where,
        ) as lines:
            self.heard = time.monotonic()
            timer = asyncio.get_running_loop().call_later(_STEADY, hold)
            try:
                async for line in lines:
                    self._take(read_event(line, asked=f"watch {self.kind.resource}"))
            finally:
                timer.cancel()
        if self.events == before and not steady:
            raise Unreachable(f"watch {self.kind.resource}: it ended at once")

    def _take(self, event: Event) -> None:
        match event:
            case Failed(error=error):
                raise error if error.code in _PASSING else Unreadable(str(error))
            case Broken(why=why):
                raise Unreadable(f"watch {self.kind.resource}: an event can't be read: {why}")
            case Put(version=version) | Gone(version=version) | Bookmark(version=version):
                # What is below was told before; something on the way tells it twice.
                if not 0 < number(version) < number(self._version):
                    self._pass_on(event)
                    self._version = version
                    self.sink.reached(version)
        self.events += 1
        self._well()

    def _pass_on(self, event: Put | Gone | Bookmark) -> None:
        match event:
            case Put(obj=obj):
                self.sink.put(obj)
            case Gone(obj=obj):
                self.sink.drop(obj)

    def _well(self) -> None:
        self.heard = time.monotonic()
        self._in_a_row = self._doubts = self._absent = 0
        if self.problem:
            self.problem = ""
            self._trouble.over()

    def _failed(self, error: Exception) -> float:
        self.failures += 1
        self._in_a_row += 1
        self.problem = str(error) or type(error).__name__
        self._trouble.tell(self.problem, at_once=isinstance(error, ApiError) and error.code not in _PASSING)
        if isinstance(error, Unreadable | Silent) or (isinstance(error, ApiError) and error.code == 400):
            self._doubts += 1
            if self._doubts == _DOUBTS:
                self._version, self._doubts = "", 0
        wait = error.retry_after if isinstance(error, ApiError) else 0
        return pause(self._in_a_row, chance=random.random(), retry_after=wait)  # noqa: S311 - as above

    def _not_served(self, error: NotFound) -> float:
        """A kind that is not served has no objects. Where there were some, one answer is not enough to believe it."""
        self._version = ""
        self._absent += 1
        self.problem = str(error)
        if self._absent > 1 or not len(self.sink):
            self._trouble.tell(f"not served, so it counts as empty: {error}", at_once=True)
            self.sink.begin("")
            self.sink.end()
            self.served = False
            self.heard = time.monotonic()
            self.filled.set()
        return LOOK_AGAIN * (0.75 + random.random() / 2)  # noqa: S311 - as above


class Trouble:
    """One line in the log when a watch is lost, one when it is back; a second try that succeeds is not worth any."""

    def __init__(self, kind: Kind) -> None:
        self._log = _log.bind(what=kind.resource)
        self._tries = 0
        self._since = 0.0
        self._told = ""

    def tell(self, why: str, *, at_once: bool) -> None:
        """It failed; ``at_once`` where trying again is not likely to help."""
        self._tries += 1
        if self._tries == 1:
            self._since = time.monotonic()
        if not self._told and (at_once or self._tries > 1):
            self._told = why
            self._log.warning("watch lost, memory may be out of date", why=why)

    def over(self) -> None:
        """It works."""
        if self._told:
            self._log.info("watch back", after_seconds=round(time.monotonic() - self._since, 1), tries=self._tries)
        self._tries, self._told = 0, ""
