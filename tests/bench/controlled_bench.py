"""The controller: what plans take, and a thousand orders held at once on a real API server.

Its writes are counted there, by the audit log, and their rate is compared with that of bare status writes by the same
client, as many of them at the same time, before and after.
"""

import asyncio
import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import gpukinds
import uvloop
from controlplane.client import Client, ref
from installed import RELEASE, Installed
from planning import plans
from through import installed_plane
from waiting import eventually

from cluster.api import Api
from cluster.connect import connect
from cluster.kinds import GPU_DEVICES
from controller.apply import AT_ONCE
from controller.running import running
from controller.state import Config
from webhooks.logs import configure_logs
from webhooks.process import collect_rarely

ORDERS: Final = 1_000
LEAST: Final = 0.7
"""The rate of the controller's writes, of that of bare ones."""
_GPUS: Final = 8
_RESOURCE: Final = "nvidia.com/BENCH"
_NAMESPACE: Final = "bench"
_WRITES: Final = frozenset({"create", "update", "patch", "delete"})


def controller_bench() -> list[str]:
    """Print what plans take, and what the holding of a thousand orders; what is short of its aim."""
    short = plans()
    with tempfile.TemporaryDirectory() as name, installed_plane(Path(name), audit=True) as installed:
        log = Path(name) / "controller.log"
        # It logs as it always does: a line for each write.
        with log.open("w") as file, contextlib.redirect_stderr(file):
            configure_logs(style="json", level="info")
            short += uvloop.run(_hold_all(installed))
    return short


async def _hold_all(installed: Installed) -> list[str]:
    collect_rarely()
    user = f"system:serviceaccount:{installed.namespace}:{RELEASE}-controller"
    api = await connect(kubeconfig=installed.plane.kubeconfig(user, installed.groups))
    try:
        async with installed.plane.client() as kube:
            await _furnish(kube)
            before = await _bare_rate(api, "before")
            since = installed.plane.audited
            await _held(kube, api, installed.namespace)
            events = installed.plane.audit_events(since=since)
            after = await _bare_rate(api, "after")
    finally:
        await api.close()
    return _show(events, user, (before, after))


async def _furnish(kube: Client) -> None:
    """A class with as many GPUs as are ordered, and the orders, which nobody has held yet.

    Their namespace is no tenant's, so the service, which is not there, is not asked.
    """
    source = {"devicePlugin": {"resourceName": _RESOURCE, "nodeSelector": {"bench": "x"}}}
    await kube.create(gpukinds.gpu_class("bench", source=source))
    await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}})
    conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}]
    rest = {"status": {"allocatable": {_RESOURCE: str(_GPUS)}, "conditions": conditions}}
    nodes = (
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}", "labels": {"bench": "x"}}, **rest}
        for number in range(ORDERS // _GPUS)
    )
    orders = (_order(number) for number in range(ORDERS))
    await _all([partial(kube.create, obj) for obj in (*nodes, *orders)])


def _order(number: int) -> dict[str, Any]:
    metadata = {"namespace": _NAMESPACE, "name": f"gpu-{number}"}
    spec = {"className": "bench", "count": 1}
    return {"apiVersion": gpukinds.API_VERSION, "kind": "GPUDevice", "metadata": metadata, "spec": spec}


async def _all(calls: list[Any]) -> None:
    """Make calls, as many at the same time as the controller does."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(call: Any) -> None:
        async with room:
            await call()

    async with asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(one(call))


async def _bare_rate(api: Api, message: str) -> float:
    """Status writes a second."""
    held = {"type": "Held", "status": "False", "reason": "Bench", "message": message}
    body = {"status": {"phase": "Pending", "conditions": [{**held, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}
    write = partial(api.merge, GPU_DEVICES, patch=body, namespace=_NAMESPACE, subresource="status")
    began = time.monotonic()
    await _all([partial(write, f"gpu-{number}") for number in range(ORDERS)])
    return ORDERS / (time.monotonic() - began)


async def _held(kube: Client, api: Api, namespace: str) -> None:
    """Have the controller hold all orders, and write all there is to write."""
    config = Config(namespace=namespace, tenants={"matchLabels": {"nobody": ""}})
    gpu_class = ref(gpukinds.API_VERSION, "GPUClass", "bench")
    async with running(api, config, service_account=f"{RELEASE}-controller") as controller:

        async def all_held() -> bool:
            status = (await kube.get(gpu_class)).get("status") or {}
            return status.get("held") == ORDERS

        await eventually(all_held, seconds=120, every=0.2)
        writes = -1.0
        while (now := _written(controller.metrics.registry.collect())) != writes:
            writes = now
            await asyncio.sleep(1.0)


def _written(families: Any) -> float:
    return sum(
        float(sample.value)
        for family in families
        if family.name == "gpu_controller_writes"
        for sample in family.samples
        if sample.name.endswith("_total")
    )


def _show(events: list[dict[str, Any]], user: str, bare: tuple[float, float]) -> list[str]:
    """Print the table; what is short of its aim."""
    own = [event for event in events if _is_write(event, user)]
    by_kind = Counter(_what(event) for event in own)
    # Its Lease is renewed for as long as it runs.
    made = sorted(_time(event) for event in own if event["objectRef"]["resource"] != "leases")
    rate = len(made) / (made[-1] - made[0])
    print(f"\n{ORDERS:,} orders held at once: {len(made):,} writes in {made[-1] - made[0]:.2f} s")
    for what, count in by_kind.most_common():
        print(f"  {count:>6,} {what}")
    whole = sum(bare) / len(bare)
    each = " and ".join(f"{one:.0f}" for one in bare)
    print(f"{rate:.0f} writes a second; bare status writes by the same client: {each}; {rate / whole:.2f} of them")
    if rate / whole < LEAST:
        return [f"the controller writes at {rate / whole:.2f} of the rate of bare writes, and {LEAST} is promised"]
    return []


def _is_write(event: Mapping[str, Any], user: str) -> bool:
    found = event.get("impersonatedUser") or event["user"]
    return event["verb"] in _WRITES and found["username"] == user and "objectRef" in event


def _what(event: Mapping[str, Any]) -> str:
    about = event["objectRef"]
    of = f"{about['resource']}/{about['subresource']}" if "subresource" in about else about["resource"]
    return f"{event['verb']} {of} {event['responseStatus']['code']}"


def _time(event: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(event["stageTimestamp"]).timestamp()
