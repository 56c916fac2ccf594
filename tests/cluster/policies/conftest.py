"""Control planes that have the policies alone, without the pair: what they refuse, they refuse by themselves."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from controlplane.client import ref
from controlplane.plane import ControlPlane
from controlplane.versions import NEWEST, OLDEST
from policies.force import enforce
from policies.world import BETAS, World, install_crds
from sharing import ByVersion


@pytest.fixture(scope="session")
def policy_planes(new_plane: Callable[..., ControlPlane]) -> Callable[[str], tuple[ControlPlane, dict[Any, Any]]]:
    """The plane of a version with the chart's policies in force, and what is stored there."""

    async def fill(plane: ControlPlane, stored: dict[Any, Any]) -> None:
        async with plane.client() as kube:
            world = World(plane, kube, stored)
            await world.store()
            await enforce(world)

    def of(version: str) -> tuple[ControlPlane, dict[Any, Any]]:
        plane = new_plane(version=version, audit=True, apiserver_flags=[BETAS])
        stored: dict[Any, Any] = {}
        install_crds(plane)
        asyncio.run(fill(plane, stored))
        return plane, stored

    return ByVersion(of, stop=lambda made: made[0].stop())


@pytest.fixture(scope="session")
def bare_plane(new_plane: Callable[..., ControlPlane]) -> ControlPlane:
    """A plane without the chart's kinds and policies; whoever makes some takes them away."""
    return new_plane(version=NEWEST, audit=True, apiserver_flags=[BETAS])


@pytest.fixture
async def bare_world(bare_plane: ControlPlane) -> AsyncIterator[World]:
    """A client of that plane, nothing stored."""
    async with bare_plane.client() as kube:
        yield World(bare_plane, kube, {})
        for kind in ("ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"):
            for obj in await kube.list("admissionregistration.k8s.io/v1", kind):
                await kube.delete(ref("admissionregistration.k8s.io/v1", kind, obj["metadata"]["name"]))


@pytest.fixture(scope="session", params=[NEWEST, OLDEST])
def settled(
    request: pytest.FixtureRequest, policy_planes: Callable[[str], tuple[ControlPlane, dict[Any, Any]]]
) -> tuple[ControlPlane, dict[Any, Any]]:
    return policy_planes(request.param)


@pytest.fixture
def plane(settled: tuple[ControlPlane, dict[Any, Any]]) -> ControlPlane:
    return settled[0]


@pytest.fixture
async def world(settled: tuple[ControlPlane, dict[Any, Any]]) -> AsyncIterator[World]:
    """The stored objects on each version, with the chart's policies in force."""
    plane, stored = settled
    async with plane.client() as kube:
        yield World(plane, kube, stored)
