"""An installation with its service and two replicas of the controller, on a control plane of the newest version."""

import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

import pytest
from actors import Tenant
from controlled import SHORT, Controller
from controlplane.client import Client
from controlplane.plane import ControlPlane
from controlplane.versions import NEWEST
from installed import Installed
from outages import new_tenant
from pooled import Pool

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def home(new_plane: Callable[..., ControlPlane]) -> Iterator[Installed]:
    """The chart and its service; the controller is not started yet."""
    installed = Installed(new_plane(version=NEWEST, audit=True))
    installed.install()
    installed.plane.restart_controller_manager()
    installed.start()
    yield installed
    installed.stop()


@pytest.fixture(scope="session")
def controllers(home: Installed) -> Iterator[Sequence[Controller]]:
    """Two replicas that run, whatever a test does to them: see ``both``."""
    found = [Controller(home, *SHORT), Controller(home, *SHORT)]
    _start(found)
    yield found
    for one in found:
        one.kill()


@pytest.fixture
def both(controllers: Sequence[Controller]) -> Iterator[Sequence[Controller]]:
    """Two replicas that a test may kill: afterwards both run again."""
    yield controllers
    _start([one for one in controllers if one.program is None])


def _start(controllers: Sequence[Controller]) -> None:
    for one in controllers:
        one.start(ready=False)
    for one in controllers:
        one.wait()


@pytest.fixture(scope="session")
def plane(home: Installed) -> ControlPlane:
    return home.plane


@pytest.fixture
async def kube(plane: ControlPlane) -> AsyncIterator[Client]:
    async with plane.client() as client:
        yield client


@pytest.fixture
async def tenant(kube: Client, request: pytest.FixtureRequest) -> Tenant:
    """A tenant. Its namespace stays: deleting one takes hundreds of calls, and the plane goes anyway."""
    return await new_tenant(kube, f"tenant-{next(_numbers)}", test=request.node.name)


@pytest.fixture
async def pool(kube: Client, tenant: Tenant, controllers: Sequence[Controller]) -> Pool:
    """A class of the test's own with one node of one GPU, while both controllers run."""
    assert controllers
    pool = Pool(kube, tenant)
    await pool.offer()
    await pool.node()
    return pool
