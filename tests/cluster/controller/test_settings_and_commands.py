"""The settings that are published, and what the command line tells and does of devices, classes and names."""

import itertools
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from controlplane.client import Client, ref
from controlplane.errors import APIError
from controlplane.plane import ControlPlane
from gpukinds import API_VERSION
from hooks import run_command
from machines import plain_pod
from pooled import Pool
from waiting import best_of_six, eventually, gone

SETTINGS = ref("v1", "ConfigMap", "gpu-settings", "gpu-system")


async def published(kube: Client) -> list[str]:
    names: str = (await kube.get(SETTINGS))["data"]["resourceNames"]
    return names.split(",")


async def refused_by_name(pool: Pool, resource: str) -> None:
    """A tenant's pod that asks for it is refused by the policy, which names it; one that asks for nothing is let in."""
    try:
        await pool.tenant.kube.create(plain_pod(pool.namespace, limits={resource: "1"}), dry_run=True)
        said = "nothing"
    except APIError as error:
        said = error.message
    assert "pod-raw-names.gpu.cozystack.io" in said
    assert f"asks for {resource} by its raw name" in said
    await pool.tenant.kube.create(plain_pod(pool.namespace), dry_run=True)


async def within_a_second(change: Callable[[int], Awaitable[object]], look: Callable[[], Awaitable[object]]) -> None:
    """After a change it is so soon."""
    numbers = itertools.count()

    async def measure() -> float:
        await change(next(numbers))
        began = time.monotonic()

        async def is_so() -> bool:
            await look()
            return True

        await eventually(is_so, every=0.02)
        return time.monotonic() - began

    assert await best_of_six(measure, least=3) < 1


async def test_settings_that_are_lost_or_edited_are_right_again_within_a_second(kube: Client, pool: Pool) -> None:
    await eventually(lambda: _lists(kube, pool.resource))
    before = await published(kube)
    assert before == sorted(before)

    async def whole() -> None:
        assert await published(kube) == before
        assert (await kube.get(SETTINGS))["data"]["deviceClassNames"] == ""
        await refused_by_name(pool, pool.resource)

    async def edit(number: int) -> None:
        mine = {"resourceNames": f"example.com/mine-{number}", "deviceClassNames": None}
        await kube.patch(SETTINGS, {"data": mine})

    await within_a_second(lambda _: kube.delete(SETTINGS), whole)
    await within_a_second(edit, whole)


async def test_a_class_that_is_renamed_or_deleted_leaves_every_name_that_it_sold_refused(
    kube: Client, pool: Pool
) -> None:
    offer = ref(API_VERSION, "GPUClass", pool.name)
    names = [pool.resource]
    # What a class sold before anybody saw it, it never sold.
    await eventually(lambda: _lists(kube, pool.resource))

    async def rename(number: int) -> None:
        names.append(f"{pool.resource}-{number}")
        await kube.patch(offer, {"spec": {"source": {"devicePlugin": {"resourceName": names[-1]}}}})

    async def all_refused() -> None:
        for name in names:
            await refused_by_name(pool, name)

    await within_a_second(rename, all_refused)
    # The nodes have the GPUs still.
    await kube.delete(offer)
    await gone(kube, offer)
    await all_refused()
    assert set(names) <= set(await published(kube))


async def test_a_retired_name_stays_until_it_is_forgotten(kube: Client, plane: ControlPlane, pool: Pool) -> None:
    where = ("--kubeconfig", str(plane.kubeconfig()), "--namespace", "gpu-system")
    await eventually(lambda: _lists(kube, pool.resource))

    code, said = await run_command("settings", "forget", pool.resource, *where)
    assert (code, f"given by GPUClass {pool.name}, which sells it" in said) == (2, True), said
    offer = ref(API_VERSION, "GPUClass", pool.name)
    await kube.delete(offer)
    await gone(kube, offer)
    assert pool.resource in await published(kube)

    code, said = await run_command("settings", "forget", pool.resource, *where)

    assert (code, said) == (0, f"{pool.resource} is forgotten\n")
    assert pool.resource not in await published(kube)
    # The controller, which makes the settings whole, agrees.
    await kube.delete(SETTINGS)
    await eventually(lambda: published(kube))
    assert pool.resource not in await published(kube)
    code, said = await run_command("settings", "forget", pool.resource, *where)
    assert (code, "is not published" in said) == (2, True), said


async def _lists(kube: Client, name: str) -> bool:
    return name in await published(kube)


async def test_devices_and_classes_say_who_has_what_and_who_waits(plane: ControlPlane, pool: Pool) -> None:
    await pool.order("first")
    machine = await pool.machine(refers_to="first")
    held = await pool.becomes("first", phase="InUse")
    await pool.order("second")
    await pool.becomes("second", reason="NoCapacity")
    where = ("--kubeconfig", str(plane.kubeconfig()))

    _, told = await run_command("devices", "--class", pool.name, "-o", "json", *where)
    first, second = json.loads(told)["devices"]
    assert (
        first.items()
        >= {
            "namespace": pool.namespace,
            "name": "first",
            "className": pool.name,
            "count": 1,
            "phase": "InUse",
            "nodeName": pool.node_name("a"),
            "resourceName": pool.resource,
            "heldAt": held["heldAt"],
            "vm": machine["metadata"]["name"],
            "waitsFor": None,
        }.items()
    )
    assert (second["nodeName"], second["heldAt"], second["phase"]) == (None, None, "Pending")
    assert second["waitsFor"].startswith("NoCapacity: ")

    _, table = await run_command("devices", "-n", pool.namespace, *where)
    head, *lines = table.splitlines()
    assert head.split()[:8] == ["NAMESPACE", "NAME", "CLASS", "GPUS", "PHASE", "NODE", "VM", "SINCE"]
    assert lines[0].split()[:7] == [pool.namespace, "first", pool.name, "1", "InUse", pool.node_name("a"), "desk"]
    assert lines[1].split()[1:6] == ["second", pool.name, "1", "Pending", "-"]
    assert "NoCapacity" in lines[1]
    _, waiting = await run_command("devices", "-n", pool.namespace, "--waiting", *where)
    assert [line.split()[1] for line in waiting.splitlines()[1:]] == ["second"]

    _, offered = await run_command("classes", "-o", "json", *where)
    [row] = [row for row in json.loads(offered)["classes"] if row["name"] == pool.name]
    figures: dict[str, Any] = {key: row[key] for key in ("capacity", "free", "held", "waiting")}
    assert figures == {"capacity": 1, "free": 0, "held": 1, "waiting": 1}
