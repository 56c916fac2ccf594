"""The roads to a GPU by its raw name, and what is said to who takes one: by the policies first, else by the pair."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpukinds import H200, L40S

ORDER: Final = (
    "order a GPUDevice and refer to it by the label gpu.cozystack.io/device-reference, "
    "or set the annotation gpu.cozystack.io/device-template on the VM's template"
)
RUN: Final = "run a VM that refers to a GPUDevice by the label gpu.cozystack.io/device-reference"
RAW: Final = f"asks for '{H200}' by its raw name"
OWNER: Final = (
    "metadata.ownerReferences: a pod with GPUs has a VirtualMachineInstance of kubevirt.io as its controller owner, "
    "and this one has none; run the GPU in a VM"
)
"""What the pair says to virt-controller's pod without a VMI."""

_GPUS: Final = "spec.domain.devices.gpus: asks for GPUs without a device"
_H200: Final = {"name": "a", "deviceName": H200}
_CLAIM: Final = {"name": "gpu", "resourceClaimTemplateName": "raw"}
_BY_CLAIM: Final = {"name": "a", "claimName": "gpu", "requestName": "gpu"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Road:
    """What a VMI asks for (see ``machines.spec``); what the policy says, and what the pair says of each field."""

    asks: Mapping[str, Any]
    policy: str
    pair: Mapping[str, str]

    @property
    def policy_says(self) -> str:
        return f"{self.policy}; {ORDER}"

    @property
    def pair_says(self) -> str:
        return "; ".join([*(f"{where}: {problem}" for where, problem in self.pair.items()), ORDER])


VMIS: Final[Mapping[str, Road]] = {
    "gpus": Road(asks={"gpus": [_H200]}, policy=_GPUS, pair={"spec.domain.devices.gpus[0]": RAW}),
    "gpus of any name": Road(
        asks={"gpus": [{"name": "a", "deviceName": "nvidia.com/unknown"}]},
        policy=_GPUS,
        pair={"spec.domain.devices.gpus[0]": "asks for 'nvidia.com/unknown' by its raw name"},
    ),
    "hostDevices": Road(
        asks={"host_devices": [_H200]},
        policy=f"spec.domain.devices.hostDevices: asks for {H200} by its raw name",
        pair={"spec.domain.devices.hostDevices[0]": RAW},
    ),
    "requests": Road(
        asks={"requests": {H200: "1"}},
        policy=f"spec.domain.resources.requests[{H200}]: asks for a GPU by its raw name",
        pair={f"spec.domain.resources.requests[{H200}]": RAW},
    ),
    "limits": Road(
        asks={"limits": {H200: "1"}},
        policy=f"spec.domain.resources.limits[{H200}]: asks for a GPU by its raw name",
        pair={f"spec.domain.resources.limits[{H200}]": RAW},
    ),
    "claims": Road(
        asks={"gpus": [_BY_CLAIM], "claims": [_CLAIM]},
        policy=_GPUS,
        pair={"spec.domain.devices.gpus[0]": "asks for a GPU by a resource claim"},
    ),
    "several at once": Road(
        asks={"gpus": [_H200], "limits": {L40S: "0"}},
        policy=_GPUS,
        pair={
            "spec.domain.devices.gpus[0]": RAW,
            f"spec.domain.resources.limits[{L40S}]": f"asks for '{L40S}' by its raw name",
        },
    ),
}


def pod_says(field: str) -> str:
    """What the policy says to a pod that asks for a GPU there."""
    return f"{field}: asks for {H200} by its raw name; {RUN}"


def _container(**more: Any) -> dict[str, Any]:
    amounts = {"requests": {H200: "1"}, "limits": {H200: "1"}}
    return {"name": "side", "image": "example.org/image", "resources": amounts, **more}


PODS: Final[Mapping[str, tuple[Mapping[str, Any], str]]] = {
    "containers": ({"containers": [_container()]}, "spec.containers[0]"),
    "initContainers": ({"initContainers": [_container()]}, "spec.initContainers[0]"),
    "sidecars": ({"initContainers": [_container(restartPolicy="Always")]}, "spec.initContainers[0]"),
}
"""What a pod's spec has, and the container that the pair names."""
