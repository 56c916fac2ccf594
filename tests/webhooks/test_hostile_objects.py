"""Objects that a hostile or careless author wrote: refused with a field, in one printable line of bounded length."""

from collections.abc import AsyncIterator, Iterator, MutableMapping
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from webhooks.testing import TENANT, VIRT_CONTROLLER, Pair, User, review

REFERENCE = "gpu.cozystack.io/device-reference"
TEMPLATE = "gpu.cozystack.io/device-template"
TEMPLATE_FIELD = f"metadata.annotations[{TEMPLATE}]"
VMI = "VirtualMachineInstance"
H200 = "nvidia.com/GH100_H200_SXM_141GB"
LONGEST_MESSAGE = 2048
LONGEST_LINE = 8192

HOSTILE = {
    "newlines": "a\nlevel=error event=failed\r\n",
    "ANSI escapes": "\x1b[2J\x1b[31mred",
    "quotes": "\"'`\\",
    "NUL": "a\x00b",
    "bidirectional override": "a\u202eb",
    "253 characters": "n" * 253,
    "10,000 characters": "n" * 10_000,
    "10,000 newlines": "\n" * 10_000,
    "path": "../../../api/v1/secrets",
    "empty": "",
}
hostile_names = pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE.keys())


@pytest.fixture
def log_lines() -> Iterator[list[MutableMapping[str, Any]]]:
    with capture_logs() as lines:
        yield lines


@pytest.fixture
async def pair(
    gpu_pair: Pair, log_lines: list[MutableMapping[str, Any]], caplog: pytest.LogCaptureFixture
) -> AsyncIterator[Pair]:
    """The pair, of which is asserted in the end that it still serves and that what it logged is fit to be read."""
    yield gpu_pair

    assert (await gpu_pair.mutate(review(vmi(labels={REFERENCE: "my-gpu"})))).allowed
    assert not caplog.records
    for line in log_lines:
        assert not line.get("exc_info")
        assert len(str(line)) < LONGEST_LINE
        assert all(text.isprintable() for value in line.values() for text in texts(value))


def texts(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]


def vmi(*, spec: object = None, **metadata: object) -> dict[str, Any]:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "vm", "namespace": "tenant-a", **metadata},
        "spec": {"domain": {"devices": {}}} if spec is None else spec,
    }


def with_template(text: object) -> dict[str, Any]:
    return vmi(annotations={TEMPLATE: text})


def assert_readable(*texts: str) -> None:
    for text in texts:
        assert text.isprintable()
        assert len(text) <= LONGEST_MESSAGE


@hostile_names
async def test_a_hostile_device_reference_is_refused_in_one_readable_line(pair: Pair, name: str) -> None:
    body = review(vmi(labels={REFERENCE: name}))

    replies = [await pair.mutate(body), await pair.validate(body)]

    for reply in replies:
        assert (reply.code, reply.fields) == (422, (f"metadata.labels[{REFERENCE}]",))
        assert "there is no GPUDevice" in reply.message
        assert_readable(reply.message, *(message for _, message in reply.causes))


@hostile_names
async def test_a_hostile_class_name_is_refused_in_one_readable_line(pair: Pair, name: str) -> None:
    body = review(with_template(orjson.dumps({"className": name}).decode()))

    reply = await pair.mutate(body)

    assert (reply.allowed, reply.code) == (False, 422)
    assert reply.fields[0].startswith(TEMPLATE_FIELD)
    assert_readable(reply.message, *(message for _, message in reply.causes))


@hostile_names
async def test_a_hostile_user_is_logged_in_one_readable_line(
    pair: Pair, log_lines: list[MutableMapping[str, Any]], name: str
) -> None:
    body = review(vmi(spec={"domain": {"devices": {"gpus": [{"deviceName": H200}]}}}), user=User(name, (name,)))

    reply = await pair.validate(body)

    assert reply.code == 403
    assert len(log_lines) == 1
    assert log_lines[0]["user"].isprintable()
    assert len(log_lines[0]["user"]) <= 253


@hostile_names
async def test_hostile_names_everywhere_else_are_judged_as_any_other(pair: Pair, name: str) -> None:
    device = {"name": name, "deviceName": H200, "tag": name}
    spec = {"domain": {"devices": {"gpus": [device], "hostDevices": [{"name": name, "deviceName": name}]}}}
    body = review(vmi(spec=spec, name=name, labels={name: name}, annotations={name: name}))
    body["request"] |= {"name": name, "namespace": name, "uid": f"u{name}"}

    mutated, validated = await pair.mutate(body), await pair.validate(body)

    assert mutated.allowed
    assert (validated.code, validated.fields) == (403, ("spec.domain.devices.gpus[0]",))
    assert_readable(validated.message)


@hostile_names
async def test_hostile_resource_names_of_a_pod_are_no_gpus(pair: Pair, name: str) -> None:
    container = {"name": name, "resources": {"limits": {name: name, f"x.io/{name}": name}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}

    reply = await pair.validate(review(pod))

    assert reply.allowed


@hostile_names
async def test_a_hostile_kind_or_operation_is_let_in_untouched(pair: Pair, name: str) -> None:
    body = review(vmi())
    body["request"] |= {"operation": name or "x", "kind": {"group": name, "version": name, "kind": name or "x"}}

    replies = [await pair.mutate(body), await pair.validate(body)]

    assert all(reply.allowed and not reply.patch for reply in replies)


@hostile_names
async def test_a_hostile_version_is_refused_in_one_readable_line(pair: Pair, name: str) -> None:
    body = review(vmi())
    body["request"]["kind"]["version"] = name

    reply = await pair.validate(body)

    assert (reply.code, reply.fields) == (400, ("request.kind.version",))
    assert_readable(reply.message, *(message for _, message in reply.causes))


async def test_names_of_a_device_and_a_template_may_be_as_long_as_kubernetes_lets_them_be(pair: Pair) -> None:
    body = review(with_template('{"className":"h200"}') | {"metadata": vmi()["metadata"] | {"name": "n" * 253}})
    body["request"]["object"]["metadata"]["annotations"] = {TEMPLATE: '{"className":"h200"}'}

    reply = await pair.mutate(body)

    label = reply.applied_to(body["request"]["object"])["metadata"]["labels"][REFERENCE]
    assert len(label) == 63


@pytest.mark.parametrize("path", ["reference", "none"])
async def test_a_thousand_gpu_entries_make_no_thousand_lines(pair: Pair, path: str) -> None:
    gpus = [{"name": f"g{index}", "deviceName": H200} for index in range(1000)]
    spec = {"domain": {"devices": {"gpus": gpus}}}
    body = review(vmi(spec=spec, labels={REFERENCE: "my-gpu"} if path == "reference" else {}))

    reply = await pair.validate(body)

    assert reply.code == 403
    assert 1 <= len(reply.causes) <= 16
    assert reply.fields[0] == ("spec.domain.devices.gpus[1]" if path == "reference" else "spec.domain.devices.gpus[0]")
    assert_readable(reply.message)
    assert path == "reference" or "and 984 more like these" in reply.message


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"metadata": None}, "metadata"),
        ({"metadata": "vm"}, "metadata"),
        ({"metadata": {"labels": []}}, "metadata.labels"),
        ({"metadata": {"labels": {REFERENCE: 1}}}, f"metadata.labels[{REFERENCE}]"),
        ({"metadata": {"labels": {REFERENCE: {}}}}, f"metadata.labels[{REFERENCE}]"),
        ({"metadata": {"annotations": "x"}}, "metadata.annotations"),
        ({"metadata": {"annotations": {TEMPLATE: {"className": "h200"}}}}, TEMPLATE_FIELD),
        ({"metadata": {"name": 1}}, "metadata.name"),
        ({"spec": []}, "spec"),
        ({"spec": {"domain": 1}}, "spec.domain"),
        ({"spec": {"domain": {"devices": "x"}}}, "spec.domain.devices"),
        ({"spec": {"domain": {"devices": {"gpus": {}}}}}, "spec.domain.devices.gpus"),
        ({"spec": {"domain": {"devices": {"gpus": [1]}}}}, "spec.domain.devices.gpus[0]"),
        ({"spec": {"domain": {"devices": {"gpus": [{"deviceName": 1}]}}}}, "spec.domain.devices.gpus[0].deviceName"),
        ({"spec": {"domain": {"devices": {"hostDevices": [None]}}}}, "spec.domain.devices.hostDevices[0]"),
        ({"spec": {"domain": {"resources": []}}}, "spec.domain.resources"),
        ({"spec": {"domain": {"resources": {"limits": [H200]}}}}, "spec.domain.resources.limits"),
        ({"spec": {"resourceClaims": {}}}, "spec.resourceClaims"),
        ({"spec": {"networks": [[]]}}, "spec.networks[0]"),
    ],
    ids=str,
)
async def test_a_wrong_type_on_the_way_to_a_vmis_gpus_is_refused_with_its_field(
    pair: Pair, change: dict[str, Any], field: str
) -> None:
    body = review(vmi())
    body["request"]["object"] |= change

    replies = [await pair.mutate(body), await pair.validate(body)]

    assert [(reply.code, reply.fields) for reply in replies] == [(422, (field,))] * 2


@pytest.mark.parametrize(
    ("owner", "field"),
    [
        ("x", "metadata.ownerReferences"),
        ([1], "metadata.ownerReferences[0]"),
        (
            [{"controller": True, "kind": "VirtualMachineInstance", "apiVersion": 1}],
            "metadata.ownerReferences[].apiVersion",
        ),
        (
            [{"controller": True, "kind": VMI, "apiVersion": "kubevirt.io/v1", "uid": []}],
            "metadata.ownerReferences[].uid",
        ),
    ],
    ids=["no list", "no object", "apiVersion", "uid"],
)
async def test_a_wrong_type_of_a_gpu_pods_owner_is_refused_with_its_field(
    pair: Pair, owner: object, field: str
) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "tenant-a", "ownerReferences": owner},
        "spec": {"containers": [{"resources": {"limits": {H200: 1}}}]},
    }

    reply = await pair.validate(review(pod, user=VIRT_CONTROLLER))

    assert (reply.code, reply.fields) == (422, (field,))


@pytest.mark.parametrize(
    ("annotation", "field", "telling"),
    [
        ("", TEMPLATE_FIELD, "must be JSON"),
        ("h200", TEMPLATE_FIELD, "must be JSON"),
        ("[]", TEMPLATE_FIELD, "must be a JSON object"),
        ("null", TEMPLATE_FIELD, "must be a JSON object"),
        ("{}", f"{TEMPLATE_FIELD}.className", "is required"),
        ('{"className":""}', f"{TEMPLATE_FIELD}.className", "must not be empty"),
        ('{"className":["h200"]}', f"{TEMPLATE_FIELD}.className", "must be a string"),
        ('{"className":"h200","gpu":"a\\nb"}', TEMPLATE_FIELD, "unknown key 'gpu'"),
        ('{"className":"h200","\\u001b[31m":1}', TEMPLATE_FIELD, "unknown key"),
        ('{"className":"h200","count":0}', f"{TEMPLATE_FIELD}.count", "must be from 1 to 16"),
        ('{"className":"h200","count":-1}', f"{TEMPLATE_FIELD}.count", "must be from 1 to 16"),
        ('{"className":"h200","count":9}', f"{TEMPLATE_FIELD}.count", "sells 1 to 8 GPUs a device, not 9"),
        ('{"className":"h200","count":99999999999999999999}', f"{TEMPLATE_FIELD}.count", "must be"),
        ('{"className":"h200","count":true}', f"{TEMPLATE_FIELD}.count", "must be a whole number"),
        ('{"className":"h200","count":1.0}', f"{TEMPLATE_FIELD}.count", "must be a whole number"),
        ('{"className":"h200","count":"1"}', f"{TEMPLATE_FIELD}.count", "must be a whole number"),
        ('{"className":"h200","count":NaN}', TEMPLATE_FIELD, "must be JSON"),
        ('{"className":"H200"}', f"{TEMPLATE_FIELD}.className", "did you mean 'h200'?"),
        ('{"className":"h200"}' + " " * 4096, TEMPLATE_FIELD, "at most 4 KiB"),
        ("[" * 4096, TEMPLATE_FIELD, "must be JSON"),
    ],
)  # fmt: skip
async def test_an_annotation_that_is_no_order_is_refused_with_what_is_wrong(
    pair: Pair, annotation: str, field: str, telling: str
) -> None:
    reply = await pair.mutate(review(with_template(annotation)))

    assert (reply.code, reply.fields) == (422, (field,))
    assert telling in reply.message
    assert_readable(reply.message)


DEEP = b"[" * 1000 + b"]" * 1000


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize(
    ("member", "user"),
    [
        (("metadata", "uid"), TENANT),
        (("metadata", "name"), TENANT),
        (("metadata", "ownerReferences"), VIRT_CONTROLLER),
        (("kind",), TENANT),
        (("spec", "template"), TENANT),
        (("spec", "domain", "devices", "gpus"), TENANT),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["VirtualMachineInstance", "VirtualMachine", "Pod"])
async def test_a_value_nested_a_thousand_deep_is_no_failure(
    pair: Pair, path: str, member: tuple[str, ...], user: User, kind: str
) -> None:
    owner = {"controller": True, "kind": "VirtualMachineInstance", "apiVersion": "DEEP"}
    obj = vmi(labels={REFERENCE: "my-gpu"})
    obj["spec"]["containers"] = [{"resources": {"limits": {H200: 1}}}]
    body = review(obj, user=user)
    body["request"]["kind"] |= {"kind": kind, "group": "" if kind == "Pod" else "kubevirt.io"}
    parent = body["request"]["object"]
    for key in member[:-1]:
        parent = parent[key]
    parent[member[-1]] = [owner] if member[-1] == "ownerReferences" else "DEEP"

    text = orjson.dumps(body).replace(b'"DEEP"', DEEP)
    async with pair.client.post(path, data=text, headers={"Content-Type": "application/json"}) as response:
        answered = orjson.loads(await response.read())["response"]

    assert answered["allowed"] or answered["status"]["code"] in {403, 422}


async def test_two_versions_of_a_vm_nested_a_thousand_deep_are_let_in(pair: Pair) -> None:
    vm: dict[str, Any] = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "vm"}}
    body = review(
        {**vm, "spec": {"template": {"x": "DEEP"}}}, operation="UPDATE", old={**vm, "spec": {"template": {"x": "DEEP"}}}
    )

    text = orjson.dumps(body).replace(b'"DEEP"', DEEP)
    async with pair.client.post("/validate", data=text, headers={"Content-Type": "application/json"}) as response:
        answered = orjson.loads(await response.read())["response"]

    assert answered["allowed"]
