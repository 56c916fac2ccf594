"""The policies among those who act on a cluster: garbage collection, controllers that copy labels, many at once."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from actors import owner_reference
from controlplane.client import Client, Object, Propagation
from controlplane.errors import APIError
from controlplane.versions import OLDEST
from policies.callers import CONTROLLER, MASTERS, TENANT, Who
from policies.stored import H200, MARK, REFERENCE, device, named, pod, vmi
from policies.table_usage_monitor import RESERVED
from policies.world import World
from waiting import eventually, exists, gone

from gpu import names

NAMESPACE = "tenant-a"


def placed(obj: Object) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "namespace": NAMESPACE}}


def as_(world: World, who: Who) -> Client:
    return world.kube.as_(who.user, who.headers_groups)


@pytest.fixture
async def held_device(world: World) -> AsyncIterator[Object]:
    """A tenant's device with the platform's finalizer, and a ConfigMap that it owns."""
    made = await as_(world, TENANT).create(placed(device("cascade")))
    await as_(world, CONTROLLER).patch(made, {"metadata": {"finalizers": [names.DEVICE_FINALIZER]}})
    owners = [owner_reference(made)]
    await world.kube.create(placed({**named("v1", "ConfigMap", "owned", ownerReferences=owners), "data": {}}))
    yield made
    for obj in (made, placed(named("v1", "ConfigMap", "owned"))):
        if await exists(world.kube, obj):
            await world.kube.patch(obj, {"metadata": {"finalizers": None}})
            if await exists(world.kube, obj):
                await world.kube.delete(obj)


@pytest.mark.parametrize("propagation", ["Foreground", "Orphan"])
async def test_a_tenant_deletes_a_device_by_each_cascade(
    world: World, held_device: Object, propagation: Propagation
) -> None:
    # when a tenant deletes a device so that the API server adds a finalizer
    await as_(world, TENANT).delete(held_device, propagation=propagation)

    # then the garbage collector takes its own off again, and the platform's stays
    async def is_collected() -> bool:
        finalizers = (await world.kube.get(held_device))["metadata"]["finalizers"]
        return bool(finalizers == [names.DEVICE_FINALIZER])

    await eventually(is_collected, seconds=40)
    owned = placed(named("v1", "ConfigMap", "owned"))
    if propagation == "Orphan":
        assert "ownerReferences" not in (await world.kube.get(owned))["metadata"]
    else:
        await gone(world.kube, owned)
    # and the device goes when the platform lets it
    with pytest.raises(APIError, match="device-protection"):
        await as_(world, TENANT).patch(held_device, {"metadata": {"finalizers": None}})
    await as_(world, CONTROLLER).patch(held_device, {"metadata": {"finalizers": None}})
    await gone(world.kube, held_device)


async def test_the_platform_may_orphan_a_pod_and_the_garbage_collector_does_it(world: World) -> None:
    # given a VMI with a device and its pod
    owner = await world.kube.create(placed(vmi("orphaned", labels=REFERENCE)))
    launcher = await world.kube.create(
        placed(pod("orphaned-launcher", labels=REFERENCE, ownerReferences=[owner_reference(owner)]))
    )
    # when a tenant deletes it, and all others, with Orphan
    with pytest.raises(APIError, match="vmi-orphan"):
        await as_(world, TENANT).delete(owner, propagation="Orphan")
    path = f"/apis/kubevirt.io/v1/namespaces/{NAMESPACE}/virtualmachineinstances"
    with pytest.raises(APIError, match="vmi-orphan"):
        await as_(world, TENANT).raw(
            "DELETE", path, {"propagationPolicy": "Orphan"}, parameters={"fieldSelector": "metadata.name=orphaned"}
        )
    # then it is refused; and done for the platform
    await as_(world, MASTERS).delete(owner, propagation="Orphan")
    await gone(world.kube, owner)
    assert "ownerReferences" not in (await world.kube.get(launcher))["metadata"]
    await world.kube.delete(launcher, grace=0)


@pytest.mark.parametrize("subresource", ["resize", "ephemeralcontainers"])
@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {names.DEVICE_REFERENCE: "other"}},
        {"labels": {names.DEVICE_REFERENCE: None}},
        {"ownerReferences": None},
    ],
    ids=["label changed", "label dropped", "owner dropped"],
)
async def test_the_label_and_the_owner_of_a_pod_stay_whatever_subresource_is_written(
    world: World, subresource: str, metadata: dict[str, Any]
) -> None:
    # given a launcher and a tenant who may write its subresources
    launcher = world.stored("launcher", NAMESPACE)
    before = (await world.kube.get(launcher))["metadata"]
    # when they are written with other metadata
    await as_(world, TENANT).patch(launcher, {"metadata": metadata}, subresource=subresource)
    # then the write is let in, and nothing of it is taken
    after = (await world.kube.get(launcher))["metadata"]
    assert after["labels"] == before["labels"]
    assert after["ownerReferences"] == before["ownerReferences"]


@pytest.mark.parametrize(
    "resources",
    [{"resources": {"limits": {H200: "1"}}}, {"resources": {"limits": {H200: "1"}, "requests": {H200: "1"}}}],
)
async def test_a_running_pod_gets_no_gpu_by_a_subresource(world: World, resources: dict[str, Any]) -> None:
    plain = world.stored("plain-pod", NAMESPACE)
    tenant = as_(world, TENANT)
    container = {"name": "compute", **resources}
    late = {"name": "late", "image": "example.org/a", **resources}
    for change, subresource in (
        ({"spec": {"containers": [container]}}, "resize"),
        ({"spec": resources}, "resize"),
        ({"spec": {"ephemeralContainers": [late]}}, "ephemeralcontainers"),
    ):
        # when a tenant asks for one on a pod that is there, then the API server refuses it, or (the oldest, which does
        # not know a pod's own resources there) takes nothing of it
        code, taken = 0, dict[str, Any]()
        try:
            taken = await tenant.patch(plain, change, subresource=subresource, strategic=True, dry_run=True)
        except APIError as refused:
            code = refused.code
        assert code == 422 or (world.plane.version == OLDEST and H200 not in str(taken["spec"]))


async def test_a_collection_of_pods_is_not_deleted_at_once_with_a_launcher_in_it(world: World) -> None:
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    one = {"fieldSelector": "metadata.name=launcher"}
    # when a tenant deletes it so by the options in the body, or in the query
    for body, parameters in (({"gracePeriodSeconds": 0}, one), (None, {**one, "gracePeriodSeconds": "0"})):
        with pytest.raises(APIError, match="pod-force-deletion") as refused:
            await as_(world, TENANT).raw("DELETE", path, body, parameters=parameters)
        # then it is refused, and the pod is there
        assert refused.value.code == 403
        assert await exists(world.kube, world.stored("launcher", NAMESPACE))


async def test_the_reserved_label_of_a_template_is_refused_on_the_object_that_it_ends_on(world: World) -> None:
    # given a Deployment whose template has the label
    labels = {"app": "a", MARK: "true"}
    template: dict[str, Any] = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "a", "image": "example.org/a"}]},
    }
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
    made = await as_(world, TENANT).create(placed({**named("apps/v1", "Deployment", "templated"), "spec": spec}))

    # then its controller is refused what it makes of that, and says so
    async def tells_why() -> bool:
        conditions = (await world.kube.get(made)).get("status", {}).get("conditions") or ()
        return any(RESERVED in condition["message"] for condition in conditions)

    await eventually(tells_why)
    await world.kube.delete(made)
    # and a Job, which copies the label to itself, at once
    job = placed(
        {
            **named("batch/v1", "Job", "templated"),
            "spec": {"template": {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}},
        }
    )
    with pytest.raises(APIError, match="usage-monitor"):
        await as_(world, TENANT).create(job)


async def test_an_object_that_is_made_by_an_apply_or_a_put_is_one_that_is_created(world: World) -> None:
    marked = placed(named("v1", "Secret", "applied", labels={MARK: "true"}))
    with pytest.raises(APIError, match="usage-monitor"):
        await as_(world, TENANT).apply(marked)
    lease = placed({**named("coordination.k8s.io/v1", "Lease", "put", labels={MARK: "true"}), "spec": {}})
    with pytest.raises(APIError, match="usage-monitor"):
        await as_(world, TENANT).update(lease)
