"""Objects that ask for devices by every road, and such as do not, to be counted by a recorder."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.client import Client, ref
from recorder import Call, Recorder
from waiting import eventually

from gpu import names

TENANT = "tenant-of-calls"
H200 = "nvidia.com/GH100_H200_SXM_141GB"
LABEL = {names.DEVICE_REFERENCE: "my-gpu"}
ANNOTATION = {names.DEVICE_TEMPLATE: '{"className":"h200"}'}
PLAIN_NAMES = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi", "hugepages-2Mi": "2Mi"}
_numbers = itertools.count(1)


async def make_namespace(kube: Client, name: str, labels: Mapping[str, str]) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    await kube.apply(namespace)
    await eventually(lambda: kube.get(ref("v1", "ServiceAccount", "default", name)))


async def is_called(kube: Client, recorder: Recorder, namespace: str) -> bool:
    """Whether the API server knows of the webhooks and of the namespace's labels."""
    recorder.taken()
    await kube.create(vmi(namespace=namespace, labels=LABEL), dry_run=True)
    return len(recorder.taken()) == 2


async def calls_of(kube: Client, recorder: Recorder, objects: Mapping[str, dict[str, Any]]) -> dict[str, list[Call]]:
    """The calls that a dry run of each creation brings."""
    found = {}
    for case, obj in objects.items():
        recorder.taken()
        await kube.create(obj, dry_run=True)
        found[case] = recorder.taken()
    return found


def once(calls: Sequence[Call]) -> list[Call]:
    """The calls, one of each: the API server asks again where it first looked at what was stored before."""
    return list(dict.fromkeys(calls))


def vmi(
    *,
    namespace: str = TENANT,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    devices: Mapping[str, Any] | None = None,
    resources: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {
            "name": f"vmi-{next(_numbers)}",
            "namespace": namespace,
            "labels": {"kubevirt.io/domain": "desk", **(labels or {})},
            "annotations": {"example.com/note": H200, **(annotations or {})},
        },
        "spec": {"domain": {"devices": devices or {}, "resources": resources or {}}, **spec},
    }


def pod(
    *,
    namespace: str = TENANT,
    labels: Mapping[str, str] | None = None,
    containers: Mapping[str, Any] | None = None,
    sidecars: Sequence[Mapping[str, Any]] = (),
    **spec: Any,
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{next(_numbers)}", "namespace": namespace, "labels": labels or {}},
        "spec": {"containers": [container("compute", containers or PLAIN_NAMES), *sidecars], **spec},
    }


def container(name: str, limits: Mapping[str, str], **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "example.com/image", "resources": {"limits": limits, "requests": limits}, **more}


def gpus(*entries: Mapping[str, Any]) -> dict[str, Any]:
    return {"gpus": [{"name": f"gpu-{place}", **entry} for place, entry in enumerate(entries)]}


def host_devices(*entries: Mapping[str, Any]) -> dict[str, Any]:
    return {"hostDevices": [{"name": f"device-{place}", **entry} for place, entry in enumerate(entries)]}


CLAIM = {"name": "gpu", "resourceClaimName": "my-claim"}


def device() -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.GPU_DEVICE,
        "metadata": {"name": f"gpu-{next(_numbers)}", "namespace": TENANT},
        "spec": {"className": "h200"},
    }


def family(kind: str, template: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {"name": f"family-{next(_numbers)}", "namespace": TENANT}
    selector = {"matchLabels": {"kubevirt.io/domain": "desk"}}
    spec: dict[str, Any] = {"template": template}
    if kind == "VirtualMachine":
        spec["runStrategy"] = "Halted"
    else:
        spec["selector"] = selector
    if kind.startswith("VirtualMachinePool"):
        inner = {
            "metadata": {"labels": selector["matchLabels"]},
            "spec": {"template": template, "runStrategy": "Halted"},
        }
        spec = {"selector": selector, "virtualMachineTemplate": inner}
        kind, _, version = kind.partition(" ")
        return {"apiVersion": f"pool.kubevirt.io/{version}", "kind": kind, "metadata": metadata, "spec": spec}
    return {"apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def template_of(obj: Mapping[str, Any]) -> dict[str, Any]:
    return {"metadata": {key: obj["metadata"][key] for key in ("labels", "annotations")}, "spec": obj["spec"]}


VMIS_THAT_ASK: Mapping[str, dict[str, Any]] = {
    "the label": {"labels": LABEL},
    "an empty label": {"labels": {names.DEVICE_REFERENCE: ""}},
    "the annotation": {"annotations": ANNOTATION},
    "an empty annotation": {"annotations": {names.DEVICE_TEMPLATE: ""}},
    "gpus": {"devices": gpus({"deviceName": H200})},
    "gpus of any name": {"devices": gpus({"deviceName": "cpu"})},
    "gpus by a claim": {"devices": gpus({"claimName": "gpu", "requestName": "gpu"})},
    "hostDevices": {"devices": host_devices({"deviceName": "devices.kubevirt.io/kvm"}, {"deviceName": H200})},
    "hostDevices by a claim": {"devices": host_devices({"claimName": "gpu", "requestName": "gpu"})},
    "resourceClaims": {"resourceClaims": [CLAIM]},
    "requests": {"resources": {"requests": {**PLAIN_NAMES, H200: "1"}}},
    "limits": {"resources": {"limits": {**PLAIN_NAMES, H200: "1"}}},
    "a limit of zero": {"resources": {"limits": {H200: "0"}}},
}
PLAIN_VMIS: Mapping[str, dict[str, Any]] = {
    "nothing": {},
    "other resources": {"resources": {"requests": PLAIN_NAMES, "limits": PLAIN_NAMES}},
    "other labels": {"labels": {"device-reference": "a", f"{names.DEVICE_REFERENCE}s": "a"}},
    "other annotations": {"annotations": {names.DEVICE_REFERENCE: "a"}},
    "the label's key as an annotation": {"annotations": dict(LABEL), "labels": {}},
    "empty lists": {"devices": {"gpus": [], "hostDevices": []}, "resourceClaims": []},
    "KubeVirt's devices": {"devices": host_devices({"deviceName": "devices.kubevirt.io/kvm"})},
    "networks": {"networks": [{"name": "a", "multus": {"networkName": "b"}}]},
}
