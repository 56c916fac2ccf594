"""Which requests are whose."""

from typing import Final

from gpu import names
from webhooks.answer import Refusal, bad_request
from webhooks.review import Request

FAMILY: Final = {
    (names.KUBEVIRT_GROUP, names.VM),
    (names.KUBEVIRT_GROUP, names.REPLICA_SET),
    (names.KUBEVIRT_POOL_GROUP, names.POOL),
}
"""Those that VMIs are made from."""

_VERSIONS: Final = {
    (names.KUBEVIRT_GROUP, names.VMI): frozenset({"v1", "v1alpha3"}),
    ("", "Pod"): frozenset({"v1"}),
    (names.GROUP, names.GPU_DEVICE): frozenset({names.VERSION}),
}
"""The versions whose fields the rules know; KubeVirt serves v1alpha3 with the fields of v1."""


def is_vmi(request: Request) -> bool:
    """Whether it is about a VirtualMachineInstance itself."""
    return request.group == names.KUBEVIRT_GROUP and request.kind == names.VMI and not request.subresource


def is_pod(request: Request) -> bool:
    """Whether it is about a pod itself, not its status, binding, eviction or ephemeral containers."""
    return request.group == "" and request.kind == "Pod" and not request.subresource


def is_device(request: Request) -> bool:
    """Whether it is about a GPUDevice itself."""
    return request.group == names.GROUP and request.kind == names.GPU_DEVICE and not request.subresource


def is_family(request: Request) -> bool:
    """Whether it is about a VirtualMachine, a replica set or a pool itself."""
    return (request.group, request.kind) in FAMILY and not request.subresource


def is_creation(request: Request) -> bool:
    """Whether something comes to be."""
    return request.operation == "CREATE"


def version_is_known(request: Request) -> Refusal | None:
    """What is created comes in a version whose fields the rules know."""
    known = _VERSIONS.get((request.group, request.kind))
    if known is None or request.subresource or not is_creation(request) or request.version in known:
        return None
    message = f"{request.version!r} of {request.kind} is not known here; register {min(known)} with Equivalent"
    return bad_request("request.kind.version", message)
