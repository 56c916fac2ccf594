"""Leaving: everything is let go of while the controllers run, nothing is taken up again, and all can be deleted."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from controlled import Controller
from controlplane.client import Client, ref
from controlplane.plane import ControlPlane
from gpukinds import API_VERSION
from hooks import run_command
from installed import Installed
from pooled import Pool
from waiting import gone

LEASE = ref("coordination.k8s.io/v1", "Lease", "gpu-controller", "gpu-system")
RELEASED = "gpu.cozystack.io/released"


@pytest.fixture
async def taken_up_again(kube: Client) -> AsyncIterator[None]:
    """Whatever becomes of the test, the controllers go on after it."""
    yield
    await kube.patch(LEASE, {"metadata": {"annotations": {RELEASED: None}}})


async def finalizers(kube: Client) -> dict[str, Any]:
    """Of every device and class that has some."""
    return {
        one["metadata"]["name"]: one["metadata"]["finalizers"]
        for kind in ("GPUDevice", "GPUClass")
        for one in await kube.list(API_VERSION, kind)
        if one["metadata"].get("finalizers")
    }


@pytest.mark.usefixtures("taken_up_again")
async def test_all_is_let_go_of_while_controllers_run_and_can_be_taken_up_again(
    kube: Client, plane: ControlPlane, home: Installed, pool: Pool, controllers: Sequence[Controller]
) -> None:
    await pool.order("used")
    machine = await pool.machine(refers_to="used")
    await pool.becomes("used", phase="InUse")
    await pool.runs(machine)
    await pool.order("waiting")
    await pool.becomes("waiting", reason="NoCapacity")
    await kube.patch(pool.device("waiting"), {"metadata": {"finalizers": ["gpu.cozystack.io/device", "a.example/b"]}})
    where = ("--namespace", home.namespace, "--kubeconfig", str(plane.kubeconfig()))

    code, said = await run_command("release-all", "--yes", *where)

    assert code == 0, said
    assert await finalizers(kube) == {"waiting": ["a.example/b"]}
    assert (await kube.get(pool.device("used")))["status"]["phase"] == "InUse"
    assert not any(one.leads for one in controllers)
    # Something happens that the controllers would act on.
    await pool.order("later")
    await pool.node("b")
    # Each replica looks at the Lease at least every second, and would have led, planned and written by then.
    await asyncio.sleep(2.5)
    assert await finalizers(kube) == {"waiting": ["a.example/b"]}
    code, said = await run_command("release-all", "--yes", *where)
    assert (code, said) == (0, "released 0 devices and 0 classes; the orders stay\n")
    offer = ref(API_VERSION, "GPUClass", pool.name)
    await kube.delete(offer)
    await gone(kube, offer, seconds=5)
    await pool.tenant.kube.delete(pool.device("used"))
    await gone(kube, pool.device("used"), seconds=5)

    await kube.patch(LEASE, {"metadata": {"annotations": {RELEASED: None}}})
    await pool.offer()

    # The pod that goes on running has the GPU of the one node.
    await pool.becomes("waiting", phase="Held", nodeName=pool.node_name("b"))
    await pool.becomes("later", reason="NoCapacity")
    guarded = await finalizers(kube)
    assert guarded["later"] == ["gpu.cozystack.io/device"]
    assert sorted(guarded["waiting"]) == ["a.example/b", "gpu.cozystack.io/device"]
