"""A steady load of VMI creates whose verdicts are known, and what came of each."""

import asyncio
import itertools
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from actors import VIRT_CONTROLLER
from controlplane.client import Client, ref
from controlplane.errors import APIError
from foreseen import NO_ANSWER
from gpukinds import API_VERSION, H200, L40S
from machines import DEVICE_REFERENCE, DEVICE_TEMPLATE, device, vmi
from outages import tenants_namespace

NAMESPACE: Final = "tenant-under-load"
ONE: Final = "one-gpu"
TWO: Final = "two-gpus"
_PAUSE: Final = 0.08
_PATIENCE: Final = 20.0
_BUILT: Final = re.compile(r"load-\d+-[0-9a-f]{8}")
_HOOK: Final = "virtualmachineinstances.gpu.cozystack.io"
_MISSING: Final = "lost-gpu"
_ENTRY: Final = {"name": "screen", "deviceName": "nvidia.com/anything", "tag": "a"}
_ABOVE: Final = {"className": "h200", "count": 3}
_ORDER: Final = {"className": "l40s"}


@dataclass(frozen=True, slots=True)
class Call:
    """One create: its case, when it began and was answered (monotonic clock), and what was wrong with the answer;
    empty where it was right."""

    case: str
    began: float
    ended: float
    wrong: str


@dataclass(frozen=True, slots=True)
class _Case:
    """A kind of VMI: ``asks`` is what it has besides a name, ``wrong`` judges an answer."""

    title: str
    asks: Mapping[str, Any]
    wrong: Callable[[Mapping[str, Any] | str], str]
    kept: bool = False


def _let_in(gpus: Sequence[Mapping[str, Any]], reference: str | re.Pattern[str] = "") -> Callable[..., str]:
    """Judges what must be let in, with exactly these GPUs, referring to that device."""

    def wrong(answer: Mapping[str, Any] | str) -> str:
        if isinstance(answer, str):
            return answer
        got = answer["spec"]["domain"]["devices"].get("gpus", [])
        if got != list(gpus):
            return f"the GPUs are {got}"
        refers_to = answer["metadata"].get("labels", {}).get(DEVICE_REFERENCE, "")
        right = refers_to == reference if isinstance(reference, str) else reference.fullmatch(refers_to)
        return "" if right else f"it refers to {refers_to!r}"

    return wrong


def _refused(message: str) -> Callable[..., str]:
    """Judges what must be refused in these words."""
    whole = f'422 Invalid: admission webhook "{_HOOK}" denied the request: {message}'

    def wrong(answer: Mapping[str, Any] | str) -> str:
        if isinstance(answer, str):
            return "" if answer == whole else answer
        return "it was let in"

    return wrong


CASES: Final = (
    _Case("by reference", {"refers_to": ONE}, _let_in([{"name": "gpu-0", "deviceName": H200}], ONE)),
    _Case("by template", {"orders": _ORDER}, _let_in([{"name": "gpu-0", "deviceName": L40S}], _BUILT)),
    _Case(
        "missing device",
        {"refers_to": _MISSING},
        _refused(
            f"metadata.labels[{DEVICE_REFERENCE}]: there is no GPUDevice '{_MISSING}' in namespace '{NAMESPACE}'; "
            "order it there first, or name one of: kubectl get gpudevices"
        ),
    ),
    _Case("plain", {}, _let_in([])),
    _Case(
        "entries of its own",
        {"refers_to": TWO, "gpus": [_ENTRY]},
        _let_in([{**_ENTRY, "deviceName": H200}, {"name": "gpu-0", "deviceName": H200}], TWO),
    ),
    _Case(
        "count above the maximum",
        {"orders": _ABOVE},
        _refused(
            f"metadata.annotations[{DEVICE_TEMPLATE}].count: GPUClass 'h200' sells 1 to 2 GPUs a device, not 3; "
            "order less, or several devices for several VMs"
        ),
    ),
    _Case(
        "by template, not on a dry run", {"orders": _ORDER}, _let_in([{"name": "gpu-0", "deviceName": L40S}], _BUILT),
        kept=True,
    ),
)  # fmt: skip


@dataclass(kw_only=True)
class Event:
    """Something that happens under load. ``calls`` are all that were made from a little before it to a little after."""

    name: str
    calls: list[Call] = field(default_factory=list)
    began: float = 0.0
    ended: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def within(self) -> list[Call]:
        """The calls that were under way at some time of the event itself."""
        end = self.ended or time.monotonic()
        return [call for call in self.calls if call.ended >= self.began and call.began <= end]

    @property
    def lost(self) -> list[Call]:
        """The calls that were not answered as they should have been."""
        return [call for call in self.calls if call.wrong]

    def part(self, name: str, *, since: float, notes: Sequence[str]) -> "Event":
        """What happened of it from then until now, as an event by itself. Calls that are under way are not in it."""
        calls = [call for call in self.calls if call.ended >= since]
        return Event(name=name, calls=calls, began=since, ended=time.monotonic(), notes=list(notes))

    async def more(self, calls: int) -> None:
        """Wait until so many that begin from now on have been answered."""
        now = time.monotonic()
        async with asyncio.timeout(_PATIENCE):
            while sum(call.began >= now for call in self.calls) < calls:  # noqa: ASYNC110 - no event counts
                await asyncio.sleep(0.01)

    def __str__(self) -> str:
        took = self.ended - self.began
        told = f"{len(self.calls)} calls, {len(self.within)} inside in {took:.1f} s, {len(self.lost)} lost"
        return "; ".join([f"{self.name}: {told}", *self.notes])


class Load:
    """Creates VMIs as virt-controller does, of every case in turn, most of them on dry runs."""

    def __init__(self, kube: Client, *, at_once: int = 4, pause: float = _PAUSE) -> None:
        self.events: list[Event] = []
        self._kube = kube
        self._virt_controller = kube.as_(VIRT_CONTROLLER)
        self._at_once = at_once
        self._pause = pause
        self._numbers = itertools.count(1)

    async def prepare(self) -> None:
        """Make the namespace, and order what the VMIs refer to."""
        await tenants_namespace(self._kube, NAMESPACE)
        await self._kube.create(device(NAMESPACE, ONE))
        await self._kube.create(device(NAMESPACE, TWO, count=2))

    async def right(self) -> bool:
        """Whether each case is answered right now."""
        return not any([(await self.call(case)).wrong for case in CASES])

    @asynccontextmanager
    async def during(self, name: str, *, around: int = 15) -> AsyncIterator[Event]:
        """An event, with calls before, during and after it: at least ``around`` before and after."""
        event = Event(name=name)
        enough = asyncio.Event()
        async with asyncio.TaskGroup() as callers:
            for number in range(self._at_once):
                callers.create_task(self._call_on(event, enough, number))
            try:
                await event.more(around)
                event.began = time.monotonic()
                yield event
                event.ended = time.monotonic()
                await event.more(around)
            finally:
                # A call that was cut off would count as lost.
                enough.set()
        self.events.append(event)

    async def _call_on(self, event: Event, enough: asyncio.Event, first: int) -> None:
        for case in itertools.islice(itertools.cycle(CASES), 2 * first, None):
            if enough.is_set():
                return
            event.calls.append(await self.call(case))
            await asyncio.sleep(self._pause)

    async def call(self, case: _Case) -> Call:
        """Make one create, and take away what it made."""
        machine = vmi(NAMESPACE, f"load-{next(self._numbers)}", **case.asks)
        began = time.monotonic()
        answer: Mapping[str, Any] | str
        try:
            answer = await self._virt_controller.create(machine, dry_run=not case.kept)
        except APIError as refusal:
            answer = str(refusal)
        except NO_ANSWER as error:
            answer = f"no answer: {error!r}"
        call = Call(case.title, began, time.monotonic(), case.wrong(answer))
        if case.kept and not isinstance(answer, str):
            await self._take_away(answer)
        return call

    async def _take_away(self, machine: Mapping[str, Any]) -> None:
        await self._kube.delete(machine)
        built = machine["metadata"]["labels"].get(DEVICE_REFERENCE)
        if built:
            await self._kube.delete(ref(API_VERSION, "GPUDevice", built, NAMESPACE))
