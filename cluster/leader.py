"""Holding a Lease: acquired, renewed, lost, given back."""

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Self

import structlog

from cluster.api import Api
from cluster.errors import Conflict
from cluster.kinds import LEASES
from cluster.lease import (
    DEFAULT,
    Create,
    Hold,
    Record,
    Seen,
    Term,
    Wait,
    held,
    look,
    manifest,
    released,
    step,
)
from gpu.clock import Clock, utc_now
from gpu.errors import CatalogError

_RELEASE_SECONDS: Final = 3.0

_log = structlog.get_logger("gpu-webhooks")


def _nothing_bars(_: Mapping[str, Any]) -> str:
    return ""


class Leader:
    """A candidate for a Lease, which tries within ``async with`` and gives it back at the end.

    ``me`` must be nobody else's, not even an earlier process's of the same pod. Where ``is_leader`` is false nothing
    may be written; ``remaining`` says for how many seconds more it is true if no renewal succeeds. Annotations on the
    Lease are left as they are. ``barred`` says why the Lease as it is now is not to be held, empty where nothing is
    against it: then it is neither taken nor kept.
    """

    def __init__(
        self,
        api: Api,
        *,
        namespace: str,
        name: str,
        me: str,
        barred: Callable[[Mapping[str, Any]], str] = _nothing_bars,
        term: Term = DEFAULT,
        clock: Clock = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._me = me
        self._barred = barred
        self._term = term
        self._clock = clock
        self._monotonic = monotonic
        self._until = float("-inf")
        self._seen: Seen | None = None
        self._led = False
        self._problem = ""
        self._won, self._ended = asyncio.Event(), asyncio.Event()
        self._bar = ""
        self._task: asyncio.Task[None] | None = None
        self._log = _log.bind(lease=f"{namespace}/{name}", me=me)

    @property
    def remaining(self) -> float:
        """For how many seconds we are the leader if no renewal succeeds; 0 where we are not."""
        return max(0.0, self._until - self._monotonic())

    @property
    def is_leader(self) -> bool:
        """Whether nobody else can be the leader now."""
        return self.remaining > 0

    @property
    def holder(self) -> str:
        """Who held it when it was last seen; empty where nobody did."""
        return self._seen.record.holder if self._seen else ""

    async def acquired(self) -> None:
        """Wait until we are the leader."""
        while not self.is_leader:
            self._won.clear()
            await self._won.wait()

    async def lost(self) -> None:
        """Wait until we are not the leader."""
        while (remaining := self.remaining) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(remaining):
                    await self._ended.wait()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name=f"lease {self._name}")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._release()

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._term.deadline / 2):
                    await self._turn()
            except (CatalogError, TimeoutError) as error:
                self._complain(str(error) or "no answer in time")
            except Exception as error:  # noqa: BLE001 - it must not end; the log has the traceback
                self._log.exception("lease failed in our own code, it is tried again")
                self._complain(str(error))
            else:
                self._problem = ""
            self._tell()
            await asyncio.sleep(self._term.period * (1 + random.random() / 5))  # noqa: S311 - to spread them, not to hide them

    async def _turn(self) -> None:
        while True:
            await self._look()
            action = step(self._seen, now=self._monotonic(), me=self._me)
            if isinstance(action, Wait) or (self._bar and not self._holds):
                return
            try:
                await (self._give_back() if self._bar else self._act(action))
            except Conflict:
                # Somebody wrote on it in between, on its annotations perhaps: what it says now decides.
                continue
            return

    async def _look(self) -> None:
        obj = await self._api.find(LEASES, self._name, namespace=self._namespace)
        if obj is None:
            self._seen = None
            self._bar = ""
            return
        self._seen = look(Record.from_dict(obj), self._seen, now=self._monotonic())
        self._hear(self._barred(obj))
        if self._bar or not self._holds:
            # Another's holding it is not by our rules, since we renewed in time, but whoever wrote it acts already.
            self._end()

    @property
    def _holds(self) -> bool:
        """Whether the Lease names us, in time or not."""
        return self._seen is not None and self._seen.record.holder == self._me

    def _hear(self, bar: str) -> None:
        if bar and bar != self._bar:
            self._log.warning("lease is not to be held", why=bar)
        self._bar = bar

    async def _act(self, action: Create | Hold) -> None:
        sent = self._monotonic()
        record = action.record if isinstance(action, Hold) else None
        spec = held(record, at=self._clock(), me=self._me, term=self._term)
        if record is None:
            obj = manifest(self._namespace, self._name, spec)
            obj = await self._api.create(LEASES, obj, namespace=self._namespace)
        else:
            obj = await self._write(record, spec)
        self._until = sent + self._term.deadline
        self._seen = look(Record.from_dict(obj), self._seen, now=self._monotonic())
        self._ended.clear()
        self._won.set()

    def _end(self) -> None:
        self._until = float("-inf")
        self._ended.set()

    async def _write(self, record: Record, spec: dict[str, Any]) -> dict[str, Any]:
        patch = {"metadata": {"resourceVersion": record.version}, "spec": spec}
        return await self._api.merge(LEASES, self._name, patch, namespace=self._namespace)

    async def _release(self) -> None:
        self._end()
        if not self._holds:
            return
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                await self._give_back()
        except (CatalogError, TimeoutError) as error:
            why = str(error) or "no answer in time"
            self._log.warning("lease can't be given back, others wait until it ends", why=why)

    async def _give_back(self) -> None:
        while True:
            await self._look()
            if self._seen is None or not self._holds:
                return
            try:
                await self._write(self._seen.record, released(self._seen.record, at=self._clock()))
            except Conflict:
                # Our last renewal, which was broken off, or somebody's annotation came in between.
                continue
            self._log.info("lease given back")
            return

    def _complain(self, why: str) -> None:
        if why != self._problem:
            self._log.warning("lease can't be read or written", why=why, leader_for=round(self.remaining, 1))
        self._problem = why

    def _tell(self) -> None:
        if self._led != self.is_leader:
            self._led = self.is_leader
            if self._led:
                self._log.info("leading")
            else:
                self._log.warning("not leading any more", holder=self.holder, why=self._problem)
