"""The writes of a plan against an API server: in order, on time, each once, and nothing by who does not lead."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web
from scripted import Script, listed, serving
from structlog.testing import capture_logs

from cluster.api import Api
from cluster.kinds import GPU_DEVICES, VMIS
from controller.apply import AT_ONCE, Applier, Outcome
from controller.events import Recorder
from controller.keeper import Keeper
from controller.metrics import Metrics
from controller.rests import FIRST, PATIENCE, Rests
from controller.writes import Event, Write


@dataclass
class Lead:
    """The Lease, ours for so many seconds."""

    remaining: float = 60.0


class Server(Script):
    """Answers every write with what was written, as version 100, but for paths that ``answers`` has something for."""

    def __init__(self) -> None:
        super().__init__()
        self.paths: list[str] = []
        self.special: dict[str, Callable[[], Any]] = {}
        self.most = self.now = 0
        self.slow = 0.0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = f"{request.method} {request.path.rpartition('/namespaces/')[2]}"
        self.paths.append(path)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(self.slow)
        self.now -= 1
        if make := self.special.get(path):
            found: web.StreamResponse = await make()(request)
            return found
        body = orjson.loads(await request.read() or b"{}")
        name = request.path.split("/namespaces/a/gpudevices/")[-1].split("/")[0]
        metadata = {"namespace": "a", "name": name, "resourceVersion": "100", **(body.get("metadata") or {})}
        obj = {"kind": "GPUDevice", "spec": {"className": "h200"}, **body, "metadata": metadata}
        return web.json_response(obj)


@dataclass
class Hand:
    """An applier, and all around it."""

    server: Server
    applier: Applier
    keeper: Keeper
    lead: Lead
    metrics: Metrics

    async def apply(self, *writes: Write) -> Outcome:
        return await self.applier.apply(writes)

    def counted(self, outcome: str) -> float:
        labels = {"resource": GPU_DEVICES.resource, "verb": "status", "outcome": outcome}
        return self.metrics.registry.get_sample_value("gpu_controller_writes_total", labels) or 0


def name_of(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"]["resourceVersion"])


@asynccontextmanager
async def hand(lead: Lead | None = None) -> AsyncIterator[Hand]:
    server, lead, metrics = Server(), lead or Lead(), Metrics()
    async with serving(server) as api:
        keeper = Keeper(api, {GPU_DEVICES: name_of}, namespace="gpu-system", lease="gpu-controller", notice=nothing)
        applier = Applier(api, keeper=keeper, lead=lead, recorder=recorder(api), metrics=metrics)
        yield Hand(server, applier, keeper, lead, metrics)


def nothing() -> None:
    """Nobody is waiting."""


def recorder(api: Api) -> Recorder:
    return Recorder(api, by="test")


def status(name: str, **more: Any) -> Write:
    body = {"status": {"phase": "Held"}}
    return Write(kind=GPU_DEVICES, verb="status", namespace="a", name=name, body=body, why="it is held", **more)


def refusal(code: int, message: str = "no") -> Callable[[], Any]:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "code": code, "message": message}, status=code)

    return lambda: answer


PATH = "PATCH a/gpudevices/{}/status"


async def test_writes_of_different_objects_are_made_at_once_and_those_of_one_in_turn() -> None:
    async with hand() as it:
        it.server.slow = 0.05
        outcome = await it.apply(*(status(f"d{number}") for number in range(2 * AT_ONCE)))
        assert (outcome.made, it.server.most) == (2 * AT_ONCE, AT_ONCE)

        it.server.most = 0
        await it.apply(*(status("one") for _ in range(3)))
        assert it.server.most == 1


async def test_what_a_write_made_of_an_object_is_known_before_a_watch_tells_it() -> None:
    async with hand() as it:
        await it.apply(status("d"))

        assert it.keeper.get(GPU_DEVICES, "a", "d") == "100"


async def test_after_a_write_that_failed_those_that_rest_on_it_are_left_and_others_are_made() -> None:
    async with hand() as it:
        it.server.special[PATH.format("a")] = refusal(403)
        touch = Write(kind=VMIS, verb="merge", namespace="a", name="vm", why="touch", after=(GPU_DEVICES, "a", "a"))

        outcome = await it.apply(status("a"), touch, status("a"), status("b"))

        assert (outcome.made, outcome.failed, outcome.left) == (1, 1, 2)
        assert sorted(it.server.paths) == [PATH.format("a"), PATH.format("b")]


async def test_what_is_not_as_it_was_thought_to_be_is_read_afresh_and_tried_again_at_once() -> None:
    async with hand() as it:
        it.server.special[PATH.format("d")] = refusal(409)
        outcome = await it.apply(status("d", version="1"))
        assert (outcome.missed, it.applier.rests.next_end, it.counted("conflict")) == (1, None, 1)

        await it.keeper.settle()

        assert it.server.paths[-1] == "GET a/gpudevices/d"
        assert it.keeper.get(GPU_DEVICES, "a", "d") == "100"
        await it.keeper.settle()
        assert it.server.paths.count("GET a/gpudevices/d") == 1


async def test_an_object_that_never_is_as_it_is_thought_to_be_has_to_wait() -> None:
    async with hand() as it:
        it.server.special[PATH.format("d")] = refusal(409)
        missed = [(await it.apply(status("d"))).missed for _ in range(PATIENCE + 1)]

        assert missed == [1] * PATIENCE + [0]
        assert (await it.apply(status("d"))).left == 1


async def test_a_write_that_is_refused_is_told_once_and_tried_again_later() -> None:
    async with hand() as it:
        it.server.special[PATH.format("d")] = refusal(422, "phase: unknown")
        with capture_logs() as logs:
            await it.apply(status("d"))
            again = await it.apply(status("d"))
            await asyncio.sleep(FIRST + 0.05)
            await it.apply(status("d"))
            it.server.special.clear()
            await asyncio.sleep(2 * FIRST + 0.05)
            await it.apply(status("d"))

        assert again.left == 1
        assert [line["event"] for line in logs] == [
            "write failed, it is tried again",
            "write made after failures",
            "written",
        ]
        assert (logs[0]["what"], logs[0]["why"]) == ("GPUDevice a/d", "phase: unknown")


async def test_who_does_not_lead_writes_nothing() -> None:
    async with hand(Lead(remaining=0)) as it:
        outcome = await it.apply(status("d"))

        assert (outcome.left, it.server.paths) == (1, [])


async def test_a_write_that_is_under_way_when_the_lease_ends_is_broken_off_and_in_doubt() -> None:
    async with hand(Lead(remaining=0.2)) as it:
        it.server.slow = 1.0

        outcome = await it.apply(status("d"))

        assert (outcome.made, outcome.failed) == (0, 1)
        assert outcome.unreachable == "no answer before the end of the lease"
        it.server.slow = 0
        await it.keeper.settle()
        assert it.server.paths == [PATH.format("d"), "GET a/gpudevices/d"]


async def test_what_is_given_to_another_is_not_while_a_pod_of_its_vmi_runs() -> None:
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "vm", "uid": "u"}
    metadata = {
        "namespace": "a",
        "name": "p",
        "resourceVersion": "5",
        "ownerReferences": [{**owner, "controller": True}],
    }
    pod: dict[str, Any] = {"metadata": metadata, "status": {"phase": "Running"}}
    async with hand() as it:
        it.server.special["GET a/pods"] = lambda: listed(pod, version=9)
        assert (await it.apply(status("d", podless="u"))).missed == 1
        assert it.server.paths == ["GET a/pods"]

        pod["status"]["phase"] = "Succeeded"
        assert (await it.apply(status("d", podless="u"))).made == 1


async def test_a_pod_of_which_nobody_can_tell_whose_it_is_counts_as_that_vmis() -> None:
    pod = {"metadata": {"name": "odd", "namespace": "a", "resourceVersion": "9", "ownerReferences": "none"}}
    async with hand() as it:
        it.server.special["GET a/pods"] = lambda: listed(pod, version=9)

        assert (await it.apply(status("d", podless="u"))).missed == 1


async def test_a_delete_of_what_is_gone_is_as_good_as_made_and_tells_nothing() -> None:
    async with hand() as it:
        it.server.special["DELETE a/gpudevices/d"] = refusal(404)
        told = Event(kind=GPU_DEVICES, namespace="a", name="d", uid="u", reason="Deleted", message="m")
        write = Write(kind=GPU_DEVICES, verb="delete", namespace="a", name="d", uid="u", why="gone", events=(told,))

        assert (await it.apply(write)).made == 1


async def test_the_time_that_an_order_waited_is_noted_when_it_is_held() -> None:
    async with hand() as it:
        await it.apply(status("d", waited=0.3))

        count = it.metrics.registry.get_sample_value
        assert count("gpu_controller_time_to_hold_seconds_count", {"class": "h200"}) == 1
        assert count("gpu_controller_time_to_hold_seconds_sum", {"class": "h200"}) == 0.3


def test_pauses_grow_to_a_minute_and_are_forgotten() -> None:
    now = [0.0]
    rests, target = Rests(lambda: now[0]), (GPU_DEVICES, "a", "d")
    pauses = []
    for _ in range(9):
        rests.failed(target, "no", did="it")
        pauses.append(rests.next_end)
        now[0] += pauses[-1] or 0
    assert pauses == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]
    assert not rests.resting(target)

    now[0] += 1000
    rests.failed((GPU_DEVICES, "a", "e"), "no", did="it", retry_after=7)
    assert (len(rests), rests.next_end) == (1, 7)
