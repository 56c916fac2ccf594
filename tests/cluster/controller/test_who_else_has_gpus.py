"""GPUs that others have, and how many a namespace may have."""

import asyncio
from collections.abc import Sequence

from actors import HOST_LABEL, bind_pod
from controlled import Controller
from controlplane.client import Client, ref
from gpukinds import API_VERSION, gpu_class
from machines import device, launcher, plain_pod, vmi
from outages import tenants_namespace
from pooled import POOL, Pool
from waiting import eventually


async def test_what_runs_already_is_counted_by_a_class_that_is_made_later(
    kube: Client, pool: Pool, controllers: Sequence[Controller]
) -> None:
    """A pod of the platform, and a VM that asks for a GPU by its name, from before its namespace was a tenant's."""
    later = Pool(kube, pool.tenant)
    node = await later.node("a", gpus=3)
    platforms = await eventually(
        lambda: kube.create(plain_pod("kube-system", f"monitor-{later.name}", limits={later.resource: "1"}))
    )
    await bind_pod(kube, platforms, node)
    namespace = f"old-{later.namespace}"
    await kube.create({**ref("v1", "Namespace", namespace)})
    await eventually(lambda: kube.get(ref("v1", "ServiceAccount", "default", namespace)))
    asked = [{"name": "gpu", "deviceName": later.resource}]
    raw = await later.virt_controller.create(vmi(namespace, "old", gpus=asked))
    pod = await later.virt_controller.create(launcher(raw))
    await bind_pod(kube, pod, node)
    await kube.patch(ref("v1", "Namespace", namespace), {"metadata": {"labels": {HOST_LABEL: "example.org"}}})

    await later.offer()
    for name in ("first", "second", "third"):
        await later.order(name)

    await later.becomes("first", phase="Held", nodeName=node)
    await asyncio.gather(*(later.becomes(name, reason="NoCapacity") for name in ("second", "third")))
    leader = next(one for one in controllers if one.leads)
    assert leader.metrics["gpu_controller_trespassers"] >= 1

    async def told() -> bool:
        events = await kube.list("events.k8s.io/v1", "Event", namespace)
        return [event["regarding"]["name"] for event in events if event["reason"] == "GPUWithoutDevice"] == [
            pod["metadata"]["name"]
        ]

    await eventually(told)
    await kube.patch(pod, {"status": {"phase": "Succeeded"}}, subresource="status")
    await later.becomes("second", phase="Held", nodeName=node)
    await later.becomes("third", reason="NoCapacity")
    await kube.patch(platforms, {"status": {"phase": "Failed"}}, subresource="status")
    await later.becomes("third", phase="Held", nodeName=node)


async def test_two_classes_of_one_resource_name_never_have_a_gpu_twice(kube: Client, pool: Pool) -> None:
    twin = f"{pool.name}-twin"
    source = {"devicePlugin": {"resourceName": pool.resource, "nodeSelector": {POOL: pool.name}}}
    await kube.create(gpu_class(twin, source=source))
    await pool.node("b", gpus=4)
    orders = [device(pool.namespace, f"{of}-{number}", of=of) for of in (pool.name, twin) for number in range(4)]

    await asyncio.gather(*map(pool.tenant.kube.create, orders))

    async def settled() -> list[str]:
        found = await kube.list(API_VERSION, "GPUDevice", pool.namespace)
        phases = [(one.get("status") or {}).get("phase") for one in found]
        assert (phases.count("Held"), phases.count("Pending")) == (5, 3), phases
        return [one["metadata"]["name"] for one in found if one["status"]["phase"] == "Held"]

    held = await eventually(settled)

    async def figures() -> bool:
        classes = [(await kube.get(ref(API_VERSION, "GPUClass", name)))["status"] for name in (pool.name, twin)]
        found = [(status["capacity"], status["free"]) for status in classes]
        return found == [(5, 0), (5, 0)] and sum(status["held"] for status in classes) == 5

    await eventually(figures)
    await pool.tenant.kube.delete(pool.device(held[0]))

    async def passed_on() -> bool:
        found = await kube.list(API_VERSION, "GPUDevice", pool.namespace)
        return [one["status"]["phase"] for one in found].count("Held") == 5 and len(found) == 7

    await eventually(passed_on)


async def test_a_namespace_holds_no_more_than_its_class_allows(kube: Client, pool: Pool) -> None:
    offer = ref(API_VERSION, "GPUClass", pool.name)
    await kube.patch(offer, {"spec": {"maxPerNamespace": 3}})
    await pool.node("b", gpus=8)
    for name, count in (("first", 2), ("second", 1), ("third", 1)):
        await pool.order(name, count=count)
    await pool.becomes("third", phase="Pending", reason="QuotaExceeded")
    await pool.becomes("second", phase="Held")
    other = await tenants_namespace(kube, f"other-{pool.namespace}")
    theirs = await kube.create(device(other, of=pool.name, count=3))

    async def held() -> bool:
        status = (await kube.get(theirs)).get("status") or {}
        return bool(status.get("phase") == "Held")

    await eventually(held)
    await pool.tenant.kube.delete(pool.device("second"))
    await pool.becomes("third", phase="Held")

    await pool.order("fourth", count=2)
    await pool.becomes("fourth", phase="Pending", reason="QuotaExceeded")
    await kube.patch(offer, {"spec": {"maxPerNamespace": 5}})
    await pool.becomes("fourth", phase="Held")
