"""The caBundle in the webhook configurations, among others who write them."""

import asyncio
import base64
import copy
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from controlplane.client import Client, ref
from controlplane.plane import ControlPlane
from controlplane.versions import NEWEST
from replicas import KINDS, Place, a_place, until, webhook
from structlog.testing import capture_logs
from waiting import best_of_six, eventually, exists

from certs import Authority, ClusterCertificates, utc_now
from gpu import names

TWO = ("a.example.org", "b.example.org")


@pytest.fixture
async def place(
    plane: ControlPlane, kube: Client, make_namespace: Callable[..., Awaitable[str]]
) -> AsyncIterator[Place]:
    async with a_place(plane, kube, await make_namespace(tenant=False)) as found:
        yield found


async def have_it(place: Place, replica: ClusterCertificates, *, webhooks: int) -> float:
    """Wait until every webhook has the replica's bundle; the seconds that it took."""
    begin = time.monotonic()
    async with asyncio.timeout(10):
        while await place.bundles() != [replica.ca_pem] * webhooks:  # noqa: ASYNC110 - the API server is asked
            await asyncio.sleep(0.005)
    return time.monotonic() - begin


def without_bundle(configuration: dict[str, Any]) -> dict[str, Any]:
    """What nobody but the chart has a say in."""
    rest = copy.deepcopy(configuration)
    for key in ("generation", "resourceVersion", "managedFields"):
        rest["metadata"].pop(key)
    for one in rest["webhooks"]:
        one["clientConfig"].pop("caBundle", None)
    return rest


def owners(configuration: dict[str, Any]) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in configuration["metadata"]["managedFields"]}


async def test_only_the_bundle_changes_and_nobody_loses_or_gains_a_field(place: Place) -> None:
    # Given both configurations of a chart
    await place.install(*TWO)
    before = [dict(await place.kube.get(place.configuration(kind))) for kind in KINDS]
    # When a replica has injected its bundle
    async with place.replica() as replica:
        await have_it(place, replica, webhooks=4)
        after = [dict(await place.kube.get(place.configuration(kind))) for kind in KINDS]
    # Then nothing else has changed, and the chart's manager is the only one that owns anything
    assert list(map(without_bundle, after)) == list(map(without_bundle, before))
    assert list(map(owners, after)) == list(map(owners, before))
    assert [list(owners(one)) for one in after] == [["helm"], ["helm"]]


@pytest.mark.parametrize("value", [None, ""])
async def test_a_bundle_that_was_wiped_or_edited_is_right_again_within_a_second(
    place: Place, value: str | None
) -> None:
    # Given an injected bundle
    await place.install(*TWO)
    async with place.replica() as replica:
        await have_it(place, replica, webhooks=4)

        # When somebody edits it, in one webhook of each configuration
        async def measure() -> float:
            for kind in KINDS:
                edit = [{"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": value}]
                await place.kube.patch(place.configuration(kind), edit)
            return await have_it(place, replica, webhooks=4)

        # Then it is right again within a second
        took = await best_of_six(measure)
        print(f"\nbundle {value!r}: right again after {took * 1000:.0f} ms")
        assert took < 1


async def test_another_bundle_in_the_place_of_ours_is_replaced(place: Place) -> None:
    await place.install(*TWO)
    async with place.replica() as replica:
        await have_it(place, replica, webhooks=4)
        # When somebody applies another authority's certificate, as a chart with a value of its own would
        theirs = place.plane.ca_pem
        encoded = base64.b64encode(theirs.encode()).decode()
        config = {"url": "https://127.0.0.1:1/review", "caBundle": encoded}

        async def measure() -> float:
            await place.install(*TWO, clientConfig=config)
            return await have_it(place, replica, webhooks=4)

        # Then ours is there again
        took = await best_of_six(measure)
        print(f"\nanother bundle: right again after {took * 1000:.0f} ms")
        assert took < 1


@pytest.mark.parametrize("plane", [NEWEST], indirect=True)
async def test_a_replica_that_cannot_read_the_secret_leaves_what_others_published(place: Place) -> None:
    # Given a replica whose bundle is in, and that may read the Secret no more
    await place.install(*TWO)
    async with place.replica(interval=timedelta(seconds=0.2)) as replica:
        await have_it(place, replica, webhooks=4)
        await place.kube.delete(ref("rbac.authorization.k8s.io/v1", "RoleBinding", place.name, place.namespace))
        await until(lambda: replica.failures)
        # When another one publishes an authority beside the one that both know
        newcomer = Authority.create(common_name="newcomer", now=utc_now(), lifetime=timedelta(days=1))
        published = (replica.ca_pem or b"") + newcomer.certificate_pem
        for kind in KINDS:
            value = base64.b64encode(published).decode()
            paths = [f"/webhooks/{number}/clientConfig/caBundle" for number in range(len(TWO))]
            edits = [{"op": "replace", "path": path, "value": value} for path in paths]
            await place.kube.patch(place.configuration(kind), edits)
        # Then that stays, round after round
        before = replica.failures
        await until(lambda: replica.failures > before + 2)
        assert await place.bundles() == [published] * 4
        # And what has no authority at all is still put right
        for kind in KINDS:
            edit = [{"op": "replace", "path": "/webhooks/1/clientConfig/caBundle", "value": ""}]
            await place.kube.patch(place.configuration(kind), edit)
        async with asyncio.timeout(10):
            while not all(await place.bundles()):  # noqa: ASYNC110 - the API server is asked
                await asyncio.sleep(0.05)


async def test_a_chart_applied_again_leaves_the_bundle_alone(place: Place) -> None:
    # Given an injected bundle, and nobody who would repair it
    await place.install(*TWO)
    async with place.replica() as replica:
        await have_it(place, replica, webhooks=4)
    # When the chart is applied again, changed, by its manager, and by another one that takes it over
    await place.install(*TWO, timeoutSeconds=3)
    await place.kube.apply(
        place.configuration(KINDS[0], *[webhook(name, namespace=place.namespace, timeoutSeconds=4) for name in TWO]),
        manager="gitops",
        force=True,
    )
    # Then the bundle is there as it was
    assert await place.bundles() == [replica.ca_pem] * 4
    found = await place.kube.get(place.configuration(KINDS[0]))
    assert [one["timeoutSeconds"] for one in found["webhooks"]] == [4, 4]


async def test_an_edit_of_somebody_elses_field_survives_an_injection(place: Place) -> None:
    # Given an injected bundle
    await place.install(*TWO)
    async with place.replica() as replica:
        await have_it(place, replica, webhooks=4)
        # When somebody narrows a selector and wipes the bundle in one go
        selector = {"matchLabels": {"only": "this"}}
        for kind in KINDS:
            edit: list[dict[str, Any]] = [
                {"op": "replace", "path": "/webhooks/0/namespaceSelector", "value": selector},
                {"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"},
            ]
            await place.kube.patch(place.configuration(kind), edit)
        await have_it(place, replica, webhooks=4)
        # Then the bundle is back and the selector is theirs
        for kind in KINDS:
            found = await place.kube.get(place.configuration(kind))
            assert found["webhooks"][0]["namespaceSelector"] == selector


async def test_an_upgrade_that_drops_a_webhook_is_not_stopped_by_its_bundle(place: Place) -> None:
    # Given an injected bundle
    await place.install(*TWO)
    async with place.replica() as replica:
        await have_it(place, replica, webhooks=4)
        # When the chart's next version has one webhook less and another more
        await place.install("a.example.org", "c.example.org")
        # Then the one is gone, and the other has the bundle
        await have_it(place, replica, webhooks=4)
        for kind in KINDS:
            found = await place.kube.get(place.configuration(kind))
            assert [one["name"] for one in found["webhooks"]] == ["a.example.org", "c.example.org"]


@pytest.mark.parametrize("plane", [NEWEST], indirect=True)
async def test_who_put_a_bundle_in_before_does_not_stop_an_upgrade_that_drops_a_webhook(place: Place) -> None:
    # Given configurations that cert-manager's cainjector has filled, as it does it
    await place.install(*TWO)
    theirs = {"clientConfig": {"caBundle": base64.b64encode(place.plane.ca_pem.encode()).decode()}}
    for kind in KINDS:
        document = place.configuration(kind, *[{"name": name, **theirs} for name in TWO])
        await place.kube.apply(document, manager="cert-manager-cainjector", force=True)
    # When the service fills them from then on, and the chart's next version has one webhook less and another more
    async with place.replica() as replica:
        await have_it(place, replica, webhooks=4)
        await place.install("a.example.org", "c.example.org")
        await have_it(place, replica, webhooks=4)

        # Then nobody but the chart owns anything: the service gives up what it owns in a write of its own
        async def are_the_charts() -> bool:
            found = [await place.kube.get(place.configuration(kind)) for kind in KINDS]
            return [list(owners(one)) for one in found] == [["helm"], ["helm"]]

        await eventually(are_the_charts)


async def test_a_configuration_that_is_not_there_is_waited_for_and_never_made(place: Place) -> None:
    # Given nothing installed
    with capture_logs() as logs:
        async with place.replica() as replica:
            await asyncio.sleep(0.7)
            # Then the replica serves, is not ready, says so, and makes no configuration
            assert not replica.serving.empty
            assert not replica.injected
            assert [line["error"] for line in logs if line["log_level"] == "warning"] == [
                "Not installed yet, so nobody calls this service: "
                + ", ".join(f"{kind.plural}/{place.name}" for kind in KINDS)
                + "."
            ]
            for kind in KINDS:
                assert not await exists(place.kube, place.configuration(kind))
            # And when they come, they get the bundle
            await place.install(*TWO)
            took = await have_it(place, replica, webhooks=4)
            await until(lambda: replica.injected)
            print(f"\ninstalled later: right after {took * 1000:.0f} ms")
            # And again when one was deleted and made anew
            await place.kube.delete(place.configuration(KINDS[1]))
            await until(lambda: not replica.injected)
            await place.install(*TWO)
            await have_it(place, replica, webhooks=4)
            await until(lambda: replica.injected)


async def test_replicas_that_see_a_wiped_bundle_at_once_end_with_one(place: Place) -> None:
    # Given five replicas
    await place.install(*TWO)
    replicas = [place.replica() for _ in range(5)]
    for replica in replicas:
        await replica.start()
    try:
        await have_it(place, replicas[0], webhooks=4)
        # When the bundle is wiped again and again
        for _ in range(5):
            for kind in KINDS:
                await place.kube.patch(
                    place.configuration(kind), [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
                )
            await have_it(place, replicas[0], webhooks=4)
        # Then nobody failed at it
        assert [replica.failures for replica in replicas] == [0] * 5
        # And the rounds came to rest: nothing is written any more
        await asyncio.sleep(0.5)
        rested = [(await place.kube.get(place.configuration(kind)))["metadata"]["resourceVersion"] for kind in KINDS]
        await asyncio.sleep(1)
        assert rested == [
            (await place.kube.get(place.configuration(kind)))["metadata"]["resourceVersion"] for kind in KINDS
        ]
        for kind in KINDS:
            assert names.BUNDLE_MANAGER not in owners(dict(await place.kube.get(place.configuration(kind))))
    finally:
        for replica in replicas:
            await replica.stop()


async def test_what_replicas_do_costs_little_at_rest(place: Place) -> None:
    # Given a replica at rest, with rounds that are far apart
    await place.install(*TWO)
    async with place.replica(interval=timedelta(seconds=60)) as replica:
        await until(lambda: replica.injected)
        await asyncio.sleep(0.5)
        user = f"system:serviceaccount:{place.namespace}:replica"
        before = len([event for event in place.plane.audit_events() if event["user"]["username"] == user])
        # When nothing happens for two seconds, then it asks for nothing
        await asyncio.sleep(2)
        after = len([event for event in place.plane.audit_events() if event["user"]["username"] == user])
        assert before > 0
        assert after == before
