"""What judges histories on a cluster sees what it is there to see."""

from typing import Any

import pytest
from history import History

H200 = "nvidia.com/H200"


def obj(kind: str, name: str, version: int, **parts: Any) -> tuple[int, str, str, dict[str, Any]]:
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), **parts.pop("metadata", {})}
    return version, kind, parts.pop("verb", "MODIFIED"), {"metadata": metadata, **parts}


def device(name: str, version: int, *, node: str = "", vm: str = "", verb: str = "MODIFIED") -> Any:
    status: dict[str, Any] = {"resourceName": H200, "nodeName": node} if node else {}
    if vm:
        status["binding"] = {"name": vm, "uid": f"uid-{vm}"}
    return obj("GPUDevice", name, version, spec={"count": 1}, status=status, verb=verb)


def history(*told: Any) -> History:
    found = History()
    node = obj("Node", "n1", 1, status={"allocatable": {H200: "1"}})
    found.told = [node, device("a", 2), device("b", 3), *told]
    return found


def pod(version: int, vm: str) -> Any:
    owners = {"ownerReferences": [{"uid": f"uid-{vm}"}]}
    container = {"resources": {"requests": {H200: "1"}}}
    spec = {"nodeName": "n1", "containers": [container]}
    return obj("Pod", f"pod-{vm}", version, metadata=owners, spec=spec, status={"phase": "Running"})


def test_one_after_the_other_is_right() -> None:
    machine = obj("VirtualMachineInstance", "vm", 4, status={})
    found = history(
        machine,
        device("a", 5, node="n1", vm="vm"),
        pod(6, "vm"),
        obj("VirtualMachineInstance", "vm", 7, verb="DELETED"),
        obj("Pod", "pod-vm", 8, verb="DELETED", status={}),
        device("a", 9, verb="DELETED"),
        device("b", 10, node="n1"),
    )
    found.judge()

    assert found.holds == 2


@pytest.mark.parametrize(
    "told",
    [
        [device("a", 4, node="n1"), device("b", 5, node="n1")],
        [pod(4, "stranger"), device("a", 5, node="n1")],
        [device("a", 4, node="n1", vm="vm"), pod(5, "vm"), device("a", 6, node="n1", vm="rival")],
        [device("a", 4, node="n1", vm="vm"), pod(5, "vm"), device("a", 6, verb="DELETED")],
        [device("a", 4, node="n1", vm="vm"), pod(5, "vm"), device("a", 6, vm="vm")],
    ],
    ids=["two of one GPU", "a GPU that a pod has", "bound to another", "gone while used", "taken back"],
)
def test_what_must_not_be_is_seen(told: list[Any]) -> None:
    with pytest.raises(AssertionError):
        history(*told).judge()
