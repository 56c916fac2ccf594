"""One authority for all replicas, in a Secret, whatever happens to it."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from controlplane.client import Client
from controlplane.plane import ControlPlane
from controlplane.versions import NEWEST
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from replicas import KINDS, Forwarder, Place, a_place, authority_in, until
from structlog.testing import capture_logs
from waiting import best_of_six

from certs import Authority, ClusterCertificates, utc_now
from certs.authorities import Authorities, secret_of
from certs.pem import read_certificates, write_key
from gpu import names

pytestmark = pytest.mark.parametrize("plane", [NEWEST], indirect=True)

DAY = timedelta(days=1)


@pytest.fixture
async def place(
    plane: ControlPlane, kube: Client, make_namespace: Callable[..., Awaitable[str]]
) -> AsyncIterator[Place]:
    async with a_place(plane, kube, await make_namespace(tenant=False)) as found:
        yield found


def stored(place: Place, authorities: Authorities) -> dict[str, object]:
    return secret_of(authorities, name=names.AUTHORITY, namespace=place.namespace, found=None)


def key_in(secrets: list[dict[str, Any]]) -> str:
    """The key of the authority, where there is a Secret with one."""
    data = (secrets[0].get("data") if secrets else None) or {}
    return str(data.get("ca.key") or "")


def serves_a_leaf_of(certificates: ClusterCertificates, authority_pem: bytes) -> bool:
    leaf, root = (read_certificates(pem)[0] for pem in (certificates.serving.pair.certificate_pem, authority_pem))
    try:
        leaf.verify_directly_issued_by(root)
    except (InvalidSignature, ValueError):
        return False
    return True


async def test_twenty_replicas_that_start_at_once_make_one_authority(place: Place) -> None:
    # Given both configurations, and twenty replicas with connections of their own
    await place.install("a.example.org", "b.example.org")
    replicas = [place.replica() for _ in range(20)]
    # When they start at once
    begin = time.monotonic()
    async with AsyncExitStack() as running:
        await asyncio.gather(*(running.enter_async_context(replica) for replica in replicas))
        await until(lambda: all(replica.injected for replica in replicas), seconds=20)
        print(f"\ntwenty replicas: {time.monotonic() - begin:.2f} s")
        # Then there is one authority, it is the one in the Secret, and all that the webhooks trust
        ca_pem = authority_in(await place.kube.get(place.secret))
        assert {replica.ca_pem for replica in replicas} == {ca_pem}
        assert await place.bundles() == [ca_pem] * 4
        # And each replica serves a leaf of its own of it
        assert all(serves_a_leaf_of(replica, ca_pem) for replica in replicas)
        assert len({replica.serving.pair.serial for replica in replicas}) == 20


async def test_the_secret_tells_what_it_is(place: Place) -> None:
    async with place.replica():
        secret = await place.kube.get(place.secret)
        assert secret["type"] == names.AUTHORITY_TYPE
        assert sorted(secret["data"]) == ["ca.crt", "ca.key"]


async def test_a_secret_that_is_not_ours_is_neither_used_nor_written(place: Place) -> None:
    # Given a Secret of the name that somebody else made, with an authority in it even
    await place.install()
    foreign = Authorities(current=Authority.create(common_name="foreign", now=utc_now(), lifetime=DAY))
    before = await place.kube.create(stored(place, foreign) | {"type": "Opaque"})
    # When a replica starts
    with capture_logs() as logs:
        async with place.replica(interval=timedelta(seconds=1)) as replica:
            await asyncio.sleep(1.5)
            # Then it serves nothing, says why, and once only, and leaves the Secret and the webhooks as they were
            assert replica.serving.empty
            assert not replica.injected
            assert replica.failures > 1
            told = [line["error"] for line in logs if line["log_level"] == "error"]
            assert len(told) == 1
            assert f"Secret {place.namespace}/{names.AUTHORITY} is not ours and is left alone" in told[0]
            assert await place.kube.get(place.secret) == before
            assert await place.bundles() == [b"", b""]
            # And when it is deleted, then the replica makes its own
            await place.kube.delete(place.secret)
            await until(lambda: replica.injected)
            assert authority_in(await place.kube.get(place.secret)) != foreign.current.certificate_pem


@pytest.mark.parametrize("harm", ["wiped", "key lost", "deleted"])
async def test_a_secret_that_is_lost_comes_back_with_the_same_authority(place: Place, harm: str) -> None:
    # Given two replicas that serve
    await place.install()
    async with place.replica() as one, place.replica() as other:
        await until(lambda: one.injected and other.injected)
        ca_pem, serials = one.ca_pem, [one.serving.pair.serial, other.serving.pair.serial]

        # When the Secret is lost
        async def measure() -> float:
            begin = time.monotonic()
            if harm == "deleted":
                await place.kube.delete(place.secret)
            else:
                await place.kube.patch(place.secret, {"data": None if harm == "wiped" else {"ca.key": ""}})
            while not (key_in(await place.kube.list("v1", "Secret", place.namespace))):  # noqa: ASYNC110 - it is asked
                await asyncio.sleep(0.005)
            return time.monotonic() - begin

        # Then it comes back within a second, with the same authority
        took = await best_of_six(measure)
        print(f"\nSecret {harm}: right again after {took * 1000:.0f} ms")
        assert took < 1
        assert authority_in(await place.kube.get(place.secret)) == ca_pem
        # And nothing that is served or trusted has changed
        assert [one.serving.pair.serial, other.serving.pair.serial] == serials
        assert await place.bundles() == [ca_pem, ca_pem]


async def test_a_wiped_secret_that_nobody_remembers_is_filled_anew(place: Place) -> None:
    # Given a Secret of ours that was emptied, and a label somebody put on it
    empty = {**place.secret, "type": names.AUTHORITY_TYPE}
    empty["metadata"] = {**empty["metadata"], "labels": {"team": "a"}}
    await place.kube.create(empty)
    # When a replica starts, then it fills it and leaves the label
    async with place.replica() as replica:
        secret = await place.kube.get(place.secret)
        assert authority_in(secret) == replica.ca_pem
        assert secret["metadata"]["labels"] == {"team": "a"}


async def test_an_authority_that_another_replica_stored_is_taken_up_while_the_old_one_stays_trusted(
    place: Place,
) -> None:
    # Given a replica that serves
    await place.install()
    async with place.replica() as replica:
        await until(lambda: replica.injected)
        old = replica.ca_pem
        assert old is not None
        # When another authority is stored in its Secret
        other = Authorities(current=Authority.create(common_name="other", now=utc_now(), lifetime=365 * DAY))
        await place.kube.patch(place.secret, {"data": stored(place, other)["data"]})
        # Then it serves a leaf of that one within seconds
        took = await until(lambda: serves_a_leaf_of(replica, other.current.certificate_pem), seconds=5)
        print(f"\nanother authority: served after {took * 1000:.0f} ms")
        # And the webhooks trust both
        trusted = [set(read_certificates(bundle)) for bundle in await place.bundles()]
        assert trusted == [{*read_certificates(old), *read_certificates(other.bundle)}] * 2


async def test_an_api_server_that_is_not_there_is_waited_for(place: Place) -> None:
    # Given a replica whose API server does not answer
    await place.install()
    forwarder = Forwarder(urlsplit(place.plane.url).port or 0)
    await forwarder.open()
    await forwarder.close()
    replica = place.replica(url=f"https://127.0.0.1:{forwarder.port}")
    with capture_logs() as logs:
        async with replica:
            await asyncio.sleep(1)
            # Then it has nothing to serve, and has said so once for each thing it could not do
            assert replica.serving.empty
            assert replica.failures > 1
            assert [line["what"] for line in logs if line["log_level"] == "error"] == ["the authority's Secret"]
            # And when the API server is there, all comes right by itself
            await forwarder.open()
            took = await until(lambda: replica.injected)
            print(f"\nAPI server back: right after {took:.2f} s")
            assert {line["event"] for line in logs} >= {"certificates: right again", "caBundle injected"}
            # And when it goes again, what is served goes on being served
            serial = replica.serving.pair.serial
            await forwarder.close()
            await asyncio.sleep(0.5)
            assert replica.serving.pair.serial == serial
            assert replica.injected
    await forwarder.close()


async def test_the_next_authority_does_not_sign_before_every_configuration_is_there_to_trust_it(place: Place) -> None:
    # Given an authority that is due, and one configuration of two
    due = Authority.create(common_name="due", now=utc_now() - 300 * DAY, lifetime=365 * DAY)
    await place.kube.create(stored(place, Authorities(current=due)))
    await place.install()
    await place.kube.delete(place.configuration(KINDS[1]))
    async with place.replica(interval=timedelta(seconds=0.2)) as replica:
        # When rounds go by, then the next one is published and goes on waiting
        await asyncio.sleep(1.5)
        assert replica.authorities is not None
        assert replica.authorities.next is not None
        assert replica.authorities.current == due
        # And when the other configuration comes, then it signs
        await place.install()
        await until(lambda: not serves_a_leaf_of(replica, due.certificate_pem))


async def test_no_key_is_ever_logged(place: Place) -> None:
    # Given replicas that start, lose the Secret, get a broken one, and rotate
    with capture_logs() as logs:
        await place.install()
        due = Authority.create(common_name="due", now=utc_now() - 300 * DAY, lifetime=365 * DAY)
        await place.kube.create(stored(place, Authorities(current=due)))
        async with place.replica(interval=timedelta(seconds=0.2)) as one, place.replica() as other:
            await until(lambda: one.injected and other.injected and one.authorities != Authorities(current=due))
            await until(lambda: one.rotated_at or other.rotated_at)
            secret = await place.kube.get(place.secret)
            await place.kube.patch(place.secret, {"data": {"ca.key": base64.b64encode(b"broken").decode()}})
            await asyncio.sleep(0.5)
            shown = repr((one, other, one.__dict__, other.__dict__, one.authorities, one.serving.pair))
    # Then none of their keys is in what was logged or can be shown
    keys = [due.key_pem, base64.b64decode(secret["data"]["ca.key"]), write_key(load_pem_private_key(due.key_pem, None))]
    keys += [replica.serving.pair.key_pem for replica in (one, other)]
    assert len(logs) > 5
    for key in keys:
        middle = key.decode().splitlines()[2]
        assert middle not in repr(logs)
        assert middle not in shown
    assert "PRIVATE KEY" not in repr(logs) + shown
