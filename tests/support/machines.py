"""Virtual machines and what they are made of and into: the objects that tenants and KubeVirt write."""

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from actors import owner_reference

DEVICE_REFERENCE: Final = "gpu.cozystack.io/device-reference"
DEVICE_TEMPLATE: Final = "gpu.cozystack.io/device-template"
MIGRATION_JOB: Final = "kubevirt.io/migrationJobUID"

_numbers = itertools.count(1)


def device(namespace: str, name: str = "my-gpu", *, of: str = "h200", count: int = 1) -> dict[str, Any]:
    """A GPUDevice, as a tenant orders it."""
    spec = {"className": of, "count": count}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "gpu.cozystack.io/v1alpha1", "kind": "GPUDevice", "metadata": metadata, "spec": spec}


def vmi(
    namespace: str,
    name: str = "desk",
    *,
    refers_to: str = "",
    orders: Mapping[str, Any] | None = None,
    owner: Mapping[str, Any] | None = None,
    generated: bool = False,
    **asks: Any,
) -> dict[str, Any]:
    """A VirtualMachineInstance. ``refers_to`` is its label, ``orders`` its annotation; see ``spec`` for the rest.

    With ``generated`` the name is what the API server completes.
    """
    named: dict[str, Any] = {"generateName": name} if generated else {"name": name}
    metadata = {**named, "namespace": namespace, **marks(refers_to=refers_to, orders=orders)}
    if owner:
        metadata["ownerReferences"] = [owner_reference(owner)]
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": metadata,
        "spec": spec(**asks),
    }


def marks(*, refers_to: str = "", orders: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Labels and annotations of a VMI, or of the template of one."""
    return {
        "labels": {"kubevirt.io/vm": "desk", **({DEVICE_REFERENCE: refers_to} if refers_to else {})},
        "annotations": {DEVICE_TEMPLATE: json.dumps(orders)} if orders is not None else {},
    }


def spec(
    *,
    gpus: Sequence[Mapping[str, Any]] = (),
    host_devices: Sequence[Mapping[str, Any]] = (),
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    claims: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The spec of a VMI that asks for devices by these roads."""
    devices = {"gpus": list(gpus), "hostDevices": list(host_devices)}
    resources = {"requests": {"memory": "1Gi", **(requests or {})}, "limits": dict(limits or {})}
    domain = {"devices": {road: entries for road, entries in devices.items() if entries}, "resources": resources}
    return {"domain": domain, **({"resourceClaims": list(claims)} if claims else {})}


def vm(namespace: str, name: str = "desk", **template: Any) -> dict[str, Any]:
    """A VirtualMachine whose VMIs are as ``vmi`` has them."""
    spec = {"runStrategy": "Always", "template": _template(**template)}
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", **_named(namespace, name), "spec": spec}


def replica_set(namespace: str, name: str = "farm", *, replicas: int = 1, **template: Any) -> dict[str, Any]:
    """A VirtualMachineInstanceReplicaSet."""
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": {"kubevirt.io/vm": "desk"}},
        "template": _template(**template),
    }
    kind = "VirtualMachineInstanceReplicaSet"
    return {"apiVersion": "kubevirt.io/v1", "kind": kind, **_named(namespace, name), "spec": spec}


def pool(namespace: str, name: str = "pool", *, replicas: int = 1, **template: Any) -> dict[str, Any]:
    """A VirtualMachinePool."""
    labels = {"matchLabels": {"kubevirt.io/vm": "desk"}}
    machine = {"metadata": labels, "spec": {"runStrategy": "Always", "template": _template(**template)}}
    spec = {"replicas": replicas, "selector": labels, "virtualMachineTemplate": machine}
    kind = "VirtualMachinePool"
    return {"apiVersion": "pool.kubevirt.io/v1beta1", "kind": kind, **_named(namespace, name), "spec": spec}


def launcher(machine: Mapping[str, Any], *, migration: str = "") -> dict[str, Any]:
    """The pod that virt-controller makes for a stored VMI; ``migration`` is the uid of the one that it is a target of.

    It adds up the device names of ``gpus`` and ``hostDevices``; labels come from the VMI (KubeVirt's
    pkg/virt-controller/services, RenderLaunchManifest).
    """
    metadata = machine["metadata"]
    devices = machine["spec"]["domain"]["devices"]
    amounts: dict[str, int] = {"devices.kubevirt.io/kvm": 1, "devices.kubevirt.io/tun": 1}
    for entry in [*devices.get("gpus", ()), *devices.get("hostDevices", ())]:
        name = entry["deviceName"]
        amounts[name] = amounts.get(name, 0) + 1
    labels = {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": metadata["uid"], **metadata.get("labels", {})}
    pod = plain_pod(
        metadata["namespace"],
        f"virt-launcher-{metadata['name']}-{next(_numbers)}",
        limits={name: str(amount) for name, amount in amounts.items()},
    )
    pod["metadata"]["labels"] = {**labels, **({MIGRATION_JOB: migration} if migration else {})}
    pod["metadata"]["ownerReferences"] = [owner_reference(machine)]
    return pod


def migration(machine: Mapping[str, Any], name: str = "move") -> dict[str, Any]:
    """A VirtualMachineInstanceMigration of a VMI."""
    kind, metadata = "VirtualMachineInstanceMigration", machine["metadata"]
    spec = {"vmiName": metadata["name"]}
    return {"apiVersion": "kubevirt.io/v1", "kind": kind, **_named(metadata["namespace"], name), "spec": spec}


def plain_pod(
    namespace: str, name: str = "web", *, limits: Mapping[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    """A pod of one container, with these limits."""
    container = {"name": "compute", "image": "example.org/image", "resources": {"limits": dict(limits or {})}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        **_named(namespace, name),
        "spec": {"restartPolicy": "Never", "containers": [container], **spec},
    }


def _named(namespace: str, name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}}


def _template(*, refers_to: str = "", orders: Mapping[str, Any] | None = None, **asks: Any) -> dict[str, Any]:
    return {"metadata": marks(refers_to=refers_to, orders=orders), "spec": spec(**asks)}
