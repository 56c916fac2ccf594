"""VirtualMachine, VMIReplicaSet, VMPool: whatever is wrong with them or with us, they are let in."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from aiohttp.web import Application

from gpu.errors import CatalogError
from gpu.gpudevice import GPUDevice
from webhooks.app import make_app
from webhooks.testing import InMemoryCatalog, Pair, Reply, review

REFERENCE = "gpu.cozystack.io/device-reference"
VM = "VirtualMachine"
POOL = "VirtualMachinePool"
FAMILY = [VM, "VirtualMachineInstanceReplicaSet", POOL]
BY_REFERENCE = {"metadata": {"labels": {REFERENCE: "my-gpu"}}}

Client = Callable[[Application], Awaitable[TestClient[Any, Any]]]


def of_kind(kind: str, **parts: Any) -> dict[str, Any]:
    group = "pool.kubevirt.io/v1beta1" if kind == POOL else "kubevirt.io/v1"
    return {"apiVersion": group, "kind": kind, "metadata": {"name": "notebook", "namespace": "tenant-a"}, **parts}


def around(kind: str, template: Any) -> dict[str, Any]:
    spec = {"template": template}
    return of_kind(kind, spec={"virtualMachineTemplate": {"spec": spec}} if kind == POOL else spec)


def path_in(kind: str, path: str) -> str:
    return f"spec.virtualMachineTemplate.spec.template{path}" if kind == POOL else f"spec.template{path}"


@pytest.mark.parametrize("kind", FAMILY)
@pytest.mark.parametrize(
    "parts",
    [{}, {"spec": None}, {"spec": {}}, {"spec": {"template": None, "virtualMachineTemplate": None}}],
    ids=["no spec", "null spec", "no template", "null template"],
)
async def test_without_a_template_there_is_nothing_to_say(gpu_pair: Pair, kind: str, parts: dict[str, Any]) -> None:
    reply = await gpu_pair.validate(review(of_kind(kind, **parts)))

    assert reply.allowed
    assert reply.warnings == ()


@pytest.mark.parametrize("kind", FAMILY)
@pytest.mark.parametrize(
    ("template", "path"),
    [
        ("small", ""),
        ({"metadata": []}, ".metadata"),
        ({"metadata": {"labels": "all"}}, ".metadata.labels"),
        ({"metadata": {"labels": {REFERENCE: 7}}}, f".metadata.labels[{REFERENCE}]"),
        ({"spec": "large"}, ".spec"),
        ({"spec": {"domain": []}}, ".spec.domain"),
        ({"spec": {"domain": {"devices": {"gpus": "all"}}}}, ".spec.domain.devices.gpus"),
        ({"spec": {"domain": {"devices": {"gpus": [None]}}}}, ".spec.domain.devices.gpus[0]"),
        ({"spec": {"domain": {"devices": {"gpus": [{"deviceName": 7}]}}}}, ".spec.domain.devices.gpus[0].deviceName"),
        ({"spec": {"domain": {"resources": {"limits": [1]}}}}, ".spec.domain.resources.limits"),
        ({"spec": {"networks": {}}}, ".spec.networks"),
        (
            {"metadata": {"annotations": {"gpu.cozystack.io/device-template": "{"}}},
            ".metadata.annotations[gpu.cozystack.io/device-template]",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_malformed_template_is_told_with_the_path_inside(
    gpu_pair: Pair, kind: str, template: object, path: str
) -> None:
    reply = await gpu_pair.validate(review(around(kind, template)))

    assert reply.allowed
    assert f"{path_in(kind, path)}: must be" in reply.warnings[0]
    assert "would be refused" in reply.warnings[0]


@pytest.mark.parametrize(
    "obj",
    [
        of_kind(VM, spec=7),
        of_kind(POOL, spec={"virtualMachineTemplate": "x"}),
        of_kind(POOL, spec={"virtualMachineTemplate": {"spec": []}}),
        around(VM, {"spec": {}}) | {"metadata": {"name": "x", "namespace": "tenant-a", "deletionTimestamp": 0}},
        of_kind("VirtualMachineInstanceReplicaSet", spec={"template": BY_REFERENCE, "replicas": "many"}),
        of_kind("VirtualMachineInstanceReplicaSet", spec={"template": BY_REFERENCE, "replicas": True}),
    ],
    ids=["spec", "pool template", "pool template spec", "deletion", "replicas", "replicas true"],
)
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
async def test_wrong_types_around_the_template_are_let_in(gpu_pair: Pair, obj: dict[str, Any], operation: str) -> None:
    old = around(obj["kind"], {"metadata": {}}) if operation == "UPDATE" else None

    reply = await gpu_pair.validate(review(obj, operation=operation, old=old))

    assert reply.allowed


@pytest.mark.parametrize("old", [None, {"spec": "x"}, {"spec": {"template": []}}], ids=["none", "spec", "template"])
async def test_a_malformed_old_object_is_let_in(gpu_pair: Pair, old: dict[str, Any] | None) -> None:
    before = of_kind(VM, **old) if old is not None else None

    reply = await gpu_pair.validate(review(around(VM, BY_REFERENCE), operation="UPDATE", old=before))

    assert reply.allowed


async def test_a_review_without_an_object_is_let_in(gpu_pair: Pair) -> None:
    body = review(around(VM, BY_REFERENCE))
    body["request"]["object"] = None

    reply = await gpu_pair.validate(body)

    assert reply.allowed


class Unreadable(InMemoryCatalog):
    """A catalog whose fresh reads fail."""

    async def fresh_device(self, namespace: str, name: str) -> GPUDevice | None:  # noqa: ARG002
        raise CatalogError("the API can't be reached")


class Slow(InMemoryCatalog):
    """A catalog whose fresh reads take longer than anybody waits."""

    async def fresh_device(self, namespace: str, name: str) -> GPUDevice | None:
        await asyncio.sleep(30)
        return await super().fresh_device(namespace, name)


class Broken(InMemoryCatalog):
    """A catalog with a bug."""

    def device(self, namespace: str, name: str) -> GPUDevice | None:
        raise ZeroDivisionError(namespace, name)


async def answered(client: Client, catalog: InMemoryCatalog, obj: dict[str, Any]) -> Reply:
    served = await client(make_app(catalog=catalog))
    body = review(obj)
    async with served.post("/validate?timeout=1s", json=body) as response:
        return Reply.of(await response.read(), uid=body["request"]["uid"])


@pytest.mark.parametrize("kind", FAMILY)
@pytest.mark.parametrize("catalog", [Unreadable, Slow, Broken])
async def test_what_can_not_be_decided_is_let_in_without_a_word(
    aiohttp_client: Client, catalog: type[InMemoryCatalog], kind: str
) -> None:
    reply = await answered(aiohttp_client, catalog(), around(kind, BY_REFERENCE))

    assert reply.allowed, reply.message
    assert reply.warnings == ()


@pytest.mark.parametrize(("catalog", "code"), [(Unreadable, 503), (Slow, 504), (Broken, 500)])
async def test_a_vmi_that_can_not_be_decided_is_refused(
    aiohttp_client: Client, catalog: type[InMemoryCatalog], code: int
) -> None:
    vmi = {**of_kind("VirtualMachineInstance"), "apiVersion": "kubevirt.io/v1"}
    vmi["metadata"]["labels"] = {REFERENCE: "my-gpu"}

    reply = await answered(aiohttp_client, catalog(), vmi)

    assert not reply.allowed
    assert reply.code == code
