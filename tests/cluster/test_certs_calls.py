"""The API server's own calls, verified with the bundle that was injected."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest
from controlplane.client import Client
from controlplane.errors import APIError
from controlplane.plane import ControlPlane
from controlplane.versions import NEWEST
from replicas import KINDS, Place, a_place, issuer_served_by, subject_of, until, webhook
from reviewer import Caller, Reviewer
from waiting import best_of_six, exists

from certs import Authority, ClusterCertificates, utc_now
from certs.authorities import Authorities, secret_of
from gpu import names

pytestmark = pytest.mark.parametrize("plane", [NEWEST], indirect=True)

DAY = timedelta(days=1)


@pytest.fixture
async def place(
    plane: ControlPlane, kube: Client, make_namespace: Callable[..., Awaitable[str]]
) -> AsyncIterator[Place]:
    async with a_place(plane, kube, await make_namespace(tenant=False)) as found:
        yield found


async def store(place: Place, authority: Authority) -> None:
    await place.kube.create(
        secret_of(Authorities(current=authority), name=names.AUTHORITY, namespace=place.namespace, found=None)
    )


class Pair:
    """Two replicas, each asked by one of the two configurations."""

    def __init__(self, place: Place, running: AsyncExitStack) -> None:
        self._place = place
        self._running = running
        self.replicas: list[ClusterCertificates] = [
            place.replica(interval=timedelta(seconds=0.5), settle=timedelta(seconds=2)) for _ in KINDS
        ]
        self.reviewers = [Reviewer() for _ in KINDS]
        self.caller = Caller(place.kube, place.namespace)

    async def start(self) -> None:
        """Serve, install, begin."""
        await self.listen()
        await self.begin()

    async def listen(self) -> None:
        """Have the API server call what has no certificate yet."""
        for kind, replica, reviewer in zip(KINDS, self.replicas, self.reviewers, strict=True):
            await self._running.enter_async_context(reviewer.serving(replica.serving.context))
            hook = webhook("a.example.org", namespace=self._place.namespace, url=reviewer.url)
            await self._place.kube.apply(self._place.configuration(kind, hook), manager="helm")

    async def begin(self) -> None:
        """Start the replicas."""
        for replica in self.replicas:
            await self._running.enter_async_context(replica)

    async def injected(self) -> None:
        await until(lambda: all(replica.injected for replica in self.replicas))
        # The API server learns of a configuration by a watch of its own.
        await self.caller.let_in()


@pytest.fixture
async def pair(place: Place) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as running:
        yield Pair(place, running)


async def test_the_api_server_trusts_a_service_from_the_injection_on(place: Place) -> None:
    # Given a service that listens already, and configurations that must be asked, without a bundle
    reviewer, replica, caller = Reviewer(), place.replica(), Caller(place.kube, place.namespace)
    async with reviewer.serving(replica.serving.context):
        await place.install(url=reviewer.url)
        # When a ConfigMap is created before anything is injected, then it is refused, and nobody was asked
        with pytest.raises(APIError, match="failed calling webhook"):
            await caller.call()
        assert reviewer.calls == 0
        # And when the replica has begun, then it is let in soon, by both webhooks
        begin = time.monotonic()
        async with replica:
            await caller.let_in()
        took = time.monotonic() - begin
        print(f"\nfirst call that is answered: {took * 1000:.0f} ms after the start")
        assert reviewer.calls >= 2


async def test_an_authority_that_is_due_is_rotated_without_a_lost_call(place: Place, pair: Pair) -> None:
    # Given an authority of which two thirds of its life have passed
    due = Authority.create(common_name="due", now=utc_now() - 300 * DAY, lifetime=365 * DAY)
    await store(place, due)
    await pair.start()
    await pair.injected()
    # When it is rotated by one of two replicas while calls come in
    async with pair.caller.calling() as caller:
        await caller.more(10)
        assert {issuer_served_by(replica) for replica in pair.replicas} == {subject_of(due)}
        await until(lambda: all(issuer_served_by(replica) != subject_of(due) for replica in pair.replicas), seconds=20)
        await caller.more(50)
    print(f"\nrotation: {pair.caller.calls} calls, {len(pair.caller.refusals)} refused")
    # Then no call was lost
    assert pair.caller.refusals == []
    assert sum(reviewer.calls for reviewer in pair.reviewers) >= 2 * 60
    # And both serve leaves of the same new authority, while the old one is trusted still
    (authorities,) = {replica.authorities for replica in pair.replicas}
    assert authorities is not None
    assert authorities.trusts(due)
    assert {issuer_served_by(replica) for replica in pair.replicas} == {subject_of(authorities.current)}
    assert await place.bundles() == [authorities.bundle] * 2


async def test_an_authority_that_has_expired_is_replaced_within_a_second(place: Place) -> None:
    # Given an authority in the Secret that has expired, and calls that come in
    async def measure() -> float:
        if await exists(place.kube, place.secret):
            await place.kube.delete(place.secret)
        await store(place, Authority.create(common_name="expired", now=utc_now() - 400 * DAY, lifetime=365 * DAY))
        async with AsyncExitStack() as running:
            pair = Pair(place, running)
            await pair.listen()
            async with pair.caller.calling() as caller:
                # When replicas start
                begin = time.monotonic()
                await pair.begin()
                await pair.injected()
                took = time.monotonic() - begin
                refused = len(caller.refusals)
                await caller.more(50)
            print(f"\nexpired: right after {took * 1000:.0f} ms, {refused} calls refused until then")
            # Then none is refused after that
            assert len(caller.refusals) == refused
            return took

    # And calls are answered within a second
    assert await best_of_six(measure) < 1


async def test_an_authority_replaced_by_hand_costs_no_call(place: Place, pair: Pair) -> None:
    # Given replicas that serve
    await pair.start()
    await pair.injected()
    other = Authority.create(common_name="other", now=utc_now(), lifetime=365 * DAY)
    data = secret_of(Authorities(current=other), name="", namespace="", found=None)["data"]
    # When somebody stores another authority while calls come in
    async with pair.caller.calling() as caller:
        await caller.more(20)
        await place.kube.patch(place.secret, {"data": data})
        await until(lambda: all(issuer_served_by(replica) == subject_of(other) for replica in pair.replicas))
        await caller.more(50)
    # Then no call was lost
    assert pair.caller.refusals == []


@pytest.mark.parametrize("lost", ["Secret", "bundle"])
async def test_a_secret_that_is_deleted_costs_no_call_and_a_wiped_bundle_few(
    place: Place, pair: Pair, lost: str
) -> None:
    # Given replicas that serve
    await pair.start()
    await pair.injected()

    async def measure() -> float:
        # When the Secret is deleted or the bundles are wiped while calls come in
        async with pair.caller.calling() as caller:
            await caller.more(20)
            begin = time.monotonic()
            if lost == "Secret":
                await place.kube.delete(place.secret)
            else:
                wipe = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
                await asyncio.gather(*(place.kube.patch(place.configuration(kind), wipe) for kind in KINDS))
            await caller.more(100)
        return max((at - begin for at, _ in caller.refusals), default=0.0)

    last = await best_of_six(measure)
    refused = pair.caller.refusals
    told = f"{len(refused)} of {pair.caller.calls} calls refused, the last began after {last * 1000:.0f} ms"
    print(f"\n{lost} gone: {told}", *{message for _, message in refused}, sep="\n")
    # Then a Secret costs no call, and a bundle those of less than a second
    assert lost == "bundle" or not refused
    assert last < 1
    assert all("failed calling webhook" in message for _, message in refused)
