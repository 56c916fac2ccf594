"""The checks of what is not ours: nodes, and KubeVirt's configuration."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from gpu.gpuclass import GPUClass
from gpu.quantity import quantity
from webhooks.doctor.evidence import Evidence
from webhooks.doctor.finding import Finding

_GATES: Final = frozenset({"GPU", "HostDevices"})
"""Older releases of KubeVirt give no VM a GPU without one of them (pkg/virt-config/featuregate)."""


def nodes(found: Evidence) -> Iterator[Finding]:
    """Every class has a node that has its GPUs."""
    if "nodes" in found.unread:
        return
    for gpu_class in found.classes:
        if gpu_class.source is None:
            continue
        count = sum(_has(node, gpu_class.resource_name or "", gpu_class.source.node_selector) for node in found.nodes)
        subject = f"GPUClass {gpu_class.name}"
        if count:
            yield Finding.ok(subject, f"{gpu_class.resource_name} is allocatable on {count} nodes")
        else:
            seen = f"no node that its nodeSelector matches has {gpu_class.resource_name} allocatable"
            yield Finding.warning(
                subject, seen, "is the device plugin running there, and the name spelt as it spells it?"
            )


def _has(node: Mapping[str, Any], resource_name: str, selector: Mapping[str, str]) -> bool:
    labels = node["metadata"].get("labels") or {}
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    try:
        there = quantity(allocatable.get(resource_name, 0)) > 0
    except ValueError:
        return False
    return there and all(labels.get(key) == value for key, value in selector.items())


def kubevirt(found: Evidence) -> Iterator[Finding]:
    """KubeVirt gives GPUs to VMs, and permits the resource name of every class."""
    if "kubevirts" in found.unread:
        return
    if not found.kubevirts:
        yield Finding.warning("KubeVirt", "there is no KubeVirt object", "install KubeVirt, or wait for its operator")
    for one in found.kubevirts:
        configuration = (one.get("spec") or {}).get("configuration") or {}
        yield from _gates(configuration.get("developerConfiguration") or {})
        permitted = configuration.get("permittedHostDevices")
        if permitted is not None:
            yield from _permitted(permitted, found.classes)


def _gates(developer: Mapping[str, Any]) -> Iterator[Finding]:
    gates = set(developer.get("featureGates") or ()) - set(developer.get("disabledFeatureGates") or ())
    if gates & _GATES:
        yield Finding.ok("KubeVirt", f"feature gates {', '.join(sorted(gates & _GATES))}")
    else:
        seen = "neither the feature gate HostDevices nor GPU is set"
        todo = "add HostDevices to spec.configuration.developerConfiguration.featureGates of the KubeVirt object"
        yield Finding.warning("KubeVirt", seen, todo)


def _permitted(permitted: Mapping[str, Any], classes: Iterable[GPUClass]) -> Iterator[Finding]:
    listed = {
        device.get("resourceName")
        for key in ("pciHostDevices", "mediatedDevices", "usb")
        for device in permitted.get(key) or ()
    }
    for gpu_class in classes:
        if gpu_class.resource_name and gpu_class.resource_name not in listed:
            seen = f"permittedHostDevices lacks {gpu_class.resource_name}: KubeVirt refuses VMs with it"
            key = "mediatedDevices" if gpu_class.mode == "VGPU" else "pciHostDevices"
            todo = (
                f"add it to spec.configuration.permittedHostDevices.{key}, with externalResourceProvider where a device"
            )
            yield Finding.failure(f"GPUClass {gpu_class.name}", seen, f"{todo} plugin other than KubeVirt's serves it")


def virt_controller(found: Evidence) -> Iterator[Finding]:
    """virt-controller's account is where the values say that it is."""
    if found.virt_controller is None and "virt_controller" not in found.unread:
        todo = "set kubevirt.namespace of the chart, or --kubevirt-namespace here, to KubeVirt's namespace"
        yield Finding.warning("virt-controller", "has no service account kubevirt-controller there", todo)
