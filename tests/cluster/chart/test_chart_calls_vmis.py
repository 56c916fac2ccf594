"""Of which VMIs the API server asks the pair: counted by a webhook that lets everything in."""

from collections.abc import Mapping
from typing import Any

import pytest
from asking import ANNOTATION, H200, LABEL, PLAIN_VMIS, VMIS_THAT_ASK, calls_of, gpus, host_devices, once, vmi
from controlplane.client import Client
from recorder import Call, Recorder

from gpu import names
from gpu.gpuclass import is_extended


async def test_a_new_vmi_that_asks_for_devices_is_judged(kube: Client, recorder: Recorder, tenant: str) -> None:
    about = ("CREATE", "VirtualMachineInstance", "v1", tenant, "5s")
    judged = [Call("/validate", *about)]
    marked = [Call("/mutate", *about), *judged]
    marks = ("the label", "an empty label", "the annotation", "an empty annotation")

    found = await calls_of(kube, recorder, {case: vmi(**parts) for case, parts in VMIS_THAT_ASK.items()})

    assert found == {case: marked if case in marks else judged for case in VMIS_THAT_ASK}


async def test_a_vmi_of_the_older_version_is_judged_as_one_of_v1(kube: Client, recorder: Recorder, tenant: str) -> None:
    older = {**vmi(devices=gpus({"deviceName": H200})), "apiVersion": "kubevirt.io/v1alpha3"}

    found = await calls_of(kube, recorder, {"older": older})

    assert found == {"older": [Call("/validate", "CREATE", "VirtualMachineInstance", "v1", tenant, "5s")]}


@pytest.mark.usefixtures("tenant")
async def test_a_plain_vmi_is_not(kube: Client, recorder: Recorder) -> None:
    found = await calls_of(kube, recorder, {case: vmi(**parts) for case, parts in PLAIN_VMIS.items()})

    assert found == {case: [] for case in PLAIN_VMIS}


NAMES = {
    "cpu": False,
    "hugepages-1Gi": False,
    "gpu": False,
    "kubernetes.io/gpu": False,
    "pods.kubernetes.io/gpu": False,
    "a.b.kubernetes.io/gpu": False,
    "devices.kubevirt.io/kvm": False,
    "resource.kubernetes.io/gpu": False,
    H200: True,
    "a.example.com/b_C.d": True,
    "mykubernetes.io/gpu": True,
    "kubernetes.io.example.com/gpu": True,
    "devices.kubevirt.io.example.com/gpu": True,
    "more.devices.kubevirt.io/gpu": True,
    "kubevirt.io/gpu": True,
    "deviceclass.resource.kubernetes.io/gpu.nvidia.com": True,
    "a/kubernetes.io/gpu": True,
    "kubernetes.io/a/gpu": True,
}


@pytest.mark.parametrize("road", ["hostDevices", "requests", "limits"])
@pytest.mark.usefixtures("tenant")
async def test_a_name_counts_as_the_rules_count_it(kube: Client, recorder: Recorder, road: str) -> None:
    def asking(name: str) -> dict[str, Any]:
        if road == "hostDevices":
            return vmi(devices=host_devices({"deviceName": name}))
        return vmi(resources={road: {name: 1}})

    found = await calls_of(kube, recorder, {name: asking(name) for name in NAMES})

    assert {name: bool(calls) for name, calls in found.items()} == NAMES
    assert {name: is_extended(name) for name in NAMES} == NAMES


OTHER = {names.DEVICE_REFERENCE: "other"}
UPDATES: Mapping[str, tuple[dict[str, Any], bool]] = {
    "status": ({"status": {"phase": "Running", "nodeName": "node-1"}}, False),
    "a finalizer goes": ({"metadata": {"finalizers": ["foregroundDeleteVirtualMachine"]}}, False),
    "another label": ({"metadata": {"labels": {"example.com/a": "b"}}}, False),
    "another annotation": ({"metadata": {"annotations": {"kubevirt.io/latest": "b"}}}, False),
    "the label is changed": ({"metadata": {"labels": OTHER}}, True),
    "the label is emptied": ({"metadata": {"labels": {names.DEVICE_REFERENCE: ""}}}, True),
    "the label is dropped": ({"metadata": {"labels": {names.DEVICE_REFERENCE: None}}}, True),
    "all labels are dropped": ({"metadata": {"labels": None}}, True),
    "the annotation is changed": ({"metadata": {"annotations": {names.DEVICE_TEMPLATE: "{}"}}}, True),
    "the annotation is dropped": ({"metadata": {"annotations": {names.DEVICE_TEMPLATE: None}}}, True),
    "all annotations are dropped": ({"metadata": {"annotations": None}}, True),
    "status, and the label dropped": (
        {"metadata": {"labels": {names.DEVICE_REFERENCE: None}}, "status": {"phase": "Running"}},
        True,
    ),
}


@pytest.mark.parametrize("deleting", [False, True], ids=["alive", "being deleted"])
async def test_an_update_of_a_vmi_is_judged_where_label_or_annotation_change(
    kube: Client, recorder: Recorder, tenant: str, *, deleting: bool
) -> None:
    found = {}
    for case, (change, _) in UPDATES.items():
        running = vmi(labels=LABEL, annotations=ANNOTATION)
        running["metadata"]["finalizers"] = ["foregroundDeleteVirtualMachine", "example.com/b"]
        await kube.create(running)
        if deleting:
            await kube.delete(running)
        recorder.taken()
        await kube.patch(running, change)
        found[case] = once(recorder.taken())

    judged = [Call("/validate", "UPDATE", "VirtualMachineInstance", "v1", tenant, "5s")]
    assert found == {case: judged if asks else [] for case, (_, asks) in UPDATES.items()}


@pytest.mark.usefixtures("tenant")
async def test_adding_the_label_or_the_annotation_is_judged(kube: Client, recorder: Recorder) -> None:
    bare = vmi()
    bare["metadata"].update(labels={}, annotations={})
    await kube.create(bare)
    recorder.taken()

    await kube.patch(bare, {"metadata": {"labels": dict(LABEL)}})
    assert len(once(recorder.taken())) == 1

    await kube.patch(bare, {"metadata": {"annotations": dict(ANNOTATION)}})
    assert len(once(recorder.taken())) == 1


@pytest.mark.usefixtures("tenant")
async def test_a_vmi_goes_without_a_call(kube: Client, recorder: Recorder) -> None:
    running = vmi(labels=LABEL, devices=gpus({"deviceName": H200}))
    running["metadata"]["finalizers"] = ["foregroundDeleteVirtualMachine"]
    await kube.create(running)
    recorder.taken()

    await kube.patch(running, {"status": {"phase": "Succeeded"}})
    await kube.delete(running)
    await kube.patch(running, {"metadata": {"finalizers": None}})

    assert recorder.taken() == []
