"""Tenants, KubeVirt and the platform on clusters on which the chart is installed and its service runs."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from actors import VIRT_CONTROLLER, VIRT_HANDLER, Tenant
from controlplane.client import Client
from controlplane.plane import ControlPlane
from installed import Installed
from outages import new_tenant
from refusals import Call, Calls, webhook_calls

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def plane(installed: Installed) -> ControlPlane:
    """The control plane of the installation, in the place of the shared one that has none."""
    return installed.plane


@pytest.fixture
async def tenant(kube: Client, request: pytest.FixtureRequest) -> Tenant:
    """A tenant, as elsewhere. Its namespace stays: deleting one takes hundreds of calls, and the planes go anyway."""
    return await new_tenant(kube, f"tenant-{next(_numbers)}", test=request.node.name)


@pytest.fixture
def virt_controller(kube: Client) -> Client:
    return kube.as_(VIRT_CONTROLLER)


@pytest.fixture
def virt_handler(kube: Client) -> Client:
    return kube.as_(VIRT_HANDLER)


@pytest.fixture
def calls(kube: Client) -> Calls:
    """Within, the API server makes exactly these calls; none where none is named."""

    @asynccontextmanager
    async def made(*expected: tuple[str, str, str]) -> AsyncIterator[None]:
        before = await webhook_calls(kube)
        yield
        assert await webhook_calls(kube) - before == {Call(*call): 1 for call in expected}

    return made
