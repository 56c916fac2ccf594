"""Who uses a device: its binding and what exists decide, never a label."""

from typing import Any

import pytest

from gpu.gpudevice import GPUDevice
from gpu.pod import Pod
from gpu.usage import idle_template_devices, in_use
from gpu.vmi import VMI


def device(name: str = "d", *, bound: str = "", template: bool = True) -> GPUDevice:
    labels = {"gpu.cozystack.io/template-device": "true"} if template else {}
    status = {"binding": {"name": "vm", "uid": bound}} if bound else {}
    metadata = {"namespace": "a", "name": name, "labels": labels}
    return GPUDevice.from_dict({"metadata": metadata, "spec": {"className": "h200"}, "status": status})


def vmi(uid: str, *, refers_to: str | None = None, name: str = "vm") -> VMI:
    labels = {"gpu.cozystack.io/device-reference": refers_to} if refers_to else {}
    return VMI.from_dict({"metadata": {"namespace": "a", "name": name, "uid": uid, "labels": labels}})


def pod(vmi_uid: str, *, phase: str = "Running", **metadata: Any) -> Pod:
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "uid": vmi_uid, "controller": True}
    return Pod.from_dict(
        {
            "metadata": {"namespace": "a", "name": "p", "ownerReferences": [owner], **metadata},
            "status": {"phase": phase},
        }
    )


def test_a_device_without_a_binding_is_not_in_use() -> None:
    assert not in_use(device(), vmi=vmi("v-1", refers_to="d"), pods=[pod("v-1")])


def test_it_is_in_use_while_the_vmi_of_its_binding_exists() -> None:
    assert in_use(device(bound="v-1"), vmi=vmi("v-1"), pods=[])


def test_a_vmi_of_the_same_name_and_another_uid_is_not_the_one() -> None:
    assert not in_use(device(bound="v-1"), vmi=vmi("v-2", refers_to="d"), pods=[])


@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown"])
def test_it_is_in_use_while_a_pod_of_that_vmi_is_not_finished(phase: str) -> None:
    assert in_use(device(bound="v-1"), vmi=None, pods=[pod("v-1", phase="Failed"), pod("v-1", phase=phase)])


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_uses_nothing(phase: str) -> None:
    assert not in_use(device(bound="v-1"), vmi=None, pods=[pod("v-1", phase=phase)])


def test_a_pod_that_is_being_deleted_still_uses_it() -> None:
    assert in_use(device(bound="v-1"), vmi=None, pods=[pod("v-1", deletionTimestamp="2026-01-01T00:00:00Z")])


def test_a_pod_of_another_vmi_uses_nothing_whatever_its_label_says() -> None:
    other = pod("v-2", labels={"gpu.cozystack.io/device-reference": "d", "kubevirt.io/created-by": "v-1"})

    assert not in_use(device(bound="v-1"), vmi=None, pods=[other])


def test_a_binding_whose_vmi_and_pods_are_gone_binds_nothing() -> None:
    assert not in_use(device(bound="v-1"), vmi=None, pods=[])


@pytest.mark.parametrize(
    ("found", "vmis", "idle"),
    [
        (device(), [], 1),
        (device(), [vmi("v-1", refers_to="other")], 1),
        (device(), [vmi("v-1", refers_to="d")], 0),
        (device(bound="v-1"), [], 1),
        (device(bound="v-1"), [vmi("v-1")], 0),
        (device(bound="v-1"), [vmi("v-2")], 1),
        (device(template=False), [], 0),
    ],
    ids=["none came", "another came", "its own refers to it", "bound to one that is gone", "bound to one that exists",
         "bound to an earlier one", "a tenant's own"],
)  # fmt: skip
def test_a_template_device_is_idle_without_a_vmi(found: GPUDevice, vmis: list[VMI], idle: int) -> None:
    assert idle_template_devices([found], vmis) == idle


def test_idle_devices_are_counted() -> None:
    devices = [device("a"), device("b"), device("c"), device("d", template=False)]

    assert idle_template_devices(devices, [vmi("v-1", refers_to="b")]) == 2
