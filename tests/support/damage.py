"""Reviews with random damage, to what they say and to their bytes, and what an answer to any of them has to be."""

import base64
import json
import random
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import jsonpatch
import orjson

from webhooks.testing import ADMIN, VIRT_CONTROLLER, review

RECORDED = Path(__file__).parent.parent / "reviews"
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


_STRING: Final = re.compile(rb'"[^"\\]*"')
_VALUE: Final = re.compile(rb':("[^"\\]*"|-?\d+|true|false|null)')
_KEY: Final = re.compile(rb'"([^"\\]+)":')
_NUMBERS: Final = (b"1" * 400, b"1e400", b"-1e999999", b"0.1e-400", b"-0", b"9223372036854775808", b"1.5", b"1" * 20)
_TEXTS: Final = (
    rb"\ud800", rb"\udfff\ud800", rb"\u0000", rb"\uffff", "\N{GRINNING FACE}".encode(), "e\u0301\u202e\u200b".encode(),
    "\N{COMBINING ACUTE ACCENT}".encode() * 200, b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\x7f", rb"\x", b"\n",
    b"a" * 100_000,
)  # fmt: skip
_VERSIONS: Final = (
    b"admission.k8s.io/v1beta1", b"admission.k8s.io/v2", b"kubevirt.io/v1alpha3", b"kubevirt.io/v9", b"v1", b"",
    b"gpu.cozystack.io/v1", b"resource.k8s.io/v1beta1",
)  # fmt: skip
_NOT_JSON: Final = (
    b"NaN",
    b"-Infinity",
    b"'a'",
    b"undefined",
    b"/**/1",
    b"01",
    b"+1",
    b".5",
    b"1.",
    b"0x1",
    b"1,",
    b"",
)


def _changed(body: bytes, chance: random.Random) -> bytes:
    changed = bytearray(body)
    for _ in range(chance.choice((1, 1, 2, 8))):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def _nested(body: bytes, chance: random.Random) -> bytes:
    depth = chance.choice((10, 200, 900, 1030, 5_000, 100_000))
    opening, closing, middle = chance.choice(((b"[", b"]", b"1"), (b'{"a":', b"}", b"1"), (b"[[", b"]]", b"")))
    end = closing * chance.choice((depth, depth, 0))
    return _replaced(_VALUE, body, b":" + opening * depth + middle + end, chance)


def _garbage(body: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(body))
    return body[:at] + chance.randbytes(chance.choice((1, 4, 64))) + body[at + chance.choice((0, 1, 20)) :]


def _version(body: bytes, chance: random.Random) -> bytes:
    key = chance.choice((b'"apiVersion":"', b'"version":"', b'"kind":"'))
    return _replaced(re.compile(key + b'[^"]*"'), body, key + chance.choice(_VERSIONS) + b'"', chance)


def _around(body: bytes, chance: random.Random) -> bytes:
    before = chance.choice((b"", b"\xef\xbb\xbf", b" " * 50_000, b"\xff\xfe", b"\x1f\x8b", b"[", b"\0"))
    return before + body + chance.choice((b"", b"", body, b"]", b"}", b"\n" * 9, b"\0", b"x"))


def _replaced(pattern: re.Pattern[bytes], body: bytes, by: bytes, chance: random.Random) -> bytes:
    found = [match.span() for match in pattern.finditer(body)]
    if not found:
        return body
    start, end = chance.choice(found)
    return body[:start] + by + body[end:]


def _twice(body: bytes, chance: random.Random) -> bytes:
    """A key of the review once more, in a place where it may be the second of that name."""
    key: bytes = chance.choice(_KEY.findall(body))
    value: bytes = orjson.dumps(chance.choice(VALUES))
    places = [match.end() for match in re.finditer(rb"[{,](?=\")", body)]
    at = chance.choice(places)
    return body[:at] + b'"' + key + b'":' + value + b"," + body[at:]


_CORRUPTED: Final[dict[str, Callable[[bytes, random.Random], bytes]]] = {
    "cut": lambda body, chance: body[: chance.randrange(len(body))],
    "bytes": _changed,
    "garbage": _garbage,
    "twice": _twice,
    "nested": _nested,
    "number": lambda body, chance: _replaced(_VALUE, body, b":" + chance.choice(_NUMBERS), chance),
    "text": lambda body, chance: _replaced(_STRING, body, b'"' + chance.choice(_TEXTS) + b'"', chance),
    "version": _version,
    "not JSON": lambda body, chance: _replaced(_VALUE, body, b":" + chance.choice(_NOT_JSON), chance),
    "around": _around,
}
_KINDS: Final = ("meaning",) * 5 + tuple(_CORRUPTED)


def harmed(source: dict[str, Any], chance: random.Random) -> tuple[str, bytes]:
    """What kind of damage was done to a review, and its bytes."""
    kind = chance.choice(_KINDS)
    if kind == "meaning":
        return kind, orjson.dumps(damaged(source, chance))
    return kind, _CORRUPTED[kind](orjson.dumps(source), chance)


def checked(body: bytes, status: int, answered: bytes) -> int:
    """The code of a verdict, or of the answer where there is none; asserts that it is well-formed, whatever it is."""
    answer = orjson.loads(answered)
    if status != 200:
        assert status in {400, 413}, (status, answered)
        assert (answer["kind"], answer["status"], answer["code"]) == ("Status", "Failure", status), answered
        assert answer["message"].isprintable(), answered
        return status
    asked, verdict = orjson.loads(body)["request"], answer["response"]
    assert (answer["kind"], answer["apiVersion"]) == ("AdmissionReview", "admission.k8s.io/v1"), answered
    assert verdict["uid"] == asked["uid"], answered
    assert all(warning.isprintable() and len(warning) <= 512 for warning in verdict.get("warnings", ())), answered
    if verdict["allowed"]:
        if "patch" in verdict:
            assert verdict["patchType"] == "JSONPatch", answered
            patch = json.loads(base64.b64decode(verdict["patch"], validate=True))
            assert patch, answered
            # In its place: copies of what is nested hundreds of levels deep are too much for Python.
            jsonpatch.JsonPatch(patch).apply(asked["object"], in_place=True)
        return 200
    code, message = verdict["status"]["code"], verdict["status"]["message"]
    assert isinstance(code, int), answered
    assert 400 <= code < 500, answered
    assert message, answered
    assert message.isprintable(), answered
    return code
