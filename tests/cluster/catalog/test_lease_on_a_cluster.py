"""The Lease on a real API server: acquired, kept, given back, taken over, lost."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from controlplane.client import Client, ref
from controlplane.plane import ControlPlane
from reach import through_proxy
from structlog.testing import capture_logs

from cluster.api import Api
from cluster.leader import Leader
from cluster.lease import DEFAULT, Term

NAME = "gpu-webhooks"


@pytest.fixture
async def namespace(make_namespace: Callable[..., Awaitable[str]]) -> str:
    return await make_namespace(tenant=False)


def lease(namespace: str) -> dict[str, Any]:
    return ref("coordination.k8s.io/v1", "Lease", NAME, namespace)


def candidate(api: Api, namespace: str, me: str, *, term: Term = DEFAULT) -> Leader:
    return Leader(api, namespace=namespace, name=NAME, me=me, term=term)


async def leads(leader: Leader, *, within: float = 5) -> None:
    await asyncio.wait_for(leader.acquired(), within)


async def test_one_leads_and_the_next_takes_over_at_once_when_it_is_given_back(
    api: Api, kube: Client, namespace: str
) -> None:
    first, second = candidate(api, namespace, "first"), candidate(api, namespace, "second")
    async with first:
        await leads(first)
        async with second:
            await asyncio.sleep(2.5)
            assert (first.is_leader, second.is_leader, second.holder) == (True, False, "first")
            await first.__aexit__(None, None, None)
            assert not first.is_leader
            began = time.monotonic()
            await leads(second)

            assert time.monotonic() - began < 3
            spec = (await kube.get(lease(namespace)))["spec"]
            assert spec["holderIdentity"] == "second"
            assert spec["leaseTransitions"] == 1
    assert (await kube.get(lease(namespace)))["spec"]["holderIdentity"] == ""


async def test_what_others_write_on_the_lease_stays_and_disturbs_nobody(api: Api, kube: Client, namespace: str) -> None:
    async with candidate(api, namespace, "me") as leader:
        await leads(leader)
        for number in range(25):
            await kube.patch(lease(namespace), {"metadata": {"annotations": {"names": str(number)}}})
            assert leader.is_leader
            await asyncio.sleep(0.1)
    async with candidate(api, namespace, "next") as leader:
        await leads(leader)

    assert (await kube.get(lease(namespace)))["metadata"]["annotations"] == {"names": "24"}


async def test_who_can_not_renew_stops_before_another_begins(api: Api, plane: ControlPlane, namespace: str) -> None:
    async with through_proxy(plane) as (proxy, behind):
        with capture_logs() as logs:
            async with candidate(behind, namespace, "first", term=Term(3)) as first:
                await leads(first)
                async with candidate(api, namespace, "second", term=Term(3)) as second:
                    both = False
                    await proxy.shut()
                    while not second.is_leader:
                        await asyncio.sleep(0.02)
                        both = both or (first.is_leader and second.is_leader)
                    assert not first.is_leader
                    assert not both

                    await proxy.open()
                    await asyncio.sleep(1)
                    assert (first.is_leader, first.holder) == (False, "second")
    told = [line["event"] for line in logs if line["me"] == "first"]
    assert told == ["leading", "lease can't be read or written", "not leading any more"]


async def test_who_sees_that_another_was_put_in_stops_at_once(api: Api, kube: Client, namespace: str) -> None:
    async with candidate(api, namespace, "me") as leader:
        await leads(leader)
        await kube.patch(lease(namespace), {"spec": {"holderIdentity": "somebody"}})

        await asyncio.wait_for(leader.lost(), 4)
        assert leader.holder == "somebody"


async def test_a_lease_that_is_deleted_is_made_again(api: Api, kube: Client, namespace: str) -> None:
    async with candidate(api, namespace, "me") as leader:
        await leads(leader)
        await kube.delete(lease(namespace))
        await asyncio.sleep(3)

        assert leader.is_leader
        assert (await kube.get(lease(namespace)))["spec"]["holderIdentity"] == "me"
