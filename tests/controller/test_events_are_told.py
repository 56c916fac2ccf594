"""Events: each told once, counted when it is said again, and never a flood."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import orjson
from aiohttp import web
from scripted import Script, serving

from cluster.kinds import GPU_CLASSES, GPU_DEVICES
from controller.events import AGAIN, BURST, REFILL, Recorder, Story, manifest
from controller.writes import Event

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def about(name: str = "d", message: str = "it waits") -> Event:
    return Event(kind=GPU_DEVICES, namespace="a", name=name, uid=f"uid-{name}", reason="Waiting", message=message)


def test_what_is_said_again_is_counted_and_written_after_a_while() -> None:
    now = [0.0]
    story = Story(lambda: now[0])
    assert [story.count(about()) for _ in range(3)] == [1, 0, 0]
    now[0] = AGAIN
    assert story.count(about()) == 4


def test_of_one_object_only_so_much_is_told_and_of_another_all_the_same() -> None:
    now = [0.0]
    story = Story(lambda: now[0])
    told = [story.count(about(message=str(number))) for number in range(BURST + 5)]
    assert told == [1] * BURST + [0] * 5
    assert story.count(about("other")) == 1
    now[0] = 2 * REFILL
    assert [bool(story.count(about(message=f"later {number}"))) for number in range(3)] == [True, True, False]


def test_what_has_no_namespace_is_told_of_in_the_default_one() -> None:
    event = Event(kind=GPU_CLASSES, namespace="", name="h200", uid="u", reason="Ready", message="x" * 2000)

    made = manifest(event, at=NOW, by="host_1")

    assert made["metadata"]["namespace"] == "default"
    assert "namespace" not in made["regarding"]
    assert len(made["note"]) == 1024


class Server(Script):
    """Keeps what is written; the first ``fails`` writes are refused."""

    def __init__(self, *, fails: int = 0, taken: bool = False) -> None:
        super().__init__()
        self.fails, self.taken = fails, taken
        self.written: list[tuple[str, dict[str, Any]]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.fails:
            self.fails -= 1
            return web.json_response({"kind": "Status", "code": 403, "message": "no"}, status=403)
        self.written.append((request.method, orjson.loads(await request.read())))
        if self.taken and request.method == "POST":
            return web.json_response({"kind": "Status", "code": 409, "reason": "AlreadyExists"}, status=409)
        return web.json_response({"metadata": {}})


async def told(server: Server, *events: Event) -> list[tuple[str, dict[str, Any]]]:
    async with serving(server) as api:
        recorder = Recorder(api, by="host_1", clock=lambda: NOW)
        task = asyncio.create_task(recorder.run())
        for event in events:
            recorder.tell(event)
        await recorder.told()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return server.written


async def test_an_event_is_written_once() -> None:
    [(method, event)] = await told(Server(), about(), about())

    assert (method, event["reason"], event["note"], event["type"]) == ("POST", "Waiting", "it waits", "Normal")
    assert event["regarding"] == {
        "apiVersion": "gpu.cozystack.io/v1alpha1", "kind": "GPUDevice", "namespace": "a", "name": "d", "uid": "uid-d",
    }  # fmt: skip


async def test_one_that_was_told_before_a_restart_is_counted() -> None:
    (first, _), (second, series) = await told(Server(taken=True), about())

    assert (first, second) == ("POST", "PATCH")
    assert series == {"series": {"count": 2, "lastObservedTime": "2026-01-01T12:00:00.000000Z"}}


async def test_one_that_cannot_be_written_is_lost_and_the_next_is_told() -> None:
    [(_, event)] = await told(Server(fails=1), about("first"), about("second"))

    assert event["regarding"]["name"] == "second"
