"""Bodies that are no review that can be judged: each gets its answer, and the service goes on serving."""

import asyncio
import io
from collections.abc import AsyncIterator, Iterator, MutableMapping
from typing import Any

import orjson
import pytest
from slow import SlowCatalog
from structlog.testing import capture_logs

from webhooks.settings import MEBIBYTE, Settings
from webhooks.testing import InMemoryCatalog, Pair, Reply, review

JSON = {"Content-Type": "application/json"}
LIMIT = 8 * MEBIBYTE


def vmi(reference: str) -> dict[str, Any]:
    labels = {"gpu.cozystack.io/device-reference": reference}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "vm", "namespace": "tenant-a", "labels": labels},
        "spec": {"domain": {"devices": {}}},
    }


VMI = vmi("my-gpu")

both_paths = pytest.mark.parametrize("path", ["/mutate", "/validate"])


@pytest.fixture
def log_lines() -> Iterator[list[MutableMapping[str, Any]]]:
    with capture_logs() as lines:
        yield lines


@pytest.fixture
async def pair(
    gpu_pair: Pair, log_lines: list[MutableMapping[str, Any]], caplog: pytest.LogCaptureFixture
) -> AsyncIterator[Pair]:
    """The pair, of which is asserted in the end that it still serves and that no traceback was logged."""
    yield gpu_pair

    assert (await gpu_pair.mutate(review(VMI))).allowed
    assert not [line for line in log_lines if line.get("exc_info")]
    assert not caplog.records


async def answer(pair: Pair, body: bytes, *, path: str = "/mutate", **headers: str) -> tuple[int, dict[str, Any]]:
    async with pair.client.post(path, data=io.BytesIO(body), headers={**JSON, **headers}) as response:
        return response.status, orjson.loads(await response.read())


def body_of(**changes: object) -> bytes:
    """A review whose request has these members changed; those that are ``...`` are missing."""
    body = review(VMI, uid="u-1")
    request = {key: value for key, value in {**body["request"], **changes}.items() if value is not ...}
    return orjson.dumps({**body, "request": request})


@both_paths
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xff\xfe\x00", id="binary"),
        pytest.param(b'{"request":', id="truncated"),
        pytest.param(b'{"request":{"uid":"\xff"}}', id="invalid UTF-8"),
        pytest.param(b'{"request":{"uid":"u-1","dryRun":NaN}}', id="NaN"),
        pytest.param(b'{"request":{"uid":"u-1","name":"\\ud800"}}', id="lone surrogate"),
        pytest.param(b"[" * 100_000, id="100,000 open brackets"),
        pytest.param(b'{"request":' + b"[" * 100_000 + b"]" * 100_000 + b"}", id="100,000 nested lists"),
        pytest.param(b"{}", id="no request"),
        pytest.param(b"null", id="null"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b'{"request":"u-1"}', id="request is no object"),
        pytest.param(body_of(uid=...), id="no uid"),
        pytest.param(body_of(uid=""), id="empty uid"),
        pytest.param(body_of(uid=7), id="uid is a number"),
        pytest.param(body_of(uid=["u-1"]), id="uid is a list"),
    ],
)
async def test_without_a_uid_to_answer_to_the_answer_is_http_400(pair: Pair, path: str, body: bytes) -> None:
    code, status = await answer(pair, body, path=path)

    assert code == 400
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 400, "BadRequest")
    assert "the body is" in status["message"]


@both_paths
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kind": ...}, "request.kind"),
        ({"kind": "Pod"}, "request.kind"),
        ({"kind": {"group": 1, "version": "v1", "kind": "Pod"}}, "request.kind.group"),
        ({"kind": {"version": [], "kind": "Pod"}}, "request.kind.version"),
        ({"kind": {"version": "v1"}}, "request.kind.kind"),
        ({"operation": ...}, "request.operation"),
        ({"operation": None}, "request.operation"),
        ({"operation": 1}, "request.operation"),
        ({"userInfo": []}, "request.userInfo"),
        ({"userInfo": {"username": {}}}, "request.userInfo.username"),
        ({"userInfo": {"groups": "system:masters"}}, "request.userInfo.groups"),
        ({"userInfo": {"groups": ["a", 1]}}, "request.userInfo.groups[1]"),
        ({"dryRun": "true"}, "request.dryRun"),
        ({"dryRun": 1}, "request.dryRun"),
        ({"object": []}, "request.object"),
        ({"object": "x"}, "request.object"),
        ({"oldObject": True}, "request.oldObject"),
        ({"name": 1}, "request.name"),
        ({"namespace": {}}, "request.namespace"),
        ({"subResource": False}, "request.subResource"),
    ],
    ids=lambda value: str(value).replace("Ellipsis", "missing"),
)
async def test_a_wrong_type_in_the_request_is_answered_with_its_field(
    pair: Pair, path: str, change: dict[str, object], field: str
) -> None:
    code, body = await answer(pair, body_of(**change), path=path)

    reply = Reply.of(orjson.dumps(body), uid="u-1")
    assert (code, reply.allowed, reply.code, reply.fields) == (200, False, 400, (field,))


@both_paths
@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("admission.k8s.io/v1beta1", "AdmissionReview"),
        ("admission.k8s.io/v2", "AdmissionReview"),
        ("admission.k8s.io/v1", "ConversionReview"),
        ("evil\n\x1b[31m", "AdmissionReview"),
        ("v" * 10_000, "AdmissionReview"),
        (None, None),
        (7, {}),
    ],
)
async def test_another_review_version_is_refused_with_400_and_the_uid(
    pair: Pair, path: str, version: object, kind: object
) -> None:
    body = orjson.dumps({**review(VMI, uid="u-1"), "apiVersion": version, "kind": kind})

    code, answered = await answer(pair, body, path=path)

    reply = Reply.of(orjson.dumps(answered), uid="u-1")
    assert (code, reply.code, reply.reason, reply.fields) == (200, 400, "BadRequest", ("apiVersion",))
    assert "must be AdmissionReview of admission.k8s.io/v1" in reply.message
    assert reply.message.isprintable()
    assert len(reply.message) < 400


@pytest.mark.parametrize("member", ["apiVersion", "kind"])
async def test_a_version_nested_a_thousand_deep_is_only_another_version(pair: Pair, member: str) -> None:
    text = orjson.dumps({**review(VMI, uid="u-1"), member: "DEEP"})

    code, answered = await answer(pair, text.replace(b'"DEEP"', b"[" * 1000 + b"]" * 1000))

    assert (code, answered["response"]["status"]["code"]) == (200, 400)


@both_paths
async def test_a_created_object_in_an_unknown_version_is_refused_with_400(pair: Pair, path: str) -> None:
    body = review({**VMI, "apiVersion": "kubevirt.io/v9"}, uid="u-1")

    _, answered = await answer(pair, orjson.dumps(body), path=path)

    reply = Reply.of(orjson.dumps(answered), uid="u-1")
    assert (reply.code, reply.fields) == (400, ("request.kind.version",))
    assert "'v9'" in reply.message


@both_paths
async def test_an_update_without_its_old_object_or_a_creation_without_an_object_is_malformed(
    pair: Pair, path: str
) -> None:
    creation = await answer(pair, body_of(object=None), path=path)
    update = await answer(pair, body_of(operation="UPDATE", oldObject=None), path="/validate")

    assert creation[1]["response"]["status"]["details"]["causes"][0]["field"] == "request.object"
    assert update[1]["response"]["status"]["details"]["causes"][0]["field"] == "request.oldObject"


@pytest.mark.parametrize("chunked", [False, True], ids=["Content-Length", "chunked"])
async def test_a_body_over_8_mib_is_answered_with_413(pair: Pair, *, chunked: bool) -> None:
    body = b" " * (9 * MEBIBYTE)

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 64 * 1024):
            yield body[start : start + 64 * 1024]

    async with pair.client.post("/mutate", data=chunks() if chunked else io.BytesIO(body), headers=JSON) as response:
        status = orjson.loads(await response.read())

    assert response.status == 413
    assert (status["kind"], status["reason"]) == ("Status", "RequestEntityTooLarge")
    assert str(LIMIT) in status["message"]


@pytest.mark.parametrize(("over", "expected"), [(0, 200), (1, 413)], ids=["exactly", "one byte over"])
async def test_a_body_of_exactly_the_limit_is_read(pair: Pair, over: int, expected: int) -> None:
    text = orjson.dumps(review(VMI, uid="u-1"))

    code, _ = await answer(pair, text + b" " * (LIMIT - len(text) + over))

    assert code == expected


@both_paths
@pytest.mark.parametrize("content_type", ["text/plain", "application/yaml", "application/jsonx", "a/b/c;;;", "json"])
async def test_another_content_type_is_answered_with_415(pair: Pair, path: str, content_type: str) -> None:
    code, status = await answer(pair, body_of(), path=path, **{"Content-Type": content_type})

    assert code == 415
    assert (status["reason"], status["message"]) == (
        "UnsupportedMediaType",
        "send application/json, not compressed",
    )


async def test_no_content_type_is_answered_with_415(pair: Pair) -> None:
    async with pair.client.post("/mutate", data=body_of(), skip_auto_headers=["Content-Type"], headers={}) as response:
        code = response.status

    assert code == 415


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON", "application/json;"])
async def test_json_with_parameters_is_json(pair: Pair, content_type: str) -> None:
    code, answered = await answer(pair, body_of(), **{"Content-Type": content_type})

    assert (code, answered["response"]["allowed"]) == (200, True)


@both_paths
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
async def test_another_method_is_answered_with_405(pair: Pair, path: str, method: str) -> None:
    async with pair.client.request(method, path) as response:
        code, allowed = response.status, response.headers["Allow"]

    assert (code, allowed) == (405, "POST")


@pytest.mark.parametrize("path", ["/", "/mutate/", "/mutate/x", "/metrics", "/%00", "/../validate/.."])
async def test_another_path_is_answered_with_404(pair: Pair, path: str) -> None:
    async with pair.client.post(path, data=body_of(), headers=JSON) as response:
        code = response.status

    assert code == 404


class TestWhileAFreshReadWaits:
    @pytest.fixture
    def gpu_catalog(self, gpu_catalog: InMemoryCatalog) -> SlowCatalog:
        return SlowCatalog.of(gpu_catalog)

    @pytest.fixture
    def gpu_settings(self) -> Settings:
        return Settings(most_in_flight=1)

    async def test_above_the_cap_in_flight_the_answer_is_503_with_a_status(
        self, pair: Pair, gpu_catalog: SlowCatalog
    ) -> None:
        waiting = asyncio.create_task(pair.mutate(review(vmi("none"))))
        await gpu_catalog.reached.wait()

        code, status = await answer(pair, body_of())
        gpu_catalog.go.set()
        waited = await waiting

        assert (code, status["kind"], status["reason"]) == (503, "Status", "ServiceUnavailable")
        assert "try again" in status["message"]
        assert waited.code == 422

    async def test_the_callers_deadline_is_kept(
        self, pair: Pair, gpu_catalog: SlowCatalog, log_lines: list[MutableMapping[str, Any]]
    ) -> None:
        body = orjson.dumps(review(vmi("none"), uid="u-1"))

        async with asyncio.timeout(1):
            code, answered = await answer(pair, body, path="/mutate?timeout=1s")

        reply = Reply.of(orjson.dumps(answered), uid="u-1")
        assert gpu_catalog.reached.is_set()
        assert (code, reply.code, reply.reason) == (200, 504, "Timeout")
        assert [line["event"] for line in log_lines] == ["refused"]


async def test_a_body_that_does_not_come_in_time_is_answered_with_408(pair: Pair) -> None:
    async def trickle() -> AsyncIterator[bytes]:
        yield body_of()[:20]
        await asyncio.sleep(1.2)
        yield body_of()[20:]

    async with pair.client.post("/mutate?timeout=1s", data=trickle(), headers=JSON) as response:
        code, status = response.status, orjson.loads(await response.read())

    assert (code, status["reason"]) == (408, "Timeout")
