"""Reviews with random damage: whatever comes, the answer is a verdict or a clear no, never a failure of our own."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from webhooks.testing import ADMIN, VIRT_CONTROLLER, Pair, review

RECORDED = Path(__file__).parent.parent / "reviews"
CASES = 3000
SEED = 20261101
H200 = "nvidia.com/GH100_H200_SXM_141GB"
REFERENCE = "gpu.cozystack.io/device-reference"
TEMPLATE = "gpu.cozystack.io/device-template"

DEEP = json.loads("[" * 50 + "]" * 50)
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 1.5, 1e300, 2**63, "", "x", "1", "my-gpu", "desk-gpu", H200, "a\nb\x1b\x00",
    "n" * 300,    "UPDATE", "CREATE", "DELETE", "Pod", "VirtualMachineInstance", "kubevirt.io", "v1", "1e999", "-1",
    '{"className":"h200"}', '{"className":"h200","count":2}', [], [None], [[]], [1, "a"], {}, {"": {}}, {"a": None},
    DEEP,
)  # fmt: skip
KEYS = (
    "metadata", "labels", "annotations", "spec", "domain", "devices", "gpus", "hostDevices", "resources", "limits",
    "requests", "deviceName", "claimName", "ownerReferences", "template", REFERENCE, TEMPLATE, H200, "", "a/b~c",
)  # fmt: skip


def built() -> Iterator[dict[str, Any]]:
    """Reviews of all that the pair has a say in."""
    gpus = [{"name": "a", "deviceName": H200, "tag": "t"}, {"name": "b", "claimName": "c", "requestName": "r"}]
    domain = {
        "devices": {"gpus": gpus, "hostDevices": [{"name": "h", "deviceName": H200}]},
        "resources": {"requests": {H200: "1", "cpu": "2"}, "limits": {H200: 1}},
    }
    spec = {"domain": domain, "resourceClaims": [{"name": "c", "resourceClaimName": "x"}], "networks": [{"name": "n"}]}
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "desk", "uid": "u"}
    owners = [{**owner, "controller": True}]
    for marks in (
        {"labels": {REFERENCE: "my-gpu"}},
        {"annotations": {TEMPLATE: '{"className":"h200","count":2}'}},
        {"labels": {REFERENCE: "desk-gpu"}, "annotations": {TEMPLATE: '{"className":"l40s-24q"}'}},
        {},
    ):
        metadata = {"name": "vm", "namespace": "tenant-a", "ownerReferences": owners, **marks}
        vmi = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": metadata, "spec": spec}
        template = {"metadata": marks, "spec": spec}
        yield review(vmi)
        yield review(vmi, operation="UPDATE", old={**vmi, "metadata": {"name": "vm", "labels": {REFERENCE: "other"}}})
        for kind in ("VirtualMachine", "VirtualMachineInstanceReplicaSet"):
            family = {"apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": {"name": "vm", "namespace": "tenant-a"}}
            yield review({**family, "spec": {"replicas": 2, "template": template}})
            yield review({**family, "spec": {"template": template}}, operation="UPDATE", old={**family, "spec": {}})
        container = {"name": "c", "resources": {"limits": {H200: "1"}, "requests": {H200: "1"}}}
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-node-1"]}]}]
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
        claims = [{"name": "c", "resourceClaimName": "x"}, {"name": "t", "resourceClaimTemplateName": "y"}]
        pod_spec = {"containers": [container], "affinity": affinity, "resourceClaims": claims}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec}
        yield review(pod, user=VIRT_CONTROLLER)
        yield review(pod, user=ADMIN)
    device = {"name": "d", "namespace": "tenant-a", "finalizers": ["x"], "labels": {"a": "b"}}
    order = {"apiVersion": "gpu.cozystack.io/v1alpha1", "kind": "GPUDevice", "metadata": device}
    yield review({**order, "spec": {"className": "h200", "count": 2}, "status": {"phase": "Held"}})


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a JSON value: its container, and the key or the index."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


def damaged(source: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """A copy of a review with one to four things about it changed."""
    body: dict[str, Any] = orjson.loads(orjson.dumps(source))
    for _ in range(chance.choice((1, 1, 2, 4))):
        found = list(places(body["request"])) if isinstance(body.get("request"), dict) else []
        if not found:
            break
        container, key = chance.choice(found)
        match chance.choice(("replace", "replace", "delete", "duplicate", "add", "nest")):
            case "replace":
                container[key] = deepcopy(chance.choice(VALUES))
            case "delete":
                del container[key]
            case "duplicate" if isinstance(container, list):
                container[:] = [*container, *[container[key]] * chance.choice((1, 20))]
            case "add" if isinstance(container, dict):
                container[chance.choice(KEYS)] = deepcopy(chance.choice(VALUES))
            case _:
                container[key] = chance.choice(([container[key]], {"a": container[key]}))
    return body


def sources() -> list[dict[str, Any]]:
    """Recorded reviews, and built ones; of the large ones few, since damage seldom hits what matters there."""
    recorded = [file.read_bytes() for file in sorted(RECORDED.glob("**/*.json"))]
    return [*built(), *built(), *built(), *(orjson.loads(body) for body in recorded if len(body) < 20_000)]


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
async def test_a_damaged_review_is_never_a_failure(gpu_pair: Pair, caplog: pytest.LogCaptureFixture, path: str) -> None:
    chance = random.Random(SEED)  # noqa: S311 - the same cases each time
    pool = sources()
    codes: Counter[int] = Counter()

    with capture_logs() as lines:
        for _ in range(CASES):
            body = orjson.dumps(damaged(chance.choice(pool), chance))
            async with gpu_pair.client.post(path, data=body, headers={"Content-Type": "application/json"}) as response:
                answered = orjson.loads(await response.read())
            if response.status == 200:
                verdict = answered["response"]
                code = 200 if verdict["allowed"] else verdict["status"]["code"]
                assert code < 500, (body, answered)
                assert verdict["allowed"] or verdict["status"]["message"].isprintable()
            else:
                code = response.status
                assert (code, answered["code"]) == (400, 400), (body, answered)
            codes[code] += 1

    assert not [line for line in lines if line.get("exc_info")]
    assert not caplog.records
    assert codes[200] > CASES / 10
    assert codes[422] > CASES / 100
    assert codes[400] > CASES / 100
