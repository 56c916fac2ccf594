"""An authority's whole life in seconds, and clocks that are wrong."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
from controlplane.client import Client
from controlplane.plane import ControlPlane
from controlplane.versions import NEWEST
from replicas import KINDS, Place, a_place, issuer_served_by, subject_of, until, webhook
from reviewer import Caller, Reviewer

from certs import Authority, ClusterCertificates, utc_now
from certs.authorities import Authorities
from certs.pem import read_certificates

if TYPE_CHECKING:
    from cryptography import x509

pytestmark = pytest.mark.parametrize("plane", [NEWEST], indirect=True)

DAY = timedelta(days=1)
SECONDS: Final[dict[str, Any]] = {
    "ca_lifetime": timedelta(seconds=9),
    "leaf_lifetime": timedelta(seconds=6),
    "settle": timedelta(seconds=0.4),
}


@pytest.fixture
async def place(
    plane: ControlPlane, kube: Client, make_namespace: Callable[..., Awaitable[str]]
) -> AsyncIterator[Place]:
    async with a_place(plane, kube, await make_namespace(tenant=False)) as found:
        yield found


def is_trusted(replica: ClusterCertificates, bundle: bytes) -> bool:
    """Whether clients with a bundle verify what a replica serves, at this moment."""
    [leaf, *_] = read_certificates(replica.serving.pair.certificate_pem)
    now = utc_now()
    roots = [root for root in read_certificates(bundle) if root.subject == leaf.issuer]
    for root in roots:
        leaf.verify_directly_issued_by(root)
    return any(root.not_valid_before_utc <= now < root.not_valid_after_utc for root in roots) and (
        leaf.not_valid_before_utc <= now < leaf.not_valid_after_utc
    )


def shown(found: Authorities, first: Authority) -> str:
    """Where the first authority's replacement stands."""
    if found.current == first:
        return "published" if found.next else "signs"
    return "replaced" if found.trusts(first) else "forgotten"


async def test_an_authority_is_replaced_in_seconds_and_what_is_served_is_trusted_all_the_while(place: Place) -> None:
    # Given two replicas with an authority that lives for nine seconds
    await place.install()
    async with place.replica(**SECONDS) as one, place.replica(**SECONDS) as other:
        await until(lambda: one.injected and other.injected)
        assert one.authorities is not None
        first, stages, serials = one.authorities.current, ["signs"], set[int]()
        # When its life goes by
        begin = time.monotonic()
        while stages[-1] != "forgotten":
            assert time.monotonic() < begin + 20, stages
            if (stage := shown(one.authorities, first)) != stages[-1]:
                stages.append(stage)
            # Then at every moment every webhook trusts what each replica serves
            serials |= {replica.serving.pair.serial for replica in (one, other)}
            for bundle in await place.bundles():
                assert is_trusted(one, bundle)
                assert is_trusted(other, bundle)
            await asyncio.sleep(0.1)
        print(f"\na CA's life: {time.monotonic() - begin:.1f} s, {len(serials)} leaves")
        # And the next one was published before it signed, and the first forgotten when it had expired, not before
        assert stages == ["signs", "published", "replaced", "forgotten"]
        assert utc_now() >= first.not_after
        assert [one.failures, other.failures] == [0, 0]
        assert other.authorities is not None
        assert not other.authorities.trusts(first)


async def test_a_replacement_that_stops_after_any_step_is_gone_on_with(place: Place) -> None:
    # Given an authority that lives for nine seconds, and one replica
    await place.install()
    async with place.replica(**SECONDS) as replica:
        await until(lambda: replica.injected)
        assert replica.authorities is not None
        first = replica.authorities.current
    # When it ends after each step, and another one begins
    for stage in ("published", "replaced", "forgotten"):

        def reached(found: ClusterCertificates, stage: str = stage) -> bool:
            return found.authorities is not None and shown(found.authorities, first) == stage

        async with place.replica(**SECONDS) as replica:
            await until(lambda now=replica, reached=reached: reached(now))  # type: ignore[misc]
            await until(lambda now=replica: now.injected)  # type: ignore[misc]
            for bundle in await place.bundles():
                assert is_trusted(replica, bundle)
    # Then the first is gone, and the next serves
    assert replica.authorities is not None
    assert issuer_served_by(replica) == subject_of(replica.authorities.current)


async def test_a_clock_that_jumps_costs_no_call(place: Place) -> None:
    # Given two replicas, each asked by one of the two configurations, and a clock of the one that can be set
    ahead = timedelta()

    def clock() -> datetime:
        return utc_now() + ahead

    quick: dict[str, Any] = {"interval": timedelta(seconds=0.1), "settle": timedelta(seconds=0.5)}
    jumping, steady = place.replica(clock=clock, **quick), place.replica(**quick)
    caller = Caller(place.kube, place.namespace)
    async with AsyncExitStack() as running:
        for kind, replica in zip(KINDS, (jumping, steady), strict=True):
            reviewer = await running.enter_async_context(Reviewer().serving(replica.serving.context))
            hook = webhook("a.example.org", namespace=place.namespace, url=reviewer.url)
            await place.kube.apply(place.configuration(kind, hook), manager="helm")
            await running.enter_async_context(replica)
        await until(lambda: jumping.injected and steady.injected)
        await caller.let_in()
        async with caller.calling():
            # When it jumps: into the last third of the leaf's life, of the authority's, behind its end, and back
            for jump in (5 * DAY, 300 * DAY, 800 * DAY, -2 * DAY, timedelta()):
                serial, ahead = jumping.serving.pair.serial, jump
                if jump > timedelta():
                    # Then a new certificate is served at once
                    took = await until(lambda serial=serial: jumping.serving.pair.serial != serial)  # type: ignore[misc]
                    print(f"\n{jump.days} days ahead: renewed after {took * 1000:.0f} ms")
                await asyncio.sleep(1)
                await caller.more(20)
    # And no call was lost, by neither replica
    print(f"\n{caller.calls} calls, {len(caller.refusals)} refused")
    assert [message for _, message in caller.refusals] == []
    # And the two came to terms: what they share is valid by both clocks, and rests
    assert jumping.authorities == steady.authorities
    assert steady.authorities is not None
    roots: list[x509.Certificate] = read_certificates(steady.authorities.current.certificate_pem)
    assert roots[0].not_valid_before_utc <= utc_now() < roots[0].not_valid_after_utc
