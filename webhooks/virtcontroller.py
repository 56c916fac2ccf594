"""What KubeVirt's virt-controller makes of a manifest, as far as admission sees it."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from gpu import fields, names
from gpu.vmi import VMISpec

TEMPLATE_PATHS: Final = {
    names.VM: ("spec", "template"),
    names.REPLICA_SET: ("spec", "template"),
    names.POOL: ("spec", "virtualMachineTemplate", "spec", "template"),
}
"""Where the template of the VMIs stands, by kind."""

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_OBSOLETE: Final = {"key": "node-labeller.kubevirt.io/obsolete-host-model", "operator": "DoesNotExist"}


def vmi_template(obj: Mapping[str, Any]) -> tuple[Mapping[str, Any], str] | None:
    """The VMI template of a VirtualMachine, a replica set or a pool, and its field path; None where it has none.

    Raises FieldError for a wrong type on the way.
    """
    parent, path = obj, ""
    for key in TEMPLATE_PATHS.get(fields.optional_text(obj, "kind", "") or "", ()):
        found = fields.optional_object(parent, key, path)
        if found is None:
            return None
        parent, path = found, fields.child(path, key)
    return (parent, path) if path else None


def vmi_of(obj: Mapping[str, Any], *, namespace: str) -> dict[str, Any]:
    """The VMI that virt-controller creates for a VirtualMachine, a replica set or a pool.

    The template's labels and annotations reach it verbatim, and its controller owner is what it is made from; one of a
    VirtualMachine has its name, the others a ``generateName``. Raises FieldError.
    """
    found = vmi_template(obj)
    template, path = found or ({}, "")
    metadata = fields.required_object(obj, "metadata", "")
    name = fields.optional_text(metadata, "name", "metadata") or ""
    owner = {
        "apiVersion": obj.get("apiVersion"),
        "kind": obj.get("kind"),
        "name": name,
        "uid": metadata.get("uid", ""),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    marks = fields.optional_object(template, "metadata", path) or {}
    vmi_metadata = {key: marks[key] for key in ("labels", "annotations") if marks.get(key) is not None}
    naming = {"name": name} if obj.get("kind") == names.VM else {"generateName": name}
    return {
        "apiVersion": f"{names.KUBEVIRT_GROUP}/{names.KUBEVIRT_VERSION}",
        "kind": names.VMI,
        "metadata": {**vmi_metadata, **naming, "namespace": namespace, "ownerReferences": [owner]},
        "spec": template.get("spec") or {},
    }


def launcher_of(vmi: Mapping[str, Any], *, name: str | None = None) -> dict[str, Any]:
    """The virt-launcher pod that virt-controller creates for a VMI that has a uid, trimmed to what admission reads.

    The VMI's labels and annotations reach it, each device by name is a resource of its container, and amounts in
    ``domain.resources`` override those. Raises FieldError.
    """
    metadata = fields.required_object(vmi, "metadata", "")
    spec = VMISpec.read(vmi)
    devices = Counter(device for entry in (*spec.gpus, *spec.host_devices) if (device := entry.get("deviceName")))
    counted = {resource: str(amount) for resource, amount in devices.items()}
    vmi_name = str(metadata["name"])
    owner = {
        "apiVersion": vmi.get("apiVersion"),
        "kind": names.VMI,
        "name": vmi_name,
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    labels = {
        "kubevirt.io": "virt-launcher",
        "kubevirt.io/created-by": metadata["uid"],
        "vm.kubevirt.io/name": vmi_name,
    }
    resources = {key: {**counted, **spec.amounts.get(key, {})} for key in ("requests", "limits")}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name or f"virt-launcher-{vmi_name}-{str(metadata['uid'])[:5]}",
            "namespace": metadata.get("namespace"),
            "labels": {**(metadata.get("labels") or {}), **labels},
            "annotations": {**(metadata.get("annotations") or {}), "kubevirt.io/domain": vmi_name},
            "ownerReferences": [owner],
        },
        "spec": {
            "restartPolicy": "Never",
            "affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [_OBSOLETE]}]}}},
            "containers": [{"name": "compute", "image": "virt-launcher", "resources": resources}],
        },
        "status": {"phase": "Pending"},
    }
