"""Control planes that the chart's tests have for themselves: its webhook configurations have one name in a cluster."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from actors import HOST_LABEL
from asking import TENANT, is_called, make_namespace
from controlplane.calls import call
from controlplane.client import Client
from controlplane.plane import ControlPlane
from controlplane.versions import NEWEST, OLDEST
from policies.force import until_taken_up
from promtool import NoPromtoolError
from promtool import promtool as promtool_of_machine
from recorder import Recorder, recording
from release import installed, plain, standing
from sharing import ByVersion
from waiting import eventually

_PROMTOOL = pytest.StashKey[Path | NoPromtoolError]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch promtool before the first test: outside its time limit, and where one sees it."""
    asked_for = any("promtool" in item.fixturenames for item in session.items if isinstance(item, pytest.Function))
    if not asked_for or session.config.option.collectonly:
        return
    with session.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        try:
            session.config.stash[_PROMTOOL] = promtool_of_machine()
        except NoPromtoolError as error:
            session.config.stash[_PROMTOOL] = error


@pytest.fixture(scope="session")
def promtool(pytestconfig: pytest.Config) -> Path:
    """The program that runs alerts."""
    found = pytestconfig.stash.get(_PROMTOOL, None) or promtool_of_machine()
    if isinstance(found, NoPromtoolError):
        raise found
    return found


@pytest.fixture(scope="session")
def chart_planes(new_plane: Callable[..., ControlPlane]) -> Callable[[str], ControlPlane]:
    return ByVersion(lambda version: new_plane(version=version), stop=_stop)


def _stop(plane: ControlPlane) -> None:
    standing.clear(plane)
    plane.stop()


@pytest.fixture(scope="session", params=[NEWEST, OLDEST])
def plane(request: pytest.FixtureRequest, chart_planes: Callable[[str], ControlPlane]) -> ControlPlane:
    return chart_planes(request.param)


@pytest.fixture
async def kube(plane: ControlPlane) -> AsyncIterator[Client]:
    async with plane.client() as client:
        yield client


@pytest.fixture
def plain_release(plane: ControlPlane) -> None:
    """The release by no values but who may call is there."""
    standing.on(plane, plain)


@pytest.fixture
def no_release(plane: ControlPlane) -> None:
    """No release that tests share is there."""
    standing.clear(plane)


@pytest.fixture
def recorder(plane: ControlPlane) -> Recorder:
    """What the API server calls while the chart is installed, its service outside of the cluster."""
    return standing.on(plane, _recorded)


@contextmanager
def _recorded(plane: ControlPlane) -> Iterator[Recorder]:
    with recording() as calls:
        values = {"webhooks": {"url": calls.url}, "certificates": {"mode": "secret", "caBundle": calls.ca_pem}}
        with installed(plane, values):
            # The policies would refuse some of what the pair is asked about here, before it is asked.
            bindings = f"{plane.url}/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
            call("DELETE", bindings, token=plane.token, tls=plane.tls)
            asyncio.run(_taken_up(plane))
            yield calls


async def _taken_up(plane: ControlPlane) -> None:
    async with plane.client() as kube:
        await until_taken_up(kube)


@pytest.fixture
async def tenant(kube: Client, recorder: Recorder) -> str:
    await make_namespace(kube, TENANT, {HOST_LABEL: "a"})
    await eventually(lambda: is_called(kube, recorder, TENANT))
    return TENANT
