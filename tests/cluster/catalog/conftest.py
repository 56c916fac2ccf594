"""A control plane with the GPU kinds, the product's own client for it, and its catalog."""

from collections.abc import AsyncIterator, Awaitable, Callable

import gpukinds
import kubevirt
import pytest
from controlplane.plane import ControlPlane
from controlplane.versions import NEWEST
from sharing import ByVersion

from cluster.api import Api
from cluster.catalog import ClusterCatalog
from cluster.connect import connect


@pytest.fixture(scope="session")
def gpu_planes(new_plane: Callable[..., ControlPlane]) -> Callable[[str], ControlPlane]:
    """The control plane of a version with the GPU kinds; the first who asks starts it."""
    crds = [*kubevirt.CRDS, *gpukinds.CRDS]
    return ByVersion(lambda version: new_plane(version=version, crds=crds), stop=ControlPlane.stop)


@pytest.fixture(scope="session", params=[NEWEST])
def plane(request: pytest.FixtureRequest, gpu_planes: Callable[[str], ControlPlane]) -> ControlPlane:
    """The control plane of these tests, of the newest version unless a test asks for others."""
    return gpu_planes(request.param)


@pytest.fixture
async def api(plane: ControlPlane) -> AsyncIterator[Api]:
    api = await connect(kubeconfig=plane.kubeconfig())
    yield api
    await api.close()


@pytest.fixture
async def release(make_namespace: Callable[..., Awaitable[str]]) -> str:
    """The namespace of the release, where the settings are."""
    return await make_namespace(tenant=False)


@pytest.fixture
async def catalog(api: Api, release: str) -> AsyncIterator[ClusterCatalog]:
    async with ClusterCatalog.of(api, namespace=release) as catalog:
        await catalog.wait_synced(10)
        yield catalog
