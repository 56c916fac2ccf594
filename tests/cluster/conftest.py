"""Real control planes, as the newest and as the oldest version, with KubeVirt's kinds and its service accounts."""

import hashlib
import itertools
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

import gpukinds
import kubevirt
import neighbours
import pytest
from actors import HOST_LABEL, MakeNamespace, Tenant, admin_binding, install_roles
from controlplane.assets import Assets, assets
from controlplane.client import Client, ref
from controlplane.errors import ControlPlaneError
from controlplane.plane import ControlPlane
from controlplane.versions import NEWEST, OLDEST
from installed import Installed
from sharing import ByVersion, end_unit
from waiting import eventually

CRDS = [*kubevirt.CRDS, *neighbours.CRDS]
_BUILT = pytest.StashKey[Assets | ControlPlaneError]()
_numbers = itertools.count(1)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the programs before the first test: outside its time limit, and where one sees how far it is."""
    asked_for = any("plane_assets" in item.fixturenames for item in _functions(session))
    if not asked_for or session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        try:
            session.config.stash[_BUILT] = assets()
        except ControlPlaneError as error:
            session.config.stash[_BUILT] = error


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """In a worker of pytest-xdist, whose units come one after the other, what a unit shared ends with it."""
    yield
    if hasattr(item.config, "workerinput"):
        end_unit(item.nodeid, nextitem.nodeid if nextitem else None)


def _functions(session: pytest.Session) -> Iterator[pytest.Function]:
    return (item for item in session.items if isinstance(item, pytest.Function))


@pytest.fixture(scope="session")
def plane_assets(pytestconfig: pytest.Config) -> Assets:
    """The programs that a control plane is made of."""
    built = pytestconfig.stash.get(_BUILT, None) or assets()
    if isinstance(built, ControlPlaneError):
        raise built
    return built


@pytest.fixture(scope="session")
def new_plane(plane_assets: Assets, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., ControlPlane]]:
    """Starts a control plane of one's own, with the options of ControlPlane; it is stopped when the tests are over.

    The first of a version and of its kinds keeps what is stored then, and the others start from that: in less than half
    of the processor time.
    """
    planes: list[ControlPlane] = []

    def start(*, version: str = NEWEST, crds: Sequence[Mapping[str, Any]] = CRDS, **options: Any) -> ControlPlane:
        kinds = hashlib.sha256(json.dumps(crds).encode()).hexdigest()[:12]
        kept = shared / f"kept-{version}-{kinds}"
        origin = kept if kept.exists() else None
        directory = tmp_path_factory.mktemp("plane")
        plane = ControlPlane(directory, plane_assets, version=version, crds=crds, origin=origin, **options)
        planes.append(plane)
        plane.start()
        if not origin:
            install_roles(plane)
            plane.keep(kept)
        return plane

    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        # Each worker has a folder of its own in one that they have in common.
        shared = shared.parent
    yield start
    for plane in planes:
        plane.stop()


@pytest.fixture(scope="session")
def planes(new_plane: Callable[..., ControlPlane]) -> Callable[[str], ControlPlane]:
    """The control plane of a version that all tests share; the first who asks starts it."""
    return ByVersion(lambda version: new_plane(version=version, audit=True), stop=ControlPlane.stop)


@pytest.fixture(scope="session", params=[NEWEST, OLDEST])
def plane(request: pytest.FixtureRequest, planes: Callable[[str], ControlPlane]) -> ControlPlane:
    """The shared control plane of each version: a test that asks for it runs on both."""
    return planes(request.param)


@pytest.fixture(scope="session")
def installations(new_plane: Callable[..., ControlPlane]) -> Iterator[Callable[[str], Installed]]:
    """The installation on a control plane of a version that all tests share; the first who asks starts it.

    Its service runs, with what the platform sells: see ``offered``.
    """

    def install(version: str) -> Installed:
        installed = Installed(new_plane(version=version))
        installed.install()
        installed.start()
        gpukinds.offered(installed.plane, installed.namespace)
        installed.plane.restart_controller_manager()
        return installed

    def stop(installed: Installed) -> None:
        installed.stop()
        installed.plane.stop()

    found = ByVersion(install, stop=stop)
    yield found
    found.stop()


@pytest.fixture(scope="session", params=[NEWEST, OLDEST])
def installed(request: pytest.FixtureRequest, installations: Callable[[str], Installed]) -> Installed:
    """The chart and its service, on each version. A test of those has ``plane`` be that of the installation."""
    return installations(request.param)


@pytest.fixture
async def kube(plane: ControlPlane) -> AsyncIterator[Client]:
    """A client of the platform's admin (``system:masters``), who may play anybody: ``kube.as_("jane")``."""
    async with plane.client() as client:
        yield client


@pytest.fixture
def make_namespace(kube: Client, request: pytest.FixtureRequest) -> MakeNamespace:
    """Makes a namespace, a tenant's unless told otherwise. It stays: deleting one takes hundreds of calls, and the
    plane goes anyway."""

    async def make(*, tenant: bool = True, labels: dict[str, str] | None = None) -> str:
        test = re.sub(r"[^a-z0-9]+", "-", request.function.__name__.removeprefix("test_"))[:40].strip("-")
        name = f"{test}-{next(_numbers)}"
        marks = {**({HOST_LABEL: f"{name}.example.org"} if tenant else {}), **(labels or {})}
        await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": marks}})
        await eventually(lambda: kube.get(ref("v1", "ServiceAccount", "default", name)))
        return name

    return make


@pytest.fixture
async def tenant(kube: Client, make_namespace: MakeNamespace) -> Tenant:
    """A tenant: a namespace, and a person with the role ``admin`` there."""
    namespace = await make_namespace()
    user = f"{namespace}-user"
    await kube.create(admin_binding(namespace, user))
    tenant = Tenant(namespace=namespace, user=user, kube=kube.as_(user))
    await eventually(tenant.may_act)
    return tenant
