"""What happens in the cluster is in memory soon after."""

from collections.abc import Callable
from typing import TypeVar

import pytest
from actors import Tenant
from controlplane.client import Client
from controlplane.versions import NEWEST, OLDEST
from gpukinds import gpu_class, gpu_device, pod, settings, vmi
from waiting import eventually

from cluster.catalog import ClusterCatalog

T = TypeVar("T")

both_versions = pytest.mark.parametrize("plane", [NEWEST, OLDEST], indirect=True)


async def soon(look: Callable[[], T]) -> T:
    async def looked() -> T:
        return look()

    return await eventually(looked, seconds=5, every=0.01)


@both_versions
async def test_what_is_created_changed_and_deleted_is_in_memory(
    catalog: ClusterCatalog, kube: Client, tenant: Tenant, release: str
) -> None:
    namespace = tenant.namespace
    await kube.create(gpu_class())
    await kube.create(settings(release, "nvidia.com/retired"))
    device = await kube.create(gpu_device(namespace, "my-gpu"))
    machine = await kube.create(vmi(namespace, "train", device="my-gpu"))
    await kube.create(pod(namespace, "virt-launcher-train", owner=machine))
    await kube.create(pod(namespace, "web", resource=""))
    uid = machine["metadata"]["uid"]

    await soon(lambda: catalog.pods(namespace, uid))
    await soon(lambda: catalog.offer.settings)
    assert catalog.synced
    assert catalog.offer.names == {"nvidia.com/h200", "nvidia.com/retired"}
    found = catalog.device(namespace, "my-gpu")
    assert found is not None
    assert found.uid == device["metadata"]["uid"]
    assert [referrer.uid for referrer in catalog.referrers(namespace, "my-gpu")] == [uid]
    assert [found.name for found in catalog.pods(namespace, uid)] == ["virt-launcher-train"]
    assert [found.name for found in catalog.memory.pods.of(namespace)] == ["virt-launcher-train"]

    await kube.patch(machine, {"metadata": {"labels": None}})
    await soon(lambda: not catalog.referrers(namespace, "my-gpu"))
    assert catalog.vmi(namespace, "train") is not None

    await kube.delete(device)
    await kube.delete(gpu_class())
    await soon(lambda: catalog.device(namespace, "my-gpu") is None)
    await soon(lambda: catalog.offer.names == {"nvidia.com/retired"})
