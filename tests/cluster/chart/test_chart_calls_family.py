"""Of what VMIs are made from the API server asks the pair where it matters, and of nothing outside of tenants'."""

from typing import Any

import pytest
from actors import HOST_LABEL, VIRT_CONTROLLER
from asking import (
    H200,
    LABEL,
    PLAIN_VMIS,
    VMIS_THAT_ASK,
    calls_of,
    device,
    family,
    gpus,
    is_called,
    make_namespace,
    once,
    pod,
    template_of,
    vmi,
)
from controlplane.client import Client
from recorder import Call, Recorder
from release import NAMESPACE
from waiting import eventually

FAMILY = [
    "VirtualMachine",
    "VirtualMachineInstanceReplicaSet",
    "VirtualMachinePool v1beta1",
    "VirtualMachinePool v1alpha1",
]
GPUS = gpus({"deviceName": H200})


@pytest.mark.parametrize("kind", FAMILY)
async def test_what_vmis_are_made_from_is_looked_at_where_they_would_ask(
    kube: Client, recorder: Recorder, tenant: str, kind: str
) -> None:
    objects = {case: family(kind, template_of(vmi(**parts))) for case, parts in VMIS_THAT_ASK.items()}

    found = await calls_of(kube, recorder, objects)

    name, _, version = kind.partition(" ")
    called = [Call("/validate", "CREATE", name, version or "v1", tenant, "2s")]
    assert found == dict.fromkeys(objects, called)


@pytest.mark.parametrize("kind", FAMILY)
@pytest.mark.usefixtures("tenant")
async def test_a_template_without_metadata_is_looked_at(kube: Client, recorder: Recorder, kind: str) -> None:
    template = {"metadata": None, "spec": vmi(devices=GPUS)["spec"]}
    recorder.taken()

    await kube.create(family(kind, template), dry_run=True)

    assert len(recorder.taken()) == 1


@pytest.mark.parametrize("kind", FAMILY)
@pytest.mark.usefixtures("tenant")
async def test_what_plain_vmis_are_made_from_is_not(kube: Client, recorder: Recorder, kind: str) -> None:
    objects = {case: family(kind, template_of(vmi(**parts))) for case, parts in PLAIN_VMIS.items()}

    found = await calls_of(kube, recorder, objects)

    assert found == {case: [] for case in objects}


def _template_in(obj: dict[str, Any]) -> dict[str, Any]:
    spec = obj["spec"]
    found: dict[str, Any] = (spec.get("virtualMachineTemplate") or {"spec": spec})["spec"]["template"]
    return found


@pytest.mark.parametrize("kind", FAMILY)
@pytest.mark.usefixtures("tenant")
async def test_an_update_is_looked_at_where_the_template_is_another(
    kube: Client, recorder: Recorder, kind: str
) -> None:
    obj = await kube.create(family(kind, template_of(vmi(devices=GPUS))))
    recorder.taken()

    obj["metadata"]["labels"] = {"a": "b"}
    obj = await kube.update(obj)
    change = {"runStrategy": "Always"} if kind == "VirtualMachine" else {"replicas": 2}
    obj = await kube.patch(obj, {"spec": change})
    obj = await kube.patch(obj, {"status": {"conditions": []}}, subresource="status")
    assert recorder.taken() == []

    _template_in(obj)["spec"]["domain"]["devices"]["gpus"][0]["name"] = "other"
    obj = await kube.update(obj)
    assert [call.operation for call in once(recorder.taken())] == ["UPDATE"]

    _template_in(obj)["spec"]["domain"]["devices"]["gpus"] = []
    await kube.update(obj)
    await kube.delete(obj)
    assert recorder.taken() == []


@pytest.mark.parametrize("kind", FAMILY)
@pytest.mark.usefixtures("tenant")
async def test_nothing_is_said_of_what_is_being_deleted(kube: Client, recorder: Recorder, kind: str) -> None:
    obj = family(kind, template_of(vmi()))
    obj["metadata"]["finalizers"] = ["example.com/a"]
    await kube.create(obj)
    await kube.delete(obj)
    recorder.taken()

    deleting = await kube.get(obj)
    _template_in(deleting)["spec"]["domain"]["devices"]["gpus"] = GPUS["gpus"]
    deleting["metadata"]["finalizers"] = []
    await kube.update(deleting)

    assert recorder.taken() == []


@pytest.mark.usefixtures("tenant")
async def test_nothing_in_a_namespace_that_is_no_tenants_is_judged(kube: Client, recorder: Recorder) -> None:
    for namespace in ("kube-system", "kubevirt", NAMESPACE):
        await make_namespace(kube, namespace, {HOST_LABEL: "a"})
    await make_namespace(kube, "no-tenant", {"kubernetes.io/metadata.name": "no-tenant"})
    # The API server learns of labels in their order: when it knows the last, it knows all of them.
    await make_namespace(kube, "last-tenant", {HOST_LABEL: "a"})
    await eventually(lambda: is_called(kube, recorder, "last-tenant"))

    for namespace in ("kube-system", "kubevirt", NAMESPACE, "no-tenant"):
        found = await _everything(kube, recorder, namespace)
        assert (namespace, found) == (namespace, [])
    assert len(await _everything(kube, recorder, "last-tenant")) == 6


async def _everything(kube: Client, recorder: Recorder, namespace: str) -> list[Call]:
    """The calls that all that could be judged brings in a namespace."""
    recorder.taken()

    await kube.create(vmi(namespace=namespace, labels=LABEL, devices=GPUS), dry_run=True)
    await kube.as_(VIRT_CONTROLLER).create(pod(namespace=namespace, labels=LABEL, containers={H200: "1"}), dry_run=True)
    order = device()
    order["metadata"]["namespace"] = namespace
    await kube.create(order, dry_run=True)
    vm = family("VirtualMachine", template_of(vmi(devices=GPUS)))
    vm["metadata"]["namespace"] = namespace
    await kube.create(vm, dry_run=True)

    return recorder.taken()
