"""While the service is down, and on a first install before it has ever been up.

Tenants' GPU VMIs and GPU pods are refused then: raw names by the policies as ever, and what the service would have to
be asked about for want of it. Nothing else waits for it, and a namespace can go.
"""

import asyncio
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import pytest
from actors import HOST_LABEL, VIRT_HANDLER, Tenant, make_node
from controlplane.client import Client, Object, ref
from controlplane.versions import NEWEST
from gpukinds import API_VERSION, H200
from installed import RELEASE, Installed
from machines import device, launcher, plain_pod, vm, vmi
from outages import (
    BY_RAW_NAMES,
    fresh,
    lived_in,
    made,
    pods_with_gpus,
    promptly,
    tenants_namespace,
    vmis_with_gpus,
)
from policies.force import until_taken_up
from refusals import Calls, refused
from waiting import eventually, exists, gone

POLICY_OF_PODS = "pod-raw-names.gpu.cozystack.io"
KVM = {"devices.kubevirt.io/kvm": "1", "cpu": "1", "memory": "1Gi"}


class Outage(NamedTuple):
    """What was there before the service went: two namespaces of tenants, one of which is deleted as it went."""

    how: str
    home: Mapping[str, Object]
    leaving: Mapping[str, Object]
    finalizers: bool

    @property
    def namespace(self) -> str:
        return str(self.home["device"]["metadata"]["namespace"])

    @property
    def left(self) -> Object:
        """The namespace that is deleted."""
        return ref("v1", "Namespace", self.leaving["device"]["metadata"]["namespace"])


@pytest.fixture(scope="module", params=["stopped", "never started"])
def outage(request: pytest.FixtureRequest, installed: Installed) -> Iterator[Outage]:
    """The service is down within, and back afterwards."""
    how = request.param

    # What stays behind for 8 s more (the namespace controller's patience with finalizers) is seen once.
    finalizers = how == "stopped" and installed.plane.version == NEWEST

    async def prepared() -> Outage:
        async with installed.plane.client() as kube:
            name = f"outage-{how.replace(' ', '-')}"
            left = await tenants_namespace(kube, f"{name}-leaving")
            home = await lived_in(kube, await tenants_namespace(kube, name), finalizers=True)
            leaving = await lived_in(kube, left, finalizers=finalizers)
            installed.stop()
            if how == "never started":
                # Without its hook, a Job that no kubelet would run.
                installed.plane.helm("uninstall", RELEASE, "--namespace", installed.namespace, "--no-hooks")
                installed.install()
                await until_taken_up(kube)
            await kube.delete(ref("v1", "Namespace", left))
            return Outage(how, home, leaving, finalizers)

    with ThreadPoolExecutor(1) as thread:
        yield thread.submit(asyncio.run, prepared()).result()
    if not installed.is_ready():
        installed.start()


async def test_gpu_vmis_are_refused(installed: Installed, virt_controller: Client, outage: Outage) -> None:
    for road, machine in vmis_with_gpus(outage.namespace).items():
        refusal = await refused(virt_controller.create(machine))

        if road in BY_RAW_NAMES:
            assert refusal[:3] == (403, "Forbidden", "vmi-raw-names.gpu.cozystack.io"), road
            continue
        path, webhook = ("mutate", "") if road in {"label", "annotation"} else ("validate", "create.")
        assert refusal[:2] == (500, "InternalError"), road
        assert refusal.said.startswith(
            "Internal error occurred: failed calling webhook "
            f'"{webhook}virtualmachineinstances.gpu.cozystack.io": failed to call webhook: '
            f'Post "{installed.url}/{path}?timeout=5s": '
        )


async def test_gpu_pods_are_refused(tenant: Tenant, virt_controller: Client, outage: Outage) -> None:
    for place, pod in pods_with_gpus(outage.namespace, outage.home["machine"]).items():
        refusal = await refused(virt_controller.create(pod))

        if place in BY_RAW_NAMES:
            assert refusal[:3] == (403, "Forbidden", POLICY_OF_PODS), place
            continue
        assert refusal[:2] == (500, "InternalError"), place
        assert 'failed calling webhook "pods.gpu.cozystack.io"' in refusal.said
    own = await refused(tenant.kube.create(plain_pod(tenant.namespace, limits={H200: "1"})))
    assert own[:3] == (403, "Forbidden", POLICY_OF_PODS)


async def test_orders_are_refused(tenant: Tenant, outage: Outage) -> None:  # noqa: ARG001
    refusal = await refused(tenant.kube.create(device(tenant.namespace)))

    assert 'failed calling webhook "gpudevices.gpu.cozystack.io"' in refusal.said


async def test_plain_vms_and_pods_work(
    tenant: Tenant, virt_controller: Client, virt_handler: Client, outage: Outage, calls: Calls
) -> None:
    namespace = tenant.namespace
    async with calls():
        await promptly(partial(made, tenant.kube, plain_pod, namespace, limits={"cpu": "1"}))
        await promptly(partial(made, tenant.kube, vmi, namespace))
        machine = await promptly(partial(made, tenant.kube, vm, namespace))
        running = await promptly(partial(made, virt_controller, vmi, namespace, owner=machine))
        await promptly(lambda: virt_controller.create({**launcher(running), "spec": plain_pod("", limits=KVM)["spec"]}))
        change = {"status": {"phase": "Running"}}
        await promptly(lambda: virt_handler.patch(running, change))
        await promptly(lambda: tenant.kube.delete(running, dry_run=True))
        await tenant.kube.delete(running)
    assert outage.how


async def test_a_vm_with_gpus_is_let_in_without_a_word(
    tenant: Tenant,
    outage: Outage,  # noqa: ARG001
) -> None:
    """What is written there starts nothing yet, and its warnings are no reason to hold anybody up."""
    created = await promptly(partial(made, tenant.kube, vm, tenant.namespace, refers_to="my-gpu"))

    assert created.warnings == []


async def test_the_platform_does_not_wait_for_it(
    kube: Client,
    installed: Installed,
    outage: Outage,
    calls: Calls,
) -> None:
    """Not even where a namespace of its own has a tenant's label."""
    own = ("kube-system", "kubevirt", installed.namespace)
    for namespace in own:
        await kube.patch(ref("v1", "Namespace", namespace), {"metadata": {"labels": {HOST_LABEL: "a"}}})
    node = f"node-{outage.how.replace(' ', '-')}"
    kubelet = kube.as_(f"system:node:{node}", ["system:nodes", "system:masters"])
    async with calls():
        await make_node(kube, node, allocatable={H200: "8"})
        status = {"status": {"allocatable": {H200: "7"}}}
        await promptly(lambda: kubelet.patch(ref("v1", "Node", node), status, subresource="status"))
        heartbeat = await kubelet.create(lease("kube-node-lease", node))
        await promptly(lambda: kubelet.patch(heartbeat, {"spec": {"leaseDurationSeconds": 41}}))
        for namespace in own:
            await promptly(partial(made, kube, lease, namespace))
            await promptly(partial(made, kube, vmi, namespace, refers_to="a"))
            plugin = plain_pod(namespace, "plugin", limits={H200: "1"}, serviceAccountName="default")
            await promptly(partial(kube.create, plugin, dry_run=True))
        await kube.delete(ref("v1", "Node", node))
    for namespace in own:
        await kube.patch(ref("v1", "Namespace", namespace), {"metadata": {"labels": {HOST_LABEL: None}}})


def lease(namespace: str, name: str) -> dict[str, Any]:
    spec = {"holderIdentity": name, "leaseDurationSeconds": 40}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


async def test_a_running_gpu_vm_runs_on_and_stops(kube: Client, outage: Outage, calls: Calls) -> None:
    virt_handler = kube.as_(VIRT_HANDLER)
    machine, pod, order = (outage.home[kind] for kind in ("machine", "pod", "device"))
    async with calls():
        for phase in ("Scheduled", "Running"):
            stored = await kube.get(machine)
            await virt_handler.update({**stored, "status": {"phase": phase}})
        await promptly(lambda: virt_handler.patch(machine, {"status": {"nodeName": "node-a"}}))
        await promptly(lambda: kube.patch(pod, {"status": {"phase": "Running"}}, subresource="status"))
        for obj in (machine, pod, order):
            await promptly(partial(kube.delete, obj, dry_run=True))
        await kube.delete(machine)
        await kube.delete(pod, grace=0)
        await promptly(lambda: kube.patch(order, {"status": {"phase": "Releasing"}}, subresource="status"))
        await kube.delete(order)
        for obj in (machine, order):
            await kube.patch(obj, {"metadata": {"finalizers": None}})
            assert not await exists(kube, obj)


async def test_a_namespace_with_everything_in_it_goes(kube: Client, outage: Outage, virt_controller: Client) -> None:
    """Once those whose finalizers are there took them off, and the kubelet has stopped the pod."""
    if outage.finalizers:
        machine, pod, order = (outage.leaving[kind] for kind in ("machine", "pod", "device"))

        async def deleted(*objects: Object) -> bool:
            return all(["deletionTimestamp" in (await kube.get(obj))["metadata"] for obj in objects])

        # A namespace's pods go before all else (OrderedNamespaceDeletion).
        await eventually(partial(deleted, pod), seconds=30)
        await kube.delete(pod, grace=0)
        await eventually(partial(deleted, machine, order), seconds=30)
        await virt_controller.patch(machine, {"metadata": {"finalizers": None}})
        await kube.patch(order, {"metadata": {"finalizers": None}})
    await gone(kube, outage.left, seconds=40)


async def test_once_it_is_there_they_are_let_in(
    kube: Client, installed: Installed, tenant: Tenant, virt_controller: Client, outage: Outage
) -> None:
    """Nothing has to be done for that; virt-controller tries again by itself."""
    await asyncio.to_thread(installed.start)

    async def starts() -> bool:
        machine = fresh(vmi, tenant.namespace, orders={"className": "h200"})
        return bool((await virt_controller.create(machine))["metadata"]["labels"])

    assert await eventually(starts)
    assert len(await kube.list(API_VERSION, "GPUDevice", tenant.namespace)) == 1
    assert outage.how
