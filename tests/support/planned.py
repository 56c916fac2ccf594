"""What a plan is made of on a big cluster: the values of devices, VMIs and nodes, without an API server."""

from collections.abc import Iterator
from typing import Any, Final

from gpuworld import H200, World

from cluster import kinds
from cluster.kinds import Kind
from controller.state import READERS, Config

PER_NODE: Final = 5
"""Devices of one GPU for each node of eight."""

Tables = dict[Kind, list[Any]]


class Cluster:
    """So many devices, each with its VMI: all held and used, or all to be held at once. ``now`` is its time."""

    def __init__(self, devices: int, *, held: bool) -> None:
        world = World()
        world.gpu_class()
        world.run()
        self.config: Config = world.config
        self.now = world.api.now
        self.nodes = devices // PER_NODE
        self.tables: Tables = {kind: [read(obj) for obj in world.api.every(kind)] for kind, read in READERS.items()}
        for kind, obj in _objects(devices, world.api.stamp, held=held):
            self.tables[kind].append(READERS[kind](obj))


def _objects(devices: int, since: str, *, held: bool) -> Iterator[tuple[Kind, dict[str, Any]]]:
    for number in range(devices // PER_NODE):
        status = {"allocatable": {H200: "8"}, "conditions": [{"type": "Ready", "status": "True"}]}
        labels = {"gpu": "h200", "zone": str(number % 3)}
        yield kinds.NODES, {"metadata": {"name": f"n{number}", "labels": labels}, "status": status}
    for number in range(devices):
        space, node = f"tenant-{number % 50}", f"n{number // PER_NODE}"
        name, labels = f"d{number}", {"gpu.cozystack.io/device-reference": f"d{number}"}
        identity = {"namespace": space, "name": name, "resourceVersion": "1", "creationTimestamp": since}
        device: dict[str, Any] = {
            "metadata": {**identity, "uid": name, "finalizers": ["gpu.cozystack.io/device"]},
            "spec": {"className": "h200", "count": 1},
        }
        selector = {"zone": str(number // PER_NODE % 3)} if number % 2 else {}
        vmi: dict[str, Any] = {
            "metadata": {**identity, "uid": f"v{number}", "labels": labels},
            "spec": {"nodeSelector": selector},
        }
        if held:
            device["status"] = _status(name, node, since, number)
            vmi["metadata"]["annotations"] = {"gpu.cozystack.io/device-held": f"{node} {since}"}
        yield kinds.GPU_DEVICES, device
        yield kinds.VMIS, vmi


def _status(name: str, node: str, since: str, number: int) -> dict[str, Any]:
    message = f"1 of {H200} on node {node}"
    condition = {"type": "Held", "status": "True", "reason": "Held", "message": message}
    return {
        "phase": "InUse",
        "resourceName": H200,
        "nodeName": node,
        "heldAt": since,
        "binding": {"name": name, "uid": f"v{number}"},
        "conditions": [{**condition, "lastTransitionTime": since}],
    }
