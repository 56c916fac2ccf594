"""Memory is right again soon after whatever happens to the API server or to the way there."""

import asyncio
import time
from collections.abc import Callable

import pytest
from actors import Tenant
from controlplane.client import Client
from controlplane.plane import ControlPlane
from filler import fill, metadata
from gpukinds import GROUP, gpu_device
from reach import through_proxy
from structlog.testing import capture_logs
from structural import TEXT, crd, fields
from waiting import eventually

from cluster.api import Api
from cluster.catalog import ClusterCatalog
from cluster.connect import connect
from cluster.kinds import Kind
from cluster.table import Table
from cluster.watch import Watch
from gpu.errors import CatalogError
from gpu.template import DeviceTemplate

RIGHT_AGAIN = 20.0
"""Seconds within which memory is right again once the API server is ready, where other tests take the processor. Five
are enough where they leave some: see test_survival.py."""


async def within(seconds: float, look: Callable[[], object]) -> float:
    """Wait until it is so; how long that took."""
    began = time.monotonic()

    async def looked() -> bool:
        return bool(look())

    await eventually(looked, seconds=seconds, every=0.01)
    return time.monotonic() - began


async def test_an_api_server_that_was_killed_and_restarted_on_a_compacted_store(
    catalog: ClusterCatalog, plane: ControlPlane, kube: Client, tenant: Tenant
) -> None:
    namespace = tenant.namespace
    for name in ("stays", "goes"):
        await kube.create(gpu_device(namespace, name))
    await within(5, lambda: len(catalog.devices(namespace)) == 2)
    with capture_logs() as logs:
        await asyncio.to_thread(plane.kill_apiserver)
        with pytest.raises(CatalogError):
            await catalog.fresh_device(namespace, "stays")
        await asyncio.sleep(1)
        comes = {**gpu_device(namespace, "comes"), "metadata": metadata(namespace, "comes")}
        await fill(plane.etcd_url, [(f"{GROUP}/gpudevices/{namespace}/comes", comes)])
        await plane.compact_etcd()
        assert catalog.device(namespace, "stays") is not None
        await asyncio.to_thread(plane.start_apiserver)

        took = await within(RIGHT_AGAIN, lambda: catalog.device(namespace, "comes"))
        await kube.delete(gpu_device(namespace, "goes"))
        await within(RIGHT_AGAIN, lambda: catalog.device(namespace, "goes") is None)
        await within(RIGHT_AGAIN, lambda: not any(watch.problem for watch in catalog.watches))

    print(f"right again after {took:.2f} s")
    assert catalog.synced
    told = [line["event"] for line in logs]
    assert told.count("watch lost, memory may be out of date") == len(catalog.watches)
    assert told.count("watch back") == len(catalog.watches)


async def test_cut_connections_lose_nothing_and_read_nothing_twice(
    plane: ControlPlane, kube: Client, tenant: Tenant, release: str
) -> None:
    namespace = tenant.namespace
    async with (
        through_proxy(plane) as (proxy, api),
        ClusterCatalog.of(api, namespace=release) as catalog,
    ):
        await catalog.wait_synced(20)
        for number in range(30):
            await kube.create(gpu_device(namespace, f"gpu-{number}"))
            if number % 3 == 0:
                await kube.delete(gpu_device(namespace, f"gpu-{number}"))
            if number % 5 == 0:
                proxy.cut()

        left = {f"gpu-{number}" for number in range(30) if number % 3}
        await within(RIGHT_AGAIN, lambda: {device.name for device in catalog.devices(namespace)} == left)
        assert [watch.lists for watch in catalog.watches] == [1] * len(catalog.watches)
        assert proxy.opened > len(catalog.watches)


async def test_a_connection_that_is_dead_without_a_word_is_found_out(
    plane: ControlPlane, kube: Client, tenant: Tenant, release: str
) -> None:
    namespace = tenant.namespace
    async with through_proxy(plane) as (proxy, api):
        catalog = ClusterCatalog(api, namespace=release, silence=2)
        catalog.start()
        await catalog.wait_synced(20)
        proxy.freeze()
        await kube.create(gpu_device(namespace, "my-gpu"))

        await within(10, lambda: catalog.device(namespace, "my-gpu"))
        await catalog.stop()


async def test_while_the_api_server_can_not_be_reached_memory_is_not_relied_on_for_long(
    plane: ControlPlane, release: str
) -> None:
    async with through_proxy(plane) as (proxy, api):
        catalog = ClusterCatalog(api, namespace=release, stale=2)
        catalog.start()
        await catalog.wait_synced(20)
        assert catalog.synced

        await proxy.shut()
        await asyncio.sleep(0.5)
        assert catalog.synced
        await within(5, lambda: not catalog.synced)
        assert catalog.waiting().startswith("not heard of for 2 s: ")

        await proxy.open()
        await within(RIGHT_AGAIN, lambda: catalog.synced)
        await catalog.stop()


async def test_rights_that_come_later(plane: ControlPlane, kube: Client, release: str) -> None:
    user = f"{release}-user"
    api = await connect(kubeconfig=plane.kubeconfig(user))
    async with ClusterCatalog.of(api, namespace=release) as catalog:
        with pytest.raises(CatalogError, match=f'pods .*is forbidden: User "{user}" cannot list resource "pods"'):
            await catalog.wait_synced(2)
        assert not catalog.synced
        assert f'User "{user}" cannot list resource "pods"' in catalog.waiting()
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }
        await kube.create(binding)

        await catalog.wait_synced(RIGHT_AGAIN)
        assert catalog.waiting() == ""
        await kube.delete(binding)
    await api.close()


async def test_a_kind_that_comes_later_goes_and_comes_again(api: Api, kube: Client, tenant: Tenant) -> None:
    namespace = tenant.namespace
    kind = Kind("example.org", "v1", "things", "Thing")
    definition = crd(kind.group, kind.name, {"v1": {"spec": fields(size=TEXT)}})
    table = Table("Thing", lambda obj: str(obj["metadata"]["name"]))
    watch = Watch(api, kind, table)
    task = asyncio.create_task(watch.run())

    async def has(name: str) -> None:
        thing = {"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"namespace": namespace, "name": name}}

        async def created() -> bool:
            return bool(await kube.create(thing))

        await eventually(created)
        await within(RIGHT_AGAIN, lambda: table.of(namespace) == [name])

    await within(5, watch.filled.is_set)
    await kube.create(definition)
    await has("first")
    await kube.delete(definition)
    await within(10, lambda: not table.of(namespace))

    async def created_again() -> bool:
        return bool(await kube.create(definition))

    await eventually(created_again)
    await has("second")
    await kube.delete(definition)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_changes_and_own_writes_under_cuts_end_as_the_api_server_has_them(
    plane: ControlPlane, kube: Client, tenant: Tenant, release: str
) -> None:
    """A generator writes and deletes, we build, connections break all the while: in the end both say the same."""
    namespace, order = tenant.namespace, DeviceTemplate("h200", 1)
    async with (
        through_proxy(plane) as (proxy, api),
        ClusterCatalog.of(api, namespace=release) as catalog,
    ):
        await catalog.wait_synced(20)
        built = 0
        for number in range(60):
            if number % 7 == 3:
                proxy.cut()
            try:
                await catalog.build_device(namespace, f"gpu-{number}", order)
                built += 1
            except CatalogError:
                continue
            if number % 2:
                await kube.delete(gpu_device(namespace, f"gpu-{number}"))

        async def agree() -> bool:
            stored = await kube.list(f"{GROUP}/v1alpha1", "GPUDevice", namespace)
            truth = {obj["metadata"]["name"]: obj["metadata"]["resourceVersion"] for obj in stored}
            return {device.name: device.resource_version for device in catalog.devices(namespace)} == truth

        await eventually(agree, seconds=RIGHT_AGAIN)
        assert built > 30
