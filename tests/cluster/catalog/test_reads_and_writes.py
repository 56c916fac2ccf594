"""Fresh reads answer from the API itself; devices are built and taken over through it."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from actors import Tenant
from controlplane.client import Client
from gpukinds import gpu_class, gpu_device, pod, settings, vmi
from waiting import eventually

from cluster.api import Api
from cluster.catalog import ClusterCatalog
from gpu.errors import BuildRefused, CatalogError, Changed, NameTaken
from gpu.template import DeviceTemplate

ORDER = DeviceTemplate("h200", 1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOSTILE = ["", ".", "..", "a/b", "a?b=c", "a#b", "a%2fb", "../../nodes", "a b", "A\n", "ü", "x" * 300, "a,b=c", "-a"]


@pytest.fixture
def blind(api: Api, release: str) -> ClusterCatalog:
    """A catalog that watches nothing, so that whatever it knows was read afresh."""
    return ClusterCatalog(api, namespace=release)


async def test_fresh_reads_see_what_was_written_a_moment_ago(
    blind: ClusterCatalog, kube: Client, tenant: Tenant, release: str
) -> None:
    namespace = tenant.namespace
    await kube.create(gpu_class("fresh"))
    await kube.create(settings(release, "nvidia.com/retired"))
    await kube.create(gpu_device(namespace, "my-gpu"))
    machine = await kube.create(vmi(namespace, "train", device="my-gpu"))
    other = await kube.create(vmi(namespace, "other"))
    uid = machine["metadata"]["uid"]
    await kube.create(pod(namespace, "launcher", owner=machine))
    await kube.create(pod(namespace, "of-another", owner=other))
    await kube.create(pod(namespace, "without-gpu", owner=machine, resource=""))
    labelled = pod(namespace, "labelled-only")
    labelled["metadata"]["labels"] = {"kubevirt.io/created-by": uid, "gpu.cozystack.io/device-reference": "my-gpu"}
    await kube.create(labelled)
    move = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"namespace": namespace, "name": "move"},
        "spec": {"vmiName": "train"},
    }
    migration = await kube.create(move)

    offer, found = await blind.fresh_offer(), await blind.fresh_device(namespace, "my-gpu")
    assert {"nvidia.com/fresh", "nvidia.com/retired"} <= offer.names
    assert found is not None
    assert found.class_name == "h200"
    assert [device.name for device in await blind.fresh_devices(namespace)] == ["my-gpu"]
    seen = await blind.fresh_vmi(namespace, "train")
    assert seen is not None
    assert seen.uid == uid
    assert {one.name for one in await blind.fresh_vmis(namespace)} == {"train", "other"}
    assert [one.name for one in await blind.fresh_referrers(namespace, "my-gpu")] == ["train"]
    assert [one.name for one in await blind.fresh_pods(namespace, uid)] == ["launcher"]
    moving = await blind.fresh_migration(namespace, migration["metadata"]["uid"])
    assert moving is not None
    assert moving.name == "move"
    await kube.delete(gpu_class("fresh"))


async def test_what_is_not_there_is_none(blind: ClusterCatalog, tenant: Tenant) -> None:
    namespace = tenant.namespace

    assert (await blind.fresh_offer()).settings is None
    assert await blind.fresh_device(namespace, "none") is None
    assert await blind.fresh_vmi(namespace, "none") is None
    assert await blind.fresh_referrers(namespace, "none") == []
    assert await blind.fresh_pods(namespace, "none") == []
    assert await blind.fresh_migration(namespace, "none") is None
    assert await blind.claimed_classes(namespace, claim="none", template=None) == frozenset()
    assert await blind.fresh_devices("no-such-namespace") == []


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_name_that_no_object_can_have_is_the_name_of_none(
    blind: ClusterCatalog, tenant: Tenant, name: str
) -> None:
    namespace = tenant.namespace

    assert await blind.fresh_device(namespace, name) is None
    assert await blind.fresh_vmi(namespace, name) is None
    assert list(await blind.fresh_referrers(namespace, name)) == []
    assert await blind.claimed_classes(namespace, claim=name, template=None) == frozenset()
    assert await blind.claimed_classes(namespace, claim=None, template=name) == frozenset()
    assert await blind.fresh_device(name, "my-gpu") is None
    assert await blind.fresh_devices(name) == []
    assert await blind.fresh_pods(name, "uid") == []


def claim(kind: str, namespace: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


async def test_claims_and_templates_tell_the_classes_that_they_ask_for(
    blind: ClusterCatalog, kube: Client, tenant: Tenant
) -> None:
    namespace = tenant.namespace
    one = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.example.com"}}]}}
    choice = [{"name": "a", "deviceClassName": "a.example.com"}, {"name": "b", "deviceClassName": "b.example.com"}]
    several = {"devices": {"requests": [{"name": "r", "firstAvailable": choice}]}}
    await kube.create(claim("ResourceClaim", namespace, "one", one))
    await kube.create(claim("ResourceClaimTemplate", namespace, "several", {"spec": several}))

    assert await blind.claimed_classes(namespace, claim="one", template=None) == {"gpu.example.com"}
    assert await blind.claimed_classes(namespace, claim=None, template="several") == {"a.example.com", "b.example.com"}


async def test_an_object_that_can_not_be_read_is_told_with_its_field(
    blind: ClusterCatalog, kube: Client, tenant: Tenant
) -> None:
    bad = gpu_device(tenant.namespace, "bad")
    bad["spec"]["count"] = 99
    await kube.create(bad)

    with pytest.raises(CatalogError, match=r"GPUDevice 'bad' can't be read: spec\.count: must be from 1 to 16"):
        await blind.fresh_device(tenant.namespace, "bad")


async def test_an_api_server_that_is_not_there_is_no_answer(tenant: Tenant) -> None:
    from kubernetes_asyncio.client import Configuration

    api = Api(Configuration(host="http://127.0.0.1:9"))
    with pytest.raises(CatalogError):
        await ClusterCatalog(api, namespace="x").fresh_device(tenant.namespace, "my-gpu")
    await api.close()


async def test_a_device_that_is_built_is_in_memory_at_once_and_of_the_template(
    catalog: ClusterCatalog, kube: Client, tenant: Tenant
) -> None:
    built = await catalog.build_device(tenant.namespace, "train-1", ORDER)
    assert catalog.device(tenant.namespace, "train-1") == built

    stored = await kube.get(gpu_device(tenant.namespace, "train-1"))
    assert stored["metadata"]["labels"] == {"gpu.cozystack.io/template-device": "true"}
    assert stored["spec"] == {"className": "h200", "count": 1}
    assert built.uid == stored["metadata"]["uid"]


async def test_a_built_device_that_is_deleted_does_not_come_back(
    catalog: ClusterCatalog, kube: Client, tenant: Tenant
) -> None:
    for number in range(20):
        name = f"train-{number}"
        building = asyncio.create_task(catalog.build_device(tenant.namespace, name, ORDER))

        async def deleted(name: str = name) -> bool:
            await kube.delete(gpu_device(tenant.namespace, name))
            return True

        await eventually(deleted, every=0)
        await building

    async def empty() -> bool:
        return not catalog.devices(tenant.namespace)

    await eventually(empty)
    await asyncio.sleep(0.5)
    assert not catalog.devices(tenant.namespace)


async def test_a_name_that_is_taken_is_told(catalog: ClusterCatalog, tenant: Tenant) -> None:
    await catalog.build_device(tenant.namespace, "train-1", ORDER)

    with pytest.raises(NameTaken, match='"train-1" already exists'):
        await catalog.build_device(tenant.namespace, "train-1", ORDER)


async def test_a_quota_s_refusal_is_passed_on(catalog: ClusterCatalog, kube: Client, tenant: Tenant) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"namespace": tenant.namespace, "name": "gpus"},
        "spec": {"hard": {"count/gpudevices.gpu.cozystack.io": "1"}},
    }
    await kube.create(quota)

    async def counts() -> bool:
        return bool((await kube.get(quota)).get("status", {}).get("used"))

    await eventually(counts, seconds=40)
    await catalog.build_device(tenant.namespace, "one", ORDER)

    with pytest.raises(BuildRefused) as refused:
        await catalog.build_device(tenant.namespace, "two", ORDER)
    assert (refused.value.code, refused.value.reason) == (403, "Forbidden")
    assert "exceeded quota: gpus" in str(refused.value)


async def test_a_device_is_taken_over_by_a_write_on_it(catalog: ClusterCatalog, kube: Client, tenant: Tenant) -> None:
    built = await catalog.build_device(tenant.namespace, "train-1", ORDER)

    taken = await catalog.take_over(built, at=NOW)

    stored = await kube.get(gpu_device(tenant.namespace, "train-1"))
    assert stored["metadata"]["annotations"] == {"gpu.cozystack.io/taken-over": NOW.isoformat()}
    assert taken.resource_version == stored["metadata"]["resourceVersion"] != built.resource_version
    assert catalog.device(tenant.namespace, "train-1") == taken


async def test_a_device_that_was_changed_or_deleted_since_is_not_taken_over(
    catalog: ClusterCatalog, kube: Client, tenant: Tenant
) -> None:
    built = await catalog.build_device(tenant.namespace, "train-1", ORDER)
    device = gpu_device(tenant.namespace, "train-1")

    await kube.patch(device, {"metadata": {"annotations": {"a": "b"}}})
    with pytest.raises(Changed):
        await catalog.take_over(built, at=NOW)

    await kube.delete(device)
    with pytest.raises(Changed):
        await catalog.take_over(built, at=NOW)
