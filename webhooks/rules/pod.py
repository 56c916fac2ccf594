"""Rules on pods that ask for GPUs."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from gpu import fields, names
from gpu.gpudevice import GPUDevice
from gpu.migration import Migration
from gpu.offer import Offer
from gpu.pod import Pod, PodClaim, PodRequest, is_pinned
from gpu.rewrite import Grant
from webhooks.answer import Cause, Refusal, conflict, forbidden, merged, unavailable

_AFFINITY = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
_RETRY = "virt-controller tries again by itself"


def only_virt_controller_makes_gpu_pods(
    requests: Sequence[PodRequest], *, username: str, virt_controller: str
) -> Refusal | None:
    """A pod with a GPU resource name is created by virt-controller only."""
    if username == virt_controller:
        return None
    causes = tuple(Cause(r.path, f"asks for {r.resource_name!r} by its raw name") for r in requests)
    advice = f"run a VM that refers to a GPUDevice by the label {names.DEVICE_REFERENCE}"
    return Refusal(code=403, reason="Forbidden", causes=causes, advice=advice)


def gpu_pods_belong_to_a_vmi(vmi_uid: str | None) -> Refusal | None:
    """The controller owner of a GPU pod is a kubevirt.io VirtualMachineInstance."""
    if vmi_uid:
        return None
    message = (
        "a pod with GPUs has a VirtualMachineInstance of kubevirt.io as its controller owner, and this one has none"
    )
    return forbidden("metadata.ownerReferences", message, "run the GPU in a VM")


def gpu_pods_have_a_device(reference: str | None) -> Refusal | None:
    """A GPU pod has the device-reference label, which it gets from its VMI."""
    if reference:
        return None
    return forbidden(
        f"metadata.labels[{names.DEVICE_REFERENCE}]",
        "is missing on a pod that asks for GPUs: its VMI asks for them by raw name",
        f"refer to a GPUDevice by the label {names.DEVICE_REFERENCE} on the VM's template and restart the VM",
    )


def device_is_held(device: GPUDevice) -> Refusal | None:
    """The device is held."""
    if device.held:
        return None
    why = f" ({device.waiting})" if device.waiting else ""
    return forbidden("", f"GPUDevice {device.name!r} is not held yet: it waits for a free GPU{why}", _RETRY)


def device_is_bound_to(device: GPUDevice, vmi_uid: str) -> Refusal | None:
    """The device is bound to the VMI that owns the pod."""
    if device.binding is None:
        return forbidden("", f"GPUDevice {device.name!r} is held, but not bound to this VMI yet", _RETRY)
    if device.binding.uid == vmi_uid:
        return None
    message = f"GPUDevice {device.name!r} is bound to VirtualMachineInstance {device.binding.name!r} of another uid"
    return conflict("", message, "stop that VM first, or order another device")


def requests_are_what_is_granted(requests: Sequence[PodRequest], grant: Grant) -> Refusal | None:
    """The GPU requests of a pod, all its containers together, are exactly what the device grants."""
    foreign = merged(
        forbidden(r.path, f"asks for {r.resource_name!r}, and the device grants {grant.resource_name!r}")
        for r in requests
        if r.resource_name != grant.resource_name
    )
    if foreign:
        return foreign
    asked = sum(request.amount for request in requests)
    if asked == grant.count:
        return None
    places = ", ".join(request.path for request in requests[:4])
    message = f"the pod asks for {asked} of {grant.resource_name!r} ({places}), and the device grants {grant.count}"
    return forbidden("", message, "restart the VM, so that its GPU entries are written anew")


def migration_target_is_reserved(
    device: GPUDevice, migration_uid: str | None, migration: Migration | None
) -> Refusal | None:
    """A migration's target pod belongs to the migration that the device has a second node reserved for."""
    if migration_uid is None or (device.migration is not None and device.migration.uid == migration_uid):
        return None
    field = f"metadata.labels[{names.MIGRATION_JOB}]"
    if migration is None:
        return forbidden(field, "names a migration that does not exist in this namespace", "take the label off the VM")
    message = f"no node is reserved yet for GPUDevice {device.name!r} in migration {migration.name!r}"
    return forbidden(field, message, f"free a GPU on another node; {_RETRY}")


def device_serves(
    device: GPUDevice, vmi_uid: str, migration_uid: str | None, migration: Migration | None
) -> Refusal | None:
    """The device of a GPU pod is held and bound to the pod's VMI, and has a second node reserved for a migration."""
    return (
        device_is_held(device)
        or device_is_bound_to(device, vmi_uid)
        or migration_target_is_reserved(device, migration_uid, migration)
    )


def node_for(device: GPUDevice, migration_uid: str | None) -> str | None:
    """The one node a GPU pod may run on: the device's, or for a migration's target the reserved one."""
    if migration_uid is None:
        return device.node_name if device.held else None
    if device.migration is None or device.migration.uid != migration_uid:
        return None
    return device.migration.node_name


def pod_stays_on_its_node(pod: Mapping[str, Any], node: str) -> Refusal | None:
    """A GPU pod has a required node affinity, and every term of it names the node that its GPUs are held on."""
    placed = (fields.optional_object(pod, "spec", "") or {}).get("nodeName")
    if placed and placed != node:
        return forbidden(
            "spec.nodeName", f"places the pod past the scheduler, and its GPUs are held on {node!r}", _RETRY
        )
    if is_pinned(pod, node):
        return None
    message = f"does not hold the pod to node {node!r} in every term, where its GPUs are held"
    return forbidden(_AFFINITY, message, f"the mutating webhook adds it: was it called? {_RETRY}")


def no_other_pod_has_the_gpus(
    pods: Sequence[Pod], gpu_names: AbstractSet[str], *, name: str, vmi_uid: str, reserved_node: str | None
) -> Refusal | None:
    """No other unfinished, undeleted pod of the VMI asks for GPUs; beside a migration's target, none on its node."""
    for pod in pods:
        if pod.name == name or pod.vmi_uid != vmi_uid or pod.finished or pod.deleting or not pod.asks_for(gpu_names):
            continue
        if reserved_node is None or not pod.nodes or reserved_node in pod.nodes:
            return conflict("", f"pod {pod.name!r} of the same VMI has the GPUs", f"wait until it is gone; {_RETRY}")
    return None


def claims_ask_for_no_gpu(claim: PodClaim, asked: AbstractSet[str], offer: Offer) -> Refusal | None:
    """A pod's resource claims and claim templates ask for no DeviceClass that the settings count as GPUs."""
    if asked and offer.settings is None:
        message = f"whether the DeviceClass {min(asked)!r} stands for GPUs can't be told"
        return unavailable(f"{message}: the ConfigMap {names.SETTINGS} is missing", "try again once it is published")
    raw = sorted(asked & offer.device_class_names)
    if not raw:
        return None
    named = claim.claim or claim.template
    return forbidden(
        claim.path,
        f"the claim {named!r} asks for the DeviceClass {raw[0]!r} by name",
        f"order a GPUDevice and refer to it by the label {names.DEVICE_REFERENCE} on a VM",
    )
