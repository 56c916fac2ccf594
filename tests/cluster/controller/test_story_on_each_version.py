"""What the controller is for, from the order to the release, on the newest and the oldest version that it supports."""

import asyncio
from collections.abc import Callable, Iterator
from typing import NamedTuple

import kubevirt
import neighbours
import pytest
from actors import Tenant
from controlled import SHORT, TEMPLATE_KEPT, Controller
from controlplane.client import Client, ref
from controlplane.plane import ControlPlane
from controlplane.versions import NEWEST, OLDEST
from gpukinds import API_VERSION, GROUP
from hooks import jobs_run
from installed import RELEASE, Installed
from machines import DEVICE_REFERENCE, device, launcher, migration, vm
from pooled import Pool, pinned
from refusals import known, refused
from waiting import eventually, exists, gone

RECORD_KINDS = [crd for crd in neighbours.CRDS if crd["spec"]["group"] == "cozystack.io"]
OTHERS = [crd for crd in [*kubevirt.CRDS, *neighbours.CRDS] if crd not in RECORD_KINDS]


class Place(NamedTuple):
    """An installation, and a controller of it that runs."""

    installed: Installed
    controller: Controller


@pytest.fixture(scope="module", params=[NEWEST, OLDEST])
def place(request: pytest.FixtureRequest, new_plane: Callable[..., ControlPlane]) -> Iterator[Place]:
    """That of the other tests here, or one of the oldest version with a controller of its own, and at first without the
    kinds of usage records."""
    if request.param == NEWEST:
        yield Place(request.getfixturevalue("home"), request.getfixturevalue("controllers")[0])
        return
    installed = Installed(new_plane(version=OLDEST, crds=OTHERS))
    installed.install()
    installed.plane.restart_controller_manager()
    controller = Controller(installed, *SHORT)
    controller.start(ready=False)
    installed.start()
    controller.wait()
    yield Place(installed, controller)
    controller.kill()
    installed.stop()
    installed.plane.stop()


@pytest.fixture(scope="module")
def plane(place: Place) -> ControlPlane:
    return place.installed.plane


@pytest.fixture
async def pool(kube: Client, tenant: Tenant, plane: ControlPlane) -> Pool:
    """A class with a node of one GPU, and the kinds of usage records.

    Where those are new, devices that are held already get their records: none waits for them.
    """
    pool = Pool(kube, tenant)
    await pool.offer()
    await pool.node()
    new = [kind for kind in RECORD_KINDS if not await exists(kube, kind)]
    if new:
        await pool.order("early")
        await pool.becomes("early", phase="Held")
        for kind in new:
            await kube.create(kind)
        await asyncio.to_thread(plane.wait_for_crds)
        record = ref("cozystack.io/v1alpha1", "Workload", "gpu-early", pool.namespace)

        async def recorded() -> bool:
            try:
                return await exists(kube, record)
            except LookupError:  # The API server has not told of the kind yet.
                return False

        await eventually(recorded)
        await pool.tenant.kube.delete(pool.device("early"))
        await gone(kube, record)
    return pool


async def test_an_order_is_held_used_moved_and_given_back(kube: Client, pool: Pool) -> None:
    await pool.order()
    held = await pool.becomes(phase="Held", nodeName=pool.node_name("a"), resourceName=pool.resource)
    record = ref("cozystack.io/v1alpha1", "Workload", "gpu-my-gpu", pool.namespace)
    await eventually(lambda: exists(kube, record))
    await pool.order("next")
    await pool.becomes("next", reason="NoCapacity")

    machine = await pool.machine(refers_to="my-gpu")
    rival = await pool.machine("rival", refers_to="next")
    await pool.becomes(phase="InUse", vm=machine["metadata"]["uid"], heldAt=held["heldAt"])
    refusal = await refused(pool.virt_controller.create(launcher(rival)))
    assert "NoCapacity" in refusal.said
    assert pinned(await pool.runs(machine)) == pool.node_name("a")

    await kube.patch(machine, {"status": {"phase": "Running", "nodeName": pool.node_name("a")}})
    target = await pool.node("b")
    await pool.becomes("next", phase="InUse", nodeName=target)
    move = await pool.virt_controller.create(migration(machine))
    await pool.becomes(phase="InUse", migration=None)
    third = await pool.node("c")
    await pool.becomes(migration={"uid": move["metadata"]["uid"], "nodeName": third})
    assert pinned(await pool.runs(machine, migration=move["metadata"]["uid"])) == third
    await kube.patch(machine, {"status": {"nodeName": third}})
    await pool.becomes(phase="InUse", nodeName=third)
    await pool.virt_controller.patch(move, {"status": {"phase": "Succeeded"}}, subresource="status")
    await pool.becomes(phase="InUse", nodeName=third, migration=None)

    await pool.tenant.kube.delete(pool.device())
    await pool.becomes(phase="Releasing", nodeName=third)
    await pool.virt_controller.delete(machine, propagation="Background")
    await gone(kube, machine)
    assert await exists(kube, pool.device())
    for pod in await kube.list("v1", "Pod", pool.namespace):
        await kube.delete(ref("v1", "Pod", pod["metadata"]["name"], pool.namespace), grace=0)
    await gone(kube, pool.device())
    await gone(kube, record)


async def test_a_template_orders_keeps_and_gives_back(kube: Client, pool: Pool) -> None:
    orders = {"className": pool.name, "count": 1}
    owner = await pool.tenant.kube.create(vm(pool.namespace, orders=orders))
    first = await pool.machine(owner=owner, orders=orders)
    name = first["metadata"]["labels"][DEVICE_REFERENCE]
    await pool.becomes(name, phase="InUse", vm=first["metadata"]["uid"])
    await pool.virt_controller.delete(first)
    await gone(kube, first)

    second = await pool.machine(owner=owner, orders=orders)

    assert second["metadata"]["labels"][DEVICE_REFERENCE] == name
    await pool.becomes(name, phase="InUse", vm=second["metadata"]["uid"])
    await pool.virt_controller.delete(second)
    await gone(kube, pool.device(name), seconds=TEMPLATE_KEPT + 5)


async def test_names_stay_published_and_a_class_goes_with_its_last_device(kube: Client, pool: Pool) -> None:
    settings = ref("v1", "ConfigMap", "gpu-settings", "gpu-system")
    offer = ref(API_VERSION, "GPUClass", pool.name)
    await pool.order()
    await pool.becomes(phase="Held")

    async def whole() -> bool:
        return pool.resource in (await kube.get(settings))["data"]["resourceNames"].split(",")

    await kube.delete(settings)
    await eventually(whole, seconds=5)
    await kube.delete(offer)
    late = device(pool.namespace, "late", of=pool.name)
    await known(lambda: pool.tenant.kube.create(late, dry_run=True))
    refusal = await refused(pool.order("late"))
    assert "being deleted" in refusal.said
    assert await exists(kube, offer)
    await pool.tenant.kube.delete(pool.device())
    await gone(kube, offer)
    await eventually(whole, seconds=5)


@pytest.mark.parametrize("place", [OLDEST], indirect=True)
async def test_when_it_leaves_while_the_controller_runs_everything_can_be_deleted(
    kube: Client, pool: Pool, place: Place
) -> None:
    """Switched off, switched on again, and uninstalled, each time with a GPU that is used and one that is held."""
    installed, controller = place
    await pool.node("b")
    for name in ("used", "held", "waiting"):
        await pool.order(name)
    machine = await pool.machine(refers_to="used")
    await pool.becomes("used", phase="InUse")
    pod = await pool.runs(machine)
    await pool.becomes("held", phase="Held")
    await pool.becomes("waiting", reason="NoCapacity")

    async with jobs_run(kube, installed.plane, installed.namespace) as said:
        await asyncio.to_thread(installed.install, {"gpus": {"enabled": False}})
    assert "released" in said[0]
    assert not await guarded(kube)
    assert not controller.leads
    await kube.delete(pool.device("held"))
    await gone(kube, pool.device("held"), seconds=5)

    # Its Deployment is gone by then, and what comes has a service account of its own.
    await asyncio.to_thread(controller.kill)
    await asyncio.to_thread(installed.install)
    await asyncio.to_thread(controller.start)
    await pool.becomes("waiting", phase="Held", seconds=20)
    await pool.becomes("used", phase="InUse")

    async with jobs_run(kube, installed.plane, installed.namespace) as said:
        where = ("--namespace", installed.namespace)
        await asyncio.to_thread(installed.plane.helm, "uninstall", RELEASE, *where)
    assert "released" in said[0]
    assert not await guarded(kube)
    # As its kubelet would.
    await kube.delete(pod, grace=0)
    namespace = ref("v1", "Namespace", pool.namespace)
    await kube.delete(namespace)
    for name in ("gpuclasses", "gpudevices"):
        definition = ref("apiextensions.k8s.io/v1", "CustomResourceDefinition", f"{name}.{GROUP}")
        await kube.delete(definition)
        await gone(kube, definition)
    await gone(kube, namespace)


async def guarded(kube: Client) -> list[str]:
    """The devices and classes that have a finalizer."""
    return [
        one["metadata"]["name"]
        for kind in ("GPUDevice", "GPUClass")
        for one in await kube.list(API_VERSION, kind)
        if one["metadata"].get("finalizers")
    ]
