"""What is counted, and what is logged: one line for each refusal, nothing of what is let in, never an object."""

import asyncio
import io
import logging
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import pytest
import structlog
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from gpu.errors import CatalogError
from gpu.offer import Offer
from webhooks.app import ADMISSION, TRANSPORT
from webhooks.guard import Guard
from webhooks.logs import configure_logs
from webhooks.probes import make_probe_app
from webhooks.testing import ADMIN, InMemoryCatalog, Pair, review

H200 = "nvidia.com/GH100_H200_SXM_141GB"
SECRET = "hunter2-do-not-log"

LogLines = list[MutableMapping[str, Any]]


def vmi(*gpus: str, reference: str = "", template: str = "") -> dict[str, Any]:
    labels = {"gpu.cozystack.io/device-reference": reference} if reference else {}
    annotations = {"gpu.cozystack.io/device-template": template} if template else {}
    entries = [{"name": f"g{index}", "deviceName": name} for index, name in enumerate(gpus)]
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {
            "name": "vm",
            "namespace": "tenant-a",
            "labels": {**labels, "password": SECRET},
            "annotations": annotations,
        },
        "spec": {"domain": {"devices": {"gpus": entries}}, "volumes": [{"cloudInitNoCloud": {"userData": SECRET}}]},
    }


class FailingCatalog(InMemoryCatalog):
    """Its fresh reads fail, or wait at a gate, as they are told to."""

    failure: Exception | None = None
    gate: asyncio.Event | None = None
    waiting = 0

    async def fresh_offer(self) -> Offer:
        if self.gate:
            self.waiting += 1
            await self.gate.wait()
        if self.failure:
            raise self.failure
        return await super().fresh_offer()


@pytest.fixture
def gpu_catalog(gpu_catalog: InMemoryCatalog) -> FailingCatalog:
    failing = FailingCatalog()
    failing._truth = failing._memory = gpu_catalog._truth
    return failing


@pytest.fixture
def log_lines() -> Iterator[LogLines]:
    with capture_logs() as lines:
        yield lines


Count = Callable[..., float]


@pytest.fixture
def counted(gpu_pair: Pair) -> Count:
    """The sum of a metric's samples that have these labels, as /metrics has it."""

    def value(name: str, **labels: str) -> float:
        assert gpu_pair.client.app is not None
        registry = gpu_pair.client.app[ADMISSION].metrics.registry
        samples = [sample for family in registry.collect() for sample in family.samples if sample.name == name]
        return float(sum(sample.value for sample in samples if labels.items() <= sample.labels.items()))

    return value


async def test_reviews_are_counted_by_path_kind_operation_and_verdict(gpu_pair: Pair, counted: Count) -> None:
    await gpu_pair.mutate(review(vmi(reference="my-gpu")))
    await gpu_pair.mutate(review(vmi()))
    await gpu_pair.validate(review(vmi(H200)))
    await gpu_pair.validate(review(vmi(H200)))
    await gpu_pair.validate(review(vmi(), operation="UPDATE", old=vmi(reference="my-gpu")))

    def requests(path: str, operation: str, verdict: str) -> float:
        labels = {"path": path, "operation": operation, "verdict": verdict, "kind": "VirtualMachineInstance"}
        return counted("gpu_webhooks_requests_total", **labels)

    assert requests("mutate", "CREATE", "patched") == 1
    assert requests("mutate", "CREATE", "admitted") == 1
    assert requests("validate", "CREATE", "refused") == 2
    assert requests("validate", "UPDATE", "refused") == 1
    assert counted("gpu_webhooks_requests_total") == 5
    assert counted("gpu_webhooks_request_seconds_count", path="validate") == 3


async def test_kinds_and_operations_that_a_caller_makes_up_are_one_label_value(gpu_pair: Pair, counted: Count) -> None:
    for index in range(300):
        body = review(vmi())
        body["request"] |= {"operation": f"OP{index}", "kind": {"group": "x", "version": "v1", "kind": f"K{index}"}}
        await gpu_pair.validate(body)

    assert counted("gpu_webhooks_requests_total", kind="other", operation="other") == 300
    assert counted("gpu_webhooks_requests_total") == 300


async def test_devices_that_are_built_taken_over_or_refused_are_counted(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog, counted: Count
) -> None:
    quota = {"count/gpudevices.gpu.cozystack.io": "4"}
    metadata = {"name": "gpus", "namespace": "tenant-a"}
    gpu_catalog.add({"kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": quota}})

    await gpu_pair.mutate(review(vmi(template='{"className":"h200"}')))
    await gpu_pair.mutate(review(vmi(template='{"className":"h200"}')))
    await gpu_pair.mutate(review(vmi(template='{"className":"l40s-24q"}')))
    await gpu_pair.mutate(review(vmi(template='{"className":"l40s-24q"}'), dry_run=True))

    def devices(outcome: str) -> float:
        return counted("gpu_webhooks_devices_total", outcome=outcome)

    assert (devices("built"), devices("taken over"), devices("refused")) == (1, 1, 1)


@pytest.mark.parametrize(
    ("body", "content_type", "cause"),
    [
        (b"{", "application/json", "unreadable"),
        (b"{}", "text/plain", "content type"),
        (b" " * (8 * 1024 * 1024 + 1), "application/json", "too large"),
    ],
    ids=["unreadable", "content type", "too large"],
)
async def test_calls_without_a_verdict_are_counted_by_cause_and_logged(
    gpu_pair: Pair, counted: Count, log_lines: LogLines, *, body: bytes, content_type: str, cause: str
) -> None:
    await gpu_pair.client.post("/mutate", data=io.BytesIO(body), headers={"Content-Type": content_type})

    assert counted("gpu_webhooks_failures_total", path="mutate", cause=cause) == 1
    assert counted("gpu_webhooks_failures_total") == 1
    assert counted("gpu_webhooks_requests_total") == 0
    assert [(line["event"], line["cause"]) for line in log_lines] == [("no verdict", cause)]


async def test_reviews_in_flight_are_shown(gpu_pair: Pair, gpu_catalog: FailingCatalog, counted: Count) -> None:
    gpu_catalog.gate = asyncio.Event()
    calls = [asyncio.create_task(gpu_pair.validate(review(vmi(H200)))) for _ in range(3)]
    async with asyncio.timeout(5):
        while gpu_catalog.waiting < 3:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)

    during = counted("gpu_webhooks_in_flight")
    gpu_catalog.gate.set()
    await asyncio.gather(*calls)

    assert (during, counted("gpu_webhooks_in_flight")) == (3, 0)


async def test_the_metrics_page_can_be_parsed_and_names_every_metric(gpu_pair: Pair) -> None:
    await gpu_pair.validate(review(vmi(H200)))
    assert gpu_pair.client.app is not None
    probes = make_probe_app(gpu_pair.client.app[TRANSPORT], Guard(most=8, head_seconds=5))

    async with TestClient(TestServer(probes)) as client:
        response = await client.get("/metrics")
        families = {family.name for family in text_string_to_metric_families(await response.text())}

    assert response.headers["Content-Type"].startswith("text/plain; version=")
    assert families >= {
        f"gpu_webhooks_{name}" for name in ("requests", "request_seconds", "in_flight", "devices", "failures")
    }


async def test_a_refusal_is_one_line_with_who_what_where_and_why(gpu_pair: Pair, log_lines: LogLines) -> None:
    reply = await gpu_pair.validate(review(vmi(H200, H200), user=ADMIN, uid="u-1", dry_run=True))

    assert log_lines == [
        {
            "event": "refused",
            "log_level": "info",
            "path": "validate",
            "uid": "u-1",
            "user": "admin",
            "operation": "CREATE",
            "kind": "VirtualMachineInstance",
            "namespace": "tenant-a",
            "name": "vm",
            "fields": ["spec.domain.devices.gpus[0]", "spec.domain.devices.gpus[1]"],
            "code": 403,
            "why": reply.message,
            "dry_run": True,
        }
    ]


async def test_what_is_let_in_is_not_logged(gpu_pair: Pair, log_lines: LogLines) -> None:
    admitted = await gpu_pair.admit(vmi(reference="my-gpu"))
    built = await gpu_pair.admit(vmi(template='{"className":"h200"}'))

    assert admitted.allowed
    assert built.allowed
    assert log_lines == []


async def test_a_catalog_that_cannot_answer_is_503_counted_and_logged_as_a_refusal(
    gpu_pair: Pair, gpu_catalog: FailingCatalog, counted: Count, log_lines: LogLines
) -> None:
    gpu_catalog.failure = CatalogError("etcd is away\n")

    reply = await gpu_pair.validate(review(vmi(H200)))

    assert (reply.code, reply.reason) == (503, "ServiceUnavailable")
    assert reply.message == "this can't be decided now: etcd is away?; try again"
    assert counted("gpu_webhooks_failures_total", path="validate", cause="catalog") == 1
    assert counted("gpu_webhooks_requests_total", verdict="failed") == 1
    assert [(line["event"], line["code"]) for line in log_lines] == [("refused", 503)]


async def test_a_failure_of_our_code_is_500_with_the_uid_counted_and_logged_once_with_a_traceback(
    gpu_pair: Pair, gpu_catalog: FailingCatalog, counted: Count, log_lines: LogLines
) -> None:
    gpu_catalog.failure = RuntimeError("a bug")

    reply = await gpu_pair.mutate(review(vmi(reference="none"), uid="u-1"))
    gpu_catalog.failure = None
    after = await gpu_pair.mutate(review(vmi(reference="my-gpu")))

    assert (reply.code, reply.reason) == (500, "InternalError")
    assert "uid u-1" in reply.message
    assert "a bug" not in reply.message
    assert after.allowed
    assert counted("gpu_webhooks_failures_total", path="mutate", cause="code") == 1
    assert counted("gpu_webhooks_requests_total", verdict="failed") == 1
    with_traceback = [line for line in log_lines if line.get("exc_info")]
    assert [(line["event"], line["uid"], line["kind"]) for line in with_traceback] == [
        ("failed", "u-1", "VirtualMachineInstance")
    ]


class TestWritten:
    """What is really written, as the process does it."""

    @pytest.fixture(params=["json", "console"])
    def written(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
        handlers = logging.getLogger().handlers[:]
        written = io.BytesIO()
        stream = io.TextIOWrapper(written, encoding="utf-8", write_through=True)
        monkeypatch.setattr("sys.stderr", stream)
        configure_logs(style=request.param, level="info")
        for module in ("admission", "transport"):
            monkeypatch.setattr(f"webhooks.{module}._log", structlog.get_logger("gpu-webhooks"))
        yield lambda: written.getvalue().decode()
        structlog.reset_defaults()
        logging.getLogger().handlers = handlers

    async def test_no_part_of_an_object_is_written_not_even_when_our_code_fails(
        self, gpu_pair: Pair, gpu_catalog: FailingCatalog, written: Callable[[], str]
    ) -> None:
        await gpu_pair.validate(review(vmi(H200)))
        gpu_catalog.failure = RuntimeError("a bug")
        await gpu_pair.validate(review(vmi(H200)))
        await gpu_pair.mutate({**review(vmi(H200)), "apiVersion": "v2"})

        assert "refused" in written()
        assert "RuntimeError" in written()
        assert "a bug" in written()
        assert "unjudgeable" in written()
        assert SECRET not in written()
        assert "cloudInitNoCloud" not in written()

    async def test_a_hostile_name_forges_no_line(self, gpu_pair: Pair, written: Callable[[], str]) -> None:
        hostile = "\x1b[2K\nlevel=info\u2028event=serving\r"
        body = review(vmi(H200))
        body["request"] |= {"name": hostile, "namespace": hostile, "uid": f"u{hostile}"}
        body["request"]["userInfo"]["username"] = hostile

        await gpu_pair.validate(body)

        lines = written().splitlines()
        assert len(lines) == 1
        assert lines[0].isprintable()
        assert "refused" in lines[0]
