"""How long a plan takes; the figures are printed, the bounds are wide, for a machine that does other things too."""

import time
from typing import Any

import pytest
from gpuworld import H200, World

from cluster import kinds
from controller.plan import plan
from controller.state import READERS, State


def cluster(devices: int, *, held: bool) -> dict[Any, list[Any]]:
    """So many devices, each with its VMI, five to a node of eight GPUs."""
    world = World()
    world.gpu_class()
    world.run()
    stored: dict[Any, list[Any]] = {kind: list(world.api.every(kind)) for kind in READERS}
    since = world.api.stamp
    for number in range(devices // 5):
        status = {"allocatable": {H200: "8"}, "conditions": [{"type": "Ready", "status": "True"}]}
        labels = {"gpu": "h200", "zone": str(number % 3)}
        stored[kinds.NODES].append({"metadata": {"name": f"n{number}", "labels": labels}, "status": status})
    for number in range(devices):
        space, node = f"tenant-{number % 50}", f"n{number // 5}"
        name, labels = f"d{number}", {"gpu.cozystack.io/device-reference": f"d{number}"}
        identity = {"namespace": space, "name": name, "resourceVersion": "1", "creationTimestamp": since}
        device: dict[str, Any] = {
            "metadata": {**identity, "uid": name, "finalizers": ["gpu.cozystack.io/device"]},
            "spec": {"className": "h200", "count": 1},
        }
        selector = {"zone": str(number // 5 % 3)} if number % 2 else {}
        vmi: dict[str, Any] = {
            "metadata": {**identity, "uid": f"v{number}", "labels": labels},
            "spec": {"nodeSelector": selector},
        }
        if held:
            message = f"1 of {H200} on node {node}"
            condition = {"type": "Held", "status": "True", "reason": "Held", "message": message}
            device["status"] = {
                "phase": "InUse",
                "resourceName": H200,
                "nodeName": node,
                "heldAt": since,
                "binding": {"name": name, "uid": f"v{number}"},
                "conditions": [{**condition, "lastTransitionTime": since}],
            }
            vmi["metadata"]["annotations"] = {"gpu.cozystack.io/device-held": f"{node} {since}"}
        stored[kinds.GPU_DEVICES].append(device)
        stored[kinds.VMIS].append(vmi)
    return {kind: [READERS[kind](obj) for obj in objects] for kind, objects in stored.items()}


def seconds(devices: int, *, held: bool) -> tuple[float, int]:
    """Processor seconds of the quickest of three plans, and what it writes."""
    world = World()
    tables = cluster(devices, held=held)
    took, writes = [], 0
    for _ in range(3):
        begun = time.process_time()
        state = State.of(tables, config=world.config, now=world.api.now, served=())
        writes = len(plan(state).writes)
        took.append(time.process_time() - begun)
    return min(took), writes


@pytest.mark.parametrize(("held", "within"), [(True, 1.0), (False, 2.0)], ids=["all held", "all to be held at once"])
def test_a_plan_of_5000_devices_on_1000_nodes_takes_less_than_a_second(*, held: bool, within: float) -> None:
    took, writes = seconds(5000, held=held)

    print(f"\n5,000 devices, 5,000 VMIs, 1,000 nodes, {writes} writes: {took * 1000:.0f} ms of processor time")
    assert writes <= 1 if held else writes > 10_000
    assert took < within


def test_a_plan_costs_no_more_for_each_device_where_there_are_more() -> None:
    few, _ = seconds(1000, held=True)
    many, _ = seconds(8000, held=True)

    print(f"\n1,000 devices: {few * 1000:.0f} ms, 8,000: {many * 1000:.0f} ms")
    assert many < 8 * few * 2.5
