"""What is stored before the policies are there, in each namespace, by the names that the tables use."""

from collections.abc import Mapping
from typing import Any, Final

from controlplane.client import Object
from structural import ANYTHING, crd

from gpu import names

H200: Final = "nvidia.com/GH100_H200_SXM_141GB"
A100: Final = "nvidia.com/GA100_A100_PCIE_40GB"
GUARDED: Final = "gpu.example.com"
"""A DeviceClass that stands for GPUs."""
MARK: Final = "gpu.cozystack.io/usage-monitor"
KEPT: Final = "tests.example.org/kept"
"""A finalizer that keeps what is deleted."""
NETWORK_RESOURCE: Final = "k8s.v1.cni.cncf.io/resourceName"
REFERENCE: Final[Mapping[str, str]] = {names.DEVICE_REFERENCE: "my-gpu"}
TEMPLATE: Final[Mapping[str, str]] = {names.DEVICE_TEMPLATE: '{"className":"h200"}'}

SETTINGS: Final = {"resourceNames": f"{A100},{H200}", "deviceClassNames": GUARDED}


def settings(namespace: str, data: Mapping[str, str] | None) -> dict[str, Any]:
    """The ConfigMap of the settings."""
    metadata = {"name": names.SETTINGS, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def named(api_version: str, kind: str, name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **metadata}}


def vmi(
    name: str = "new", *, domain: Mapping[str, Any] | None = None, period: int | None = None, **metadata: Any
) -> dict[str, Any]:
    """A VMI; ``domain`` is merged into its domain, ``period`` is its grace period in seconds."""
    spec: dict[str, Any] = {"domain": {"devices": {}, **(domain or {})}}
    if period is not None:
        spec["terminationGracePeriodSeconds"] = period
    return {**named("kubevirt.io/v1", names.VMI, name, **metadata), "spec": spec}


def pod(
    name: str = "new",
    *,
    limits: Mapping[str, str] | None = None,
    requests: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    resources = {"limits": limits or {}, "requests": requests or limits or {}}
    container = {"name": "compute", "image": "example.org/launcher", "resources": resources}
    return {**named("v1", "Pod", name, **metadata), "spec": {"containers": [container], **(spec or {})}}


def owner(kind: str = names.VMI, api_version: str = "kubevirt.io/v1", **fields: Any) -> dict[str, Any]:
    """An owner reference to the stored VMI ``vmi``, whose uid is filled in when it is sent."""
    return {"apiVersion": api_version, "kind": kind, "name": "vmi", "uid": OWNER_UID, "controller": True, **fields}


OWNER_UID: Final = "uid-of-vmi"
"""Stands for the uid of the VMI ``vmi`` in the same namespace."""


def device(name: str = "new", class_name: str = "h200", **metadata: Any) -> dict[str, Any]:
    return {**named(names.API_VERSION, names.GPU_DEVICE, name, **metadata), "spec": {"className": class_name}}


def gpu_class(name: str = "h200", *, finalizers: tuple[str, ...] = (), **spec: Any) -> dict[str, Any]:
    what = {"vendor": "NVIDIA", "model": "H200", "mode": "Passthrough", "memory": "141Gi", "maxCount": 8}
    source = {"devicePlugin": {"resourceName": H200, "nodeSelector": {"gpu": "h200"}}}
    metadata: dict[str, Any] = {"finalizers": list(finalizers)}
    return {**named(names.API_VERSION, names.GPU_CLASS, name, **metadata), "spec": {**what, "source": source, **spec}}


def claim_spec(*device_classes: str) -> dict[str, Any]:
    exactly = [{"name": f"r{at}", "exactly": {"deviceClassName": of}} for at, of in enumerate(device_classes)]
    return {"devices": {"requests": exactly}}


def claim(
    name: str = "new", spec: Mapping[str, Any] | None = None, version: str = "v1", **metadata: Any
) -> dict[str, Any]:
    api_version = f"resource.k8s.io/{version}"
    return {**named(api_version, "ResourceClaim", name, **metadata), "spec": spec or claim_spec("other.example.com")}


def claim_template(name: str, spec: Mapping[str, Any], version: str = "v1") -> dict[str, Any]:
    return {**named(f"resource.k8s.io/{version}", "ResourceClaimTemplate", name), "spec": {"spec": spec}}


def network(name: str = "new", resource: str | None = None, **metadata: Any) -> dict[str, Any]:
    annotations = {} if resource is None else {"annotations": {NETWORK_RESOURCE: resource}}
    obj = named("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", name, **annotations, **metadata)
    return {**obj, "spec": {"config": "{}"}}


_RUNNING: Final[Mapping[str, Any]] = {"nodeName": "node-1"}
_LAUNCHER: Final[Mapping[str, Any]] = {"labels": REFERENCE, "ownerReferences": [owner()]}

THING: Final = crd("tests.example.org", "Thing", {"v1": {"spec": ANYTHING, "deleteOptions": ANYTHING}})
"""A kind that looks like others where policies look."""


def thing(name: str = "new", *, spec: Mapping[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """What looks like a running pod and an eviction at once."""
    obj = named("tests.example.org/v1", "Thing", name, **metadata)
    return {**obj, "spec": spec or {}, "deleteOptions": {"gracePeriodSeconds": 0}}


FIRST: Final[Mapping[str, Object]] = {
    "vmi": vmi("vmi", labels=REFERENCE, annotations=TEMPLATE),
    "plain-vmi": vmi("plain-vmi", labels={"app": "desk"}),
    "raw-vmi": vmi("raw-vmi", domain={"devices": {"gpus": [{"name": "gpu", "deviceName": H200}]}}),
    "orphan-vmi": vmi("orphan-vmi", labels=REFERENCE, finalizers=["orphan"]),
    "hasty-vmi": vmi("hasty-vmi", labels=REFERENCE, period=-30),
    "leaving-vmi": vmi("leaving-vmi", labels=REFERENCE, annotations=TEMPLATE, finalizers=[KEPT]),
    "marked-secret": named("v1", "Secret", "marked-secret", labels={MARK: "true"}, finalizers=[KEPT]),
    "secret": named("v1", "Secret", "secret"),
    "account": named("v1", "ServiceAccount", "account"),
    "replicas": {
        **named("kubevirt.io/v1", names.REPLICA_SET, "replicas"),
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {}, "spec": vmi()["spec"]},
        },
    },
    "device": device("device", finalizers=[names.DEVICE_FINALIZER, KEPT]),
    "template-device": device(
        "template-device", labels={names.TEMPLATE_DEVICE: "true"}, finalizers=[names.DEVICE_FINALIZER]
    ),
    "bare-device": device("bare-device"),
    "leaving-device": device("leaving-device", "leaving-class", finalizers=[names.DEVICE_FINALIZER]),
    "thing": thing("thing", spec=_RUNNING, labels=REFERENCE),
    "claim": claim("claim"),
    "raw-claim": claim("raw-claim", claim_spec(GUARDED), finalizers=[KEPT]),
    "network": network("network", "intel.com/sriov"),
    "raw-network": network("raw-network", H200, finalizers=[KEPT]),
}
"""Of a namespace."""
THEN: Final[Mapping[str, Object]] = {
    "launcher": pod("launcher", spec=_RUNNING, **_LAUNCHER),
    "short-launcher": pod("short-launcher", spec={**_RUNNING, "terminationGracePeriodSeconds": 0}, **_LAUNCHER),
    "leaving-launcher": pod("leaving-launcher", spec=_RUNNING, finalizers=[KEPT], **_LAUNCHER),
    "waiting-launcher": pod("waiting-launcher", **_LAUNCHER),
    "finished-launcher": pod("finished-launcher", spec=_RUNNING, **_LAUNCHER),
    "failed-launcher": pod("failed-launcher", spec=_RUNNING, **_LAUNCHER),
    "plain-pod": pod("plain-pod", spec=_RUNNING, ownerReferences=[owner()]),
    "raw-pod": pod("raw-pod", limits={H200: "1"}, spec=_RUNNING),
    "marked-pod": pod("marked-pod", spec=_RUNNING, labels={MARK: "true"}, finalizers=[KEPT]),
}
"""Of a namespace, when the VMI that owns them is there."""
PHASES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("launcher", "short-launcher", "leaving-launcher", "plain-pod"), "Running"),
    "finished-launcher": "Succeeded",
    "failed-launcher": "Failed",
}
LEAVING: Final = ("leaving-vmi", "leaving-launcher")
"""Deleted, and kept by a finalizer."""
OF_THE_CLUSTER: Final[Mapping[str, Object]] = {
    "heavy": {
        **named("node.k8s.io/v1", "RuntimeClass", "heavy"),
        "handler": "heavy",
        "overhead": {"podFixed": {H200: "1"}},
    },
    "h200": gpu_class("h200", finalizers=(names.CLASS_FINALIZER,), maxPerNamespace=4),
    "slice": gpu_class("slice", finalizers=(names.CLASS_FINALIZER, KEPT), mode="VGPU", profile="L40S-24Q"),
    "free-h200": gpu_class("free-h200"),
    "free-slice": gpu_class("free-slice", mode="VGPU", profile="L40S-24Q"),
    "leaving-class": gpu_class("leaving-class", finalizers=(names.CLASS_FINALIZER,)),
    "dra-class": gpu_class("dra-class", finalizers=(names.CLASS_FINALIZER,), source={"dra": {"deviceClassName": "a"}}),
}
LEAVING_OF_THE_CLUSTER: Final = ("leaving-class",)
