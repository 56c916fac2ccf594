"""A rotation that ends in the middle, after whichever write, is brought to its end by who comes next."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from controlplane.client import Client
from controlplane.plane import ControlPlane
from controlplane.versions import NEWEST
from replicas import Place, a_place, issuer_served_by, subject_of, until

from certs import Authority, ClusterCertificates, utc_now
from certs.authorities import Authorities, secret_of
from cluster.api import Api
from gpu import names

DAY = timedelta(days=1)
OPTIONS: dict[str, Any] = {"interval": timedelta(seconds=0.1), "settle": timedelta(seconds=0.3)}


class EndingApi(Api):
    """Ends whoever uses it right after a write, as a kill would: nothing of it runs any more."""

    writes_left = 0
    ended = False

    async def _json(self, method: str, *arguments: Any, **options: Any) -> dict[str, Any]:
        answer = await super()._json(method, *arguments, **options)
        self.writes_left -= method != "GET"
        if method != "GET" and self.writes_left == 0:
            self.ended = True
            raise asyncio.CancelledError
        return answer


@pytest.fixture
async def place(
    plane: ControlPlane, kube: Client, make_namespace: Callable[..., Awaitable[str]]
) -> AsyncIterator[Place]:
    async with a_place(plane, kube, await make_namespace(tenant=False)) as found:
        yield found


def rotated(replica: ClusterCertificates, due: Authority) -> bool:
    """Whether it serves a leaf of another authority than that, and no rotation goes on."""
    authorities = replica.authorities
    return (
        authorities is not None
        and authorities.next is None
        and authorities.current != due
        and issuer_served_by(replica) == subject_of(authorities.current)
    )


@pytest.mark.parametrize("plane", [NEWEST], indirect=True)
async def test_a_rotation_that_was_interrupted_after_any_write_ends_well(place: Place) -> None:
    await place.install()
    interrupted = 0
    for writes in itertools.count(1):
        # Given an authority that is due
        due = Authority.create(common_name=f"due-{writes}", now=utc_now() - 300 * DAY, lifetime=365 * DAY)
        stored = secret_of(Authorities(current=due), name=names.AUTHORITY, namespace=place.namespace, found=None)
        await place.kube.create(stored)
        # When the replica that rotates it ends after so many writes
        api = place.api(of=EndingApi)
        api.writes_left = writes
        first = place.replica(api=api, **OPTIONS)
        life = asyncio.create_task(first.keep())
        await until(lambda: api.ended or rotated(first, due))  # noqa: B023 - it is waited for here
        life.cancel()
        await asyncio.wait([life])
        if not api.ended:
            break
        interrupted += 1
        # And another one comes
        async with place.replica(**OPTIONS) as replica:
            # Then it brings the rotation to its end: what it serves is signed by the one new authority
            took = await until(lambda: rotated(replica, due))  # noqa: B023
            print(f"\ninterrupted after write {writes}: ended well {took:.2f} s later", end="")
            # And it trusts what the dead one served until then
            assert replica.authorities is not None
            assert replica.authorities.trusts(due)
            await until(lambda: replica.injected)
            assert await place.bundles() == [replica.authorities.bundle] * 2
        await place.kube.delete(place.secret)
    assert interrupted >= 5, "the steps are: prepare, apply to each configuration and give it up, promote"
