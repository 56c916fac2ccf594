"""The control plane that the tests of the cluster stand on."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from actors import KUBEVIRT, VIRT_CONTROLLER, MakeNamespace, Tenant, bind_pod, make_node, owner_reference
from controlplane.client import Answer, Client, ref
from controlplane.errors import APIError, HelmError
from controlplane.plane import ControlPlane
from controlplane.versions import NEWEST
from structural import ANYTHING, crd
from waiting import eventually, gone

ON_NEWEST = pytest.mark.parametrize("plane", [NEWEST], indirect=True)
SMALL_VMI: dict[str, Any] = {"domain": {"devices": {}, "resources": {"requests": {"memory": "64Mi"}}}}


def vmi(name: str, namespace: str) -> dict[str, Any]:
    return {**ref("kubevirt.io/v1", "VirtualMachineInstance", name, namespace), "spec": SMALL_VMI}


def pod(name: str, namespace: str, **metadata: Any) -> dict[str, Any]:
    obj = ref("v1", "Pod", name, namespace)
    obj["metadata"].update(metadata)
    return {**obj, "spec": {"containers": [{"name": "compute", "image": "launcher"}]}}


async def test_the_api_server_plays_the_version_asked_for(plane: ControlPlane, kube: Client) -> None:
    found = await kube.raw("GET", "/version")

    assert f"{found['emulationMajor']}.{found['emulationMinor']}" == plane.version, found


async def test_an_impersonated_person_has_the_rights_of_that_person(tenant: Tenant) -> None:
    await tenant.kube.create(vmi("mine", tenant.namespace))

    with pytest.raises(APIError) as refused:
        await tenant.kube.create(vmi("not-mine", "default"))

    assert (refused.value.code, refused.value.reason) == (403, "Forbidden")
    assert f'User "{tenant.user}" cannot create' in refused.value.message


async def test_an_impersonated_service_account_has_its_groups(kube: Client) -> None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {}}

    found = await kube.as_(VIRT_CONTROLLER).create(review)

    user = found["status"]["userInfo"]
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{KUBEVIRT}", "system:authenticated"]
    assert (user["username"], sorted(user["groups"])) == (VIRT_CONTROLLER, sorted(groups))


async def test_a_quota_on_a_custom_resource_is_kept(tenant: Tenant, kube: Client) -> None:
    # Given a namespace that may have one VMI
    quota = ref("v1", "ResourceQuota", "one-vmi", tenant.namespace)
    await kube.create({**quota, "spec": {"hard": {"count/virtualmachineinstances.kubevirt.io": "1"}}})

    async def is_counted() -> bool:
        return "used" in (await kube.get(quota))["status"]

    await eventually(is_counted)

    # When two are created
    await tenant.kube.create(vmi("first", tenant.namespace))
    with pytest.raises(APIError) as refused:
        await tenant.kube.create(vmi("second", tenant.namespace))

    # Then the second is refused
    assert refused.value.code == 403
    assert "exceeded quota: one-vmi" in refused.value.message


async def test_what_a_deleted_object_owns_is_collected(tenant: Tenant, kube: Client) -> None:
    owner = await tenant.kube.create(vmi("owner", tenant.namespace))
    owned = pod("owned", tenant.namespace, ownerReferences=[owner_reference(owner)])
    await kube.as_(VIRT_CONTROLLER).create(owned)

    await tenant.kube.delete(owner)

    await gone(kube, owned)


@ON_NEWEST
async def test_a_namespace_goes_with_everything_in_it(kube: Client, make_namespace: MakeNamespace) -> None:
    name = await make_namespace()
    await kube.create(vmi("inside", name))

    await kube.delete(ref("v1", "Namespace", name))

    await gone(kube, vmi("inside", name))
    await gone(kube, ref("v1", "Namespace", name))


async def test_a_pod_that_is_bound_to_a_node_stays_there(kube: Client, make_namespace: MakeNamespace) -> None:
    namespace = await make_namespace()
    node = await make_node(kube, f"node-of-{namespace}", allocatable={"nvidia.com/GPU": "8"})
    made = await kube.create(pod("bound", namespace))

    await bind_pod(kube, made, node["metadata"]["name"])

    assert (await kube.get(made))["spec"]["nodeName"] == node["metadata"]["name"]
    assert (await kube.get(node))["status"]["allocatable"]["nvidia.com/GPU"] == "8"
    await kube.delete(node)


@ON_NEWEST
@pytest.mark.parametrize("end", [ControlPlane.kill_apiserver, ControlPlane.terminate_apiserver])
async def test_an_api_server_that_has_ended_comes_back_on_its_port(
    plane: ControlPlane, kube: Client, end: Callable[[ControlPlane], None]
) -> None:
    # Given an object, and an API server that has ended
    url, kept = plane.url, ref("v1", "ConfigMap", "kept", "default")
    await kube.create(kept)
    await asyncio.to_thread(end, plane)
    with pytest.raises(OSError, match=r"Cannot connect|Server disconnected"):
        await kube.get(kept)

    # When it is started again
    await asyncio.to_thread(plane.start_apiserver)

    # Then the same client finds the object there
    assert (plane.url, (await kube.get(kept))["metadata"]["name"]) == (url, "kept")
    await kube.delete(kept)


@ON_NEWEST
async def test_controllers_that_are_restarted_know_kinds_that_came_later(
    plane: ControlPlane, kube: Client, make_namespace: MakeNamespace
) -> None:
    # Given a kind that came when the controllers were there already, and a quota on it
    late = crd("late.example.org", "Latecomer", {"v1": {"spec": ANYTHING}})
    quota = ref("v1", "ResourceQuota", "latecomers", await make_namespace())
    await kube.create(late)
    await kube.create({**quota, "spec": {"hard": {"count/latecomers.late.example.org": "1"}}})

    # When they are restarted
    await asyncio.to_thread(plane.restart_controller_manager)

    # Then they count its objects
    async def counted() -> bool:
        return bool((await kube.get(quota))["status"].get("used") == {"count/latecomers.late.example.org": "0"})

    await eventually(counted)
    await kube.delete(late)


@ON_NEWEST
async def test_what_was_before_a_compaction_has_expired(plane: ControlPlane, kube: Client) -> None:
    # Given a place in the history of config maps, and something that happened since
    past = (await kube.raw("GET", "/api/v1/configmaps"))["metadata"]["resourceVersion"]
    await kube.delete(await kube.create(ref("v1", "ConfigMap", "marker", "default")))

    # When etcd forgets it, and the API server has lost what it remembered itself
    await plane.compact_etcd()
    await asyncio.to_thread(plane.kill_apiserver)
    await asyncio.to_thread(plane.start_apiserver)

    # Then neither can what was there be listed, nor what happened since be watched
    with pytest.raises(APIError) as unlisted:
        await kube.list("v1", "ConfigMap", resourceVersion=past, resourceVersionMatch="Exact")
    with pytest.raises(APIError) as unwatched:
        await anext(kube.watch("v1", "ConfigMap", resourceVersion=past))
    assert [(refused.value.code, refused.value.reason) for refused in (unlisted, unwatched)] == [(410, "Expired")] * 2


@ON_NEWEST
async def test_a_watch_tells_what_happens(kube: Client, make_namespace: MakeNamespace) -> None:
    namespace = await make_namespace()
    told = ref("v1", "ConfigMap", "told", namespace)
    past = (await kube.raw("GET", f"/api/v1/namespaces/{namespace}/configmaps"))["metadata"]["resourceVersion"]
    watched = kube.watch("v1", "ConfigMap", namespace, resourceVersion=past, fieldSelector="metadata.name=told")

    await kube.create(told)
    await kube.delete(told)

    happened = [(await anext(watched))[0] for _ in range(2)]
    await watched.aclose()
    assert happened == ["ADDED", "DELETED"]


@ON_NEWEST
async def test_every_request_is_in_the_audit_log(plane: ControlPlane, tenant: Tenant) -> None:
    mark = plane.audited

    await tenant.kube.create(ref("v1", "ConfigMap", "audited", tenant.namespace))

    [event] = [e for e in plane.audit_events(since=mark) if e["objectRef"].get("name") == "audited"]
    assert (event["verb"], event["impersonatedUser"]["username"]) == ("create", tenant.user)


@ON_NEWEST
async def test_warnings_come_with_the_answer(kube: Client, make_namespace: MakeNamespace) -> None:
    namespace = await make_namespace(labels={"pod-security.kubernetes.io/warn": "restricted"})

    answer: Answer = await kube.create(pod("lax", namespace), dry_run=True)

    assert any('would violate PodSecurity "restricted' in warning for warning in answer.warnings), answer.warnings


@ON_NEWEST
async def test_objects_are_changed_by_each_kind_of_write(kube: Client, make_namespace: MakeNamespace) -> None:
    written = ref("v1", "ConfigMap", "written", await make_namespace())

    created = await kube.create({**written, "data": {"a": "1"}})
    await kube.update({**created, "data": {"a": "2"}})
    await kube.patch(written, {"data": {"b": "3"}})
    await kube.patch(written, [{"op": "test", "path": "/data/b", "value": "3"}, {"op": "remove", "path": "/data/b"}])
    await kube.patch(written, {"data": {"c": "4"}}, dry_run=True)
    with pytest.raises(APIError) as conflict:
        await kube.apply({**written, "data": {"a": "5"}}, manager="other")
    await kube.apply({**written, "data": {"a": "5"}}, manager="other", force=True)

    assert conflict.value.code == 409
    assert [cause["field"] for cause in conflict.value.causes] == [".data.a"]
    assert (await kube.get(written))["data"] == {"a": "5"}


@ON_NEWEST
async def test_helm_acts_as_whom_it_is_told_to(plane: ControlPlane, tenant: Tenant) -> None:
    listed = await asyncio.to_thread(
        plane.helm, "list", "--namespace", tenant.namespace, "--output", "json", user=tenant.user
    )

    with pytest.raises(HelmError, match="cannot list resource"):
        await asyncio.to_thread(plane.helm, "list", "--namespace", "default", user=tenant.user)
    assert json.loads(listed) == []
