"""Work in time, or not at all: what a deadline does to a decision, and that nothing is built after it."""

import asyncio
import time
from contextlib import suppress
from typing import Any

import orjson
import pytest
import uvloop

from gpu.gpudevice import GPUDevice
from gpu.offer import Offer
from gpu.template import DeviceTemplate
from webhooks.admission import Admission
from webhooks.deadline import in_time
from webhooks.testing import InMemoryCatalog, Reply, review

ORDER = '{"className":"h200","count":1}'


def soon(seconds: float = 0.05) -> float:
    return asyncio.get_running_loop().time() + seconds


class Work:
    """Notes what becomes of it."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.go = asyncio.Event()

    async def at_once(self) -> str:
        self.notes.append("begun")
        return "done"

    async def when_let_go(self) -> str:
        self.notes.append("begun")
        try:
            await self.go.wait()
        except BaseException as error:
            self.notes.append(type(error).__name__)
            raise
        self.notes.append("went on")
        return "done"


@pytest.fixture
def work() -> Work:
    return Work()


class TestWorkInTime:
    @pytest.mark.parametrize("seconds", [None, 60.0], ids=["no deadline", "a deadline"])
    async def test_what_never_waits_is_returned(self, work: Work, seconds: float | None) -> None:
        result = await in_time(work.at_once(), None if seconds is None else soon(seconds))

        assert result == "done"

    @pytest.mark.parametrize("seconds", [None, 60.0], ids=["no deadline", "a deadline"])
    async def test_what_waits_is_returned_once_it_is_done(self, work: Work, seconds: float | None) -> None:
        asyncio.get_running_loop().call_later(0.01, work.go.set)

        result = await in_time(work.when_let_go(), None if seconds is None else soon(seconds))

        assert (result, work.notes) == ("done", ["begun", "went on"])

    async def test_work_may_wait_many_times_and_for_all_sorts_of_things(self) -> None:
        async def restless() -> int:
            await asyncio.sleep(0)
            first = await asyncio.create_task(asyncio.sleep(0.001, 1))
            second, third = await asyncio.gather(asyncio.sleep(0, 2), asyncio.sleep(0.001, 3))
            async with asyncio.timeout(1):
                return first + second + third + await asyncio.to_thread(lambda: 4)

        assert await in_time(restless(), soon(60)) == 10

    async def test_it_runs_in_the_task_of_its_caller(self) -> None:
        async def whose() -> asyncio.Task[Any] | None:
            await asyncio.sleep(0)
            return asyncio.current_task()

        assert await in_time(whose(), soon(60)) is asyncio.current_task()

    @pytest.mark.parametrize("waits", [False, True], ids=["at once", "after a wait"])
    async def test_its_exception_is_passed_on(self, *, waits: bool) -> None:
        async def failing() -> None:
            if waits:
                await asyncio.sleep(0.001)
            raise LookupError("mine")

        with pytest.raises(LookupError, match="mine"):
            await in_time(failing(), soon(60))

    async def test_an_exception_of_what_it_waits_for_can_be_caught_by_it(self) -> None:
        broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(broken.set_exception, LookupError("theirs"))

        async def careful() -> str:
            try:
                await broken
            except LookupError as error:
                await asyncio.sleep(0)
                return f"caught {error}"
            return "not raised"

        assert await in_time(careful(), soon(60)) == "caught theirs"

    async def test_a_timeout_of_its_own_is_its_own(self, work: Work) -> None:
        async def impatient() -> str:
            try:
                async with asyncio.timeout(0.01):
                    await work.when_let_go()
            except TimeoutError:
                return "gave up itself"
            return "not raised"

        assert await in_time(impatient(), soon(60)) == "gave up itself"


class TestWorkThatIsLate:
    @pytest.mark.parametrize("seconds", [-1.0, 0.0], ids=["long past", "just now"])
    async def test_before_it_begins_is_not_begun(self, work: Work, seconds: float) -> None:
        with pytest.raises(TimeoutError):
            await in_time(work.at_once(), soon(seconds))

        assert work.notes == []

    async def test_while_it_waits_is_cancelled(self, work: Work) -> None:
        start = time.monotonic()

        with pytest.raises(TimeoutError):
            await in_time(work.when_let_go(), soon(0.05))

        assert work.notes == ["begun", "CancelledError"]
        assert 0.04 < time.monotonic() - start < 1
        assert not asyncio.current_task().cancelling()  # type: ignore[union-attr]

    async def test_may_clean_up_and_wait_for_that(self, work: Work) -> None:
        async def tidy() -> None:
            try:
                await work.when_let_go()
            finally:
                await asyncio.sleep(0.01)
                work.notes.append("tidied")

        with pytest.raises(TimeoutError):
            await in_time(tidy(), soon(0.02))

        assert work.notes == ["begun", "CancelledError", "tidied"]

    async def test_by_an_outer_and_an_inner_timeout_at_once_is_late_for_the_outer(self, work: Work) -> None:
        until = soon(0.02)

        async def impatient() -> None:
            async with asyncio.timeout_at(until):
                await work.when_let_go()

        with pytest.raises(TimeoutError):
            await in_time(impatient(), until)

    @pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
    @pytest.mark.parametrize("outcome", [None, LookupError("theirs")], ids=["result", "exception"])
    def test_does_not_go_on_though_what_it_waited_for_came_just_before_the_cancellation(
        self, run: Any, outcome: Exception | None
    ) -> None:
        notes = []

        async def scene() -> None:
            loop = asyncio.get_running_loop()
            awaited: asyncio.Future[None] = loop.create_future()

            async def patient() -> None:
                with suppress(LookupError):
                    await awaited
                notes.append("went on")

            def come_late() -> None:
                time.sleep(0.05)
                if outcome is None:
                    awaited.set_result(None)
                else:
                    awaited.set_exception(outcome)

            loop.call_later(0.01, come_late)
            with pytest.raises(TimeoutError):
                await in_time(patient(), loop.time() + 0.03)

        run(scene())

        assert notes == []


class TestWorkThatIsGivenUp:
    async def test_by_a_cancellation_of_its_caller_hears_of_it(self, work: Work) -> None:
        task = asyncio.create_task(in_time(work.when_let_go(), soon(60)))
        await asyncio.sleep(0)

        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task
        assert work.notes == ["begun", "CancelledError"]

    async def test_by_a_cancellation_after_its_deadline_is_cancelled_and_not_late(self, work: Work) -> None:
        task = asyncio.create_task(in_time(work.when_let_go(), soon(0.01)))
        await asyncio.sleep(0)
        time.sleep(0.02)  # noqa: ASYNC251 - so that both come at once

        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task
        assert work.notes == ["begun", "CancelledError"]

    async def test_by_an_end_of_the_coroutine_is_closed(self, work: Work) -> None:
        outer = in_time(work.when_let_go(), None)
        outer.send(None)

        outer.close()

        assert work.notes == ["begun", "GeneratorExit"]

    async def test_by_an_exception_thrown_in_gets_it(self, work: Work) -> None:
        outer = in_time(work.when_let_go(), None)
        outer.send(None)

        with pytest.raises(KeyboardInterrupt):
            outer.throw(KeyboardInterrupt())

        assert work.notes == ["begun", "KeyboardInterrupt"]


class WaitingCatalog(InMemoryCatalog):
    """The call of its that is named in ``slow`` waits; its builds are counted when they are asked for."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.slow = ""
        self.asked = 0
        self.go = asyncio.Event()

    async def _wait(self, call: str) -> None:
        if self.slow == call:
            await self.go.wait()

    async def fresh_offer(self) -> Offer:
        await self._wait("fresh_offer")
        return await super().fresh_offer()

    async def build_device(
        self, namespace: str, name: str, template: DeviceTemplate, *, dry_run: bool = False
    ) -> GPUDevice:
        self.asked += 1
        await self._wait("build_device")
        return await super().build_device(namespace, name, template, dry_run=dry_run)


@pytest.fixture
def gpu_catalog(gpu_catalog: InMemoryCatalog) -> WaitingCatalog:
    waiting = WaitingCatalog()
    waiting._truth = waiting._memory = gpu_catalog._truth
    return waiting


def vmi(order: str = ORDER) -> dict[str, Any]:
    annotations = {"gpu.cozystack.io/device-template": order}
    metadata = {"name": "vm", "namespace": "tenant-z", "annotations": annotations}
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": metadata, "spec": {}}


async def judged(catalog: WaitingCatalog, until: float | None, *, order: str = ORDER) -> Reply:
    """The answer. After it, whatever waits in the catalog is let go."""
    body = orjson.dumps(review(vmi(order), uid="u-1"))
    answered = await Admission.of(catalog=catalog).answered(body, "mutate", until=until)
    catalog.go.set()
    await asyncio.sleep(0.02)
    return Reply.of(answered, uid="u-1")


class TestADevice:
    """Ordered by a template: built before the deadline, or not."""

    async def test_is_built_in_time(self, gpu_catalog: WaitingCatalog) -> None:
        reply = await judged(gpu_catalog, soon(60))

        assert reply.allowed
        assert len(gpu_catalog.devices("tenant-z")) == gpu_catalog.asked == 1

    async def test_is_not_built_when_the_review_is_late_at_once(self, gpu_catalog: WaitingCatalog) -> None:
        reply = await judged(gpu_catalog, soon(-0.001))

        assert (reply.allowed, reply.code, reply.reason) == (False, 504, "Timeout")
        assert (list(gpu_catalog.devices("tenant-z")), gpu_catalog.asked) == ([], 0)

    async def test_is_not_built_when_the_time_is_up_in_a_fresh_read(self, gpu_catalog: WaitingCatalog) -> None:
        gpu_catalog.slow = "fresh_offer"
        source = {"devicePlugin": {"resourceName": "nvidia.com/NEW", "nodeSelector": {"a": "b"}}}
        spec = {"vendor": "NVIDIA", "model": "New", "mode": "Passthrough", "memory": "1Gi", "maxCount": 1}
        spec["source"] = source
        new = {"apiVersion": "gpu.cozystack.io/v1alpha1", "kind": "GPUClass", "metadata": {"name": "new"}, "spec": spec}

        with gpu_catalog.stale():
            gpu_catalog.add(new)
            reply = await judged(gpu_catalog, soon(), order='{"className":"new","count":1}')

        assert (reply.allowed, reply.code, reply.reason) == (False, 504, "Timeout")
        assert (list(gpu_catalog.devices("tenant-z")), gpu_catalog.asked) == ([], 0)

    async def test_is_not_built_when_the_time_is_up_before_the_api_has_taken_it(
        self, gpu_catalog: WaitingCatalog
    ) -> None:
        gpu_catalog.slow = "build_device"

        reply = await judged(gpu_catalog, soon())

        assert (reply.allowed, reply.code, reply.reason) == (False, 504, "Timeout")
        assert (list(gpu_catalog.devices("tenant-z")), gpu_catalog.asked) == ([], 1)

    async def test_is_built_by_a_retry_after_a_late_answer(self, gpu_catalog: WaitingCatalog) -> None:
        gpu_catalog.slow = "build_device"
        late = await judged(gpu_catalog, soon())

        retried = await judged(gpu_catalog, soon(60))

        assert (late.allowed, retried.allowed) == (False, True)
        assert len(gpu_catalog.devices("tenant-z")) == 1
