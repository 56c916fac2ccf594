"""GPUClass and GPUDevice as plain kinds without rules, for tests without the chart; objects of all kinds."""

from collections.abc import Mapping
from typing import Any, Final

from controlplane.client import Client, Object
from controlplane.plane import ControlPlane
from structural import ANYTHING, INT32, TEXT, crd, fields

GROUP: Final = "gpu.cozystack.io"
API_VERSION: Final = f"{GROUP}/v1alpha1"
_NOW: Final = "2026-01-01T00:00:00Z"

CRDS: Final[list[dict[str, Any]]] = [
    crd(GROUP, "GPUClass", {"v1alpha1": {"spec": ANYTHING, "status": ANYTHING}}, plural="gpuclasses", cluster=True),
    crd(
        GROUP,
        "GPUDevice",
        {"v1alpha1": {"spec": fields(className=TEXT, count=INT32), "status": ANYTHING}},
        status=True,
    ),
]


def gpu_class(name: str = "h200", **spec: Any) -> dict[str, Any]:
    """A GPUClass."""
    given = {
        "vendor": "NVIDIA",
        "model": "H200",
        "mode": "Passthrough",
        "memory": "141Gi",
        "maxCount": 8,
        "source": {"devicePlugin": {"resourceName": f"nvidia.com/{name}"}},
    }
    return {"apiVersion": API_VERSION, "kind": "GPUClass", "metadata": {"name": name}, "spec": {**given, **spec}}


def gpu_device(namespace: str, name: str, *, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A GPUDevice of one GPU of class ``h200``."""
    return {
        "apiVersion": API_VERSION,
        "kind": "GPUDevice",
        "metadata": {"namespace": namespace, "name": name, "labels": dict(labels or {})},
        "spec": {"className": "h200", "count": 1},
    }


def vmi(namespace: str, name: str, *, device: str = "") -> dict[str, Any]:
    """A VirtualMachineInstance, which refers to a device where one is given."""
    labels = {f"{GROUP}/device-reference": device} if device else {}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "spec": {"domain": {"devices": {}}},
    }


H200: Final = "nvidia.com/GH100_H200_SXM_141GB"
"""The resource of the class ``h200`` of ``offered``: two GPUs a device at most."""
L40S: Final = "nvidia.com/L40S-24Q"
"""The resource of its class ``l40s``."""
GUARDED: Final = "gpu.nvidia.com"
"""The DeviceClass that stands for GPUs there."""


def offered(plane: ControlPlane, namespace: str) -> None:
    """Offer GPUs on a cluster: two classes, and the settings as the controller publishes them in a namespace."""
    for name, resource in (("h200", H200), ("l40s", L40S)):
        source = {"devicePlugin": {"resourceName": resource}}
        plane.create(f"/apis/{API_VERSION}/gpuclasses", gpu_class(name, maxCount=2, source=source))
    published = settings(namespace, *sorted([H200, L40S]))
    published["data"]["deviceClassNames"] = GUARDED
    plane.create(f"/api/v1/namespaces/{namespace}/configmaps", published)


async def hold(
    kube: Client, device: Object, machine: Object | None, *, node: str = "node-a", resource: str = H200
) -> Object:
    """Write what the controller does when a device has its GPUs, and is bound to a VMI where one is given."""
    status: dict[str, Any] = {"phase": "Held", "resourceName": resource, "nodeName": node, "heldAt": _NOW}
    if machine:
        metadata = machine["metadata"]
        status |= {"phase": "InUse", "binding": {"name": metadata["name"], "uid": metadata["uid"]}}
    return await kube.patch(device, {"status": status}, subresource="status")


def settings(namespace: str, *names: str) -> dict[str, Any]:
    """The ConfigMap ``gpu-settings``."""
    metadata = {"namespace": namespace, "name": "gpu-settings"}
    data = {"resourceNames": ",".join(names), "deviceClassNames": ""}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def pod(
    namespace: str, name: str, *, owner: Mapping[str, Any] | None = None, resource: str = "nvidia.com/h200"
) -> dict[str, Any]:
    """A pod that asks for one of a resource, with a VMI as its controller owner where one is given."""
    owners = [
        {
            "apiVersion": of["apiVersion"],
            "kind": of["kind"],
            "name": of["metadata"]["name"],
            "uid": of["metadata"]["uid"],
            "controller": True,
        }
        for of in ([owner] if owner else [])
    ]
    amounts = {resource: "1"} if resource else {}
    container = {"name": "compute", "image": "example.org/launcher", "resources": {"limits": amounts}}
    metadata = {"namespace": namespace, "name": name, "ownerReferences": owners}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
