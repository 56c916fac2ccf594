"""Nodes that go, and VMs that migrate."""

import pytest
from controlplane.client import Client, Object, ref
from machines import launcher, migration
from pooled import Pool, pinned
from refusals import refused
from waiting import gone


async def test_an_unused_device_moves_from_a_node_that_is_cordoned_or_gone(kube: Client, pool: Pool) -> None:
    await pool.order()
    await pool.becomes(phase="Held", nodeName=pool.node_name("a"))
    await kube.patch(ref("v1", "Node", pool.node_name("a")), {"spec": {"unschedulable": True}})
    await pool.becomes(phase="Pending", reason="NoCapacity", nodeName=None)

    second = await pool.node("b")
    await pool.becomes(phase="Held", nodeName=second)
    await kube.delete(ref("v1", "Node", second))
    await pool.becomes(phase="Pending", nodeName=None)
    await kube.patch(ref("v1", "Node", pool.node_name("a")), {"spec": {"unschedulable": None}})

    await pool.becomes(phase="Held", nodeName=pool.node_name("a"))


async def test_a_device_whose_vm_runs_stays_where_it_is_when_its_node_is_cordoned(kube: Client, pool: Pool) -> None:
    await pool.order()
    machine = await pool.machine(refers_to="my-gpu")
    await pool.becomes(phase="InUse")
    await pool.runs(machine)
    await pool.node("b")

    await kube.patch(ref("v1", "Node", pool.node_name("a")), {"spec": {"unschedulable": True}})
    await pool.order("another")

    await pool.becomes("another", phase="Held", nodeName=pool.node_name("b"))
    await pool.becomes(phase="InUse", nodeName=pool.node_name("a"))


async def running(pool: Pool) -> Object:
    """A VM runs on node a, and node b has a GPU."""
    await pool.order()
    machine = await pool.machine(refers_to="my-gpu")
    await pool.becomes(phase="InUse", nodeName=pool.node_name("a"))
    await pool.runs(machine)
    status = {"status": {"phase": "Running", "nodeName": pool.node_name("a")}}
    await pool.kube.patch(machine, status)
    await pool.node("b")
    return machine


async def test_a_migration_reserves_is_followed_and_gives_the_rest_back(kube: Client, pool: Pool) -> None:
    machine = await running(pool)
    source, target = pool.node_name("a"), pool.node_name("b")
    forged = await refused(pool.virt_controller.create(launcher(machine, migration="forged")))
    assert forged.code == 403

    move = await pool.virt_controller.create(migration(machine))
    reserved = {"uid": move["metadata"]["uid"], "nodeName": target}
    await pool.becomes(phase="InUse", migration=reserved, nodeName=source)
    pod = await pool.runs(machine, migration=move["metadata"]["uid"])
    assert pinned(pod) == target
    await pool.order("next")
    await pool.becomes("next", reason="NoCapacity")

    await kube.patch(machine, {"status": {"nodeName": target}})
    await pool.becomes(phase="InUse", nodeName=target)
    await pool.virt_controller.patch(move, {"status": {"phase": "Succeeded"}}, subresource="status")
    await pool.becomes(phase="InUse", nodeName=target, migration=None)
    # The source still terminates: its GPU is free only then.
    await pool.becomes("next", reason="NoCapacity")
    for one in await kube.list("v1", "Pod", pool.namespace):
        if one["spec"].get("nodeName") == source:
            left = ref("v1", "Pod", one["metadata"]["name"], pool.namespace)
            await kube.delete(left, grace=0)
            await gone(kube, left)
    await pool.becomes("next", phase="Held", nodeName=source)


@pytest.mark.parametrize("aborted", [False, True], ids=["fails", "is aborted"])
async def test_a_migration_that_comes_to_nothing_gives_its_reservation_back(pool: Pool, *, aborted: bool) -> None:
    machine = await running(pool)
    move = await pool.virt_controller.create(migration(machine))
    await pool.becomes(migration={"uid": move["metadata"]["uid"], "nodeName": pool.node_name("b")})
    await pool.order("next")
    await pool.becomes("next", reason="NoCapacity")

    if aborted:
        await pool.tenant.kube.delete(move)
    else:
        await pool.virt_controller.patch(move, {"status": {"phase": "Failed"}}, subresource="status")

    await pool.becomes(phase="InUse", migration=None, nodeName=pool.node_name("a"))
    await pool.becomes("next", phase="Held", nodeName=pool.node_name("b"))
