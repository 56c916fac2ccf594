"""Orders: held at once where there is room, waiting with a reason where there is none, recorded while they are held."""

import itertools
import time
from typing import Any

from controlled import Controller
from controlplane.client import Client, Object, ref
from pooled import Pool
from waiting import best_of_six, eventually, gone


async def test_an_order_is_held_in_under_a_second(pool: Pool) -> None:
    numbers = itertools.count()

    async def measure() -> float:
        number = next(numbers)
        await pool.node(f"more-{number}")
        began = time.monotonic()
        await pool.order(f"gpu-{number}")
        status = await pool.becomes(f"gpu-{number}", phase="Held", resourceName=pool.resource)
        took = time.monotonic() - began
        assert status["nodeName"].startswith(pool.name)
        assert "binding" not in status
        return took

    assert await best_of_six(measure, least=3) < 1


async def test_an_order_without_room_waits_says_why_and_is_held_when_a_gpu_is_given_back(pool: Pool) -> None:
    await pool.order("first")
    held = await pool.becomes("first", phase="Held")
    await pool.order("second")

    waiting = await pool.becomes("second", phase="Pending", reason="NoCapacity")
    assert "nodeName" not in waiting

    await pool.tenant.kube.delete(pool.device("first"))
    await gone(pool.kube, pool.device("first"))
    taken = await pool.becomes("second", phase="Held")
    assert taken["nodeName"] == held["nodeName"]


async def test_what_becomes_of_an_order_is_told_by_events_once(kube: Client, pool: Pool) -> None:
    await pool.order("first")
    await pool.becomes("first", phase="Held")
    await pool.order("second")
    await pool.becomes("second", reason="NoCapacity")

    async def told() -> dict[tuple[str, str], Any]:
        found = {
            (event["regarding"]["name"], event["reason"]): event
            for event in await kube.list("events.k8s.io/v1", "Event", pool.namespace)
            if event["regarding"]["kind"] == "GPUDevice"
        }
        assert {("first", "Held"), ("second", "Waiting")} <= found.keys()
        return found

    events = await eventually(told)
    # Whatever else happens to the class, an order that goes on waiting for the same thing is not told of again.
    for number in range(3):
        await kube.patch(ref("v1", "Node", pool.node_name("a")), {"metadata": {"labels": {"touched": str(number)}}})
    again = await eventually(told)
    waiting = [events[key] for key in events if key[0] == "second"]
    assert [event["type"] for event in waiting] == ["Warning"]
    assert again["second", "Waiting"].get("series") is None
    assert again.keys() == events.keys()
    assert "NoCapacity" in waiting[0]["note"]


async def test_a_usage_record_appears_with_the_hold_comes_back_and_goes_with_the_release(
    kube: Client, pool: Pool
) -> None:
    await pool.node("b", gpus=2)
    await pool.order(count=2)
    await pool.becomes(phase="Held")
    record = ref("cozystack.io/v1alpha1", "Workload", "gpu-my-gpu", pool.namespace)
    monitor = ref("cozystack.io/v1alpha1", "WorkloadMonitor", "gpu-usage", pool.namespace)

    async def right() -> Object:
        found = await kube.get(record)
        assert found["metadata"]["labels"] == {"workloads.cozystack.io/monitor": "gpu-usage"}
        assert found.get("status", {}).get("resources") == {
            f"{pool.name}.gpuclass.gpu.cozystack.io/requests.devices": "2"
        }
        assert (found["status"]["kind"], found["status"]["type"]) == ("gpu", pool.name)
        spec = (await kube.get(monitor))["spec"]
        assert (spec["selector"], spec["replicas"]) == ({"gpu.cozystack.io/usage-monitor": "true"}, 0)
        return found

    first = await eventually(right, seconds=5)
    await kube.patch(record, {"status": {"type": "free-of-charge"}}, subresource="status")
    await eventually(right, seconds=5)
    await kube.delete(record)
    again = await eventually(right, seconds=5)
    assert again["metadata"]["uid"] != first["metadata"]["uid"]

    await pool.tenant.kube.delete(pool.device(), propagation="Foreground")
    await gone(kube, pool.device())
    await gone(kube, record, seconds=5)


async def test_a_class_tells_what_is_held_and_free_and_so_do_the_metrics(
    kube: Client, pool: Pool, controllers: list[Controller]
) -> None:
    await pool.node("b", gpus=4)
    await pool.order("first", count=3)
    await pool.order("second", count=4)
    await pool.becomes("first", phase="Held")
    await pool.becomes("second", reason="NoCapacity")

    async def told() -> bool:
        status = (await kube.get(ref("gpu.cozystack.io/v1alpha1", "GPUClass", pool.name)))["status"]
        return (status["capacity"], status["held"], status["free"]) == (5, 3, 2)

    await eventually(told, seconds=5)
    leader = next(one for one in controllers if one.leads)
    found = leader.metrics
    of_class = f'{{class="{pool.name}"}}'
    parts = {part: found[f"gpu_controller_class_{part}{of_class}"] for part in ("capacity", "held", "free", "pending")}
    assert parts == {"capacity": 5, "held": 3, "free": 2, "pending": 4}
    assert found[f"gpu_controller_time_to_hold_seconds_count{of_class}"] == 1
    assert found['gpu_controller_writes_total{outcome="made",resource="gpudevices.gpu.cozystack.io",verb="status"}'] > 0
    standby = next(one for one in controllers if one is not leader)
    assert standby.metrics["gpu_controller_leader"] == 0
    assert f"gpu_controller_class_held{of_class}" not in standby.metrics
