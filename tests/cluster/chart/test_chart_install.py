"""The chart on a real API server: installed, upgraded, applied by others, uninstalled."""

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from actors import HOST_LABEL
from controlplane.client import Client, ref
from controlplane.errors import APIError, HelmError
from controlplane.plane import ControlPlane
from controlplane.versions import NEWEST
from gpukinds import gpu_class
from hooks import jobs_run
from release import EVERYTHING, NAMESPACE, helm, installed, plain, rendered, standing, uninstall
from structural import ANYTHING, crd
from waiting import eventually, exists, gone

from gpu import names

ADMISSION = "admissionregistration.k8s.io/v1"
RBAC = "rbac.authorization.k8s.io/v1"
CONFIGURATIONS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
SERVICE = f"system:serviceaccount:{NAMESPACE}:gpu-webhooks"
OF_A_RELEASE = [
    *((ADMISSION, kind) for kind in (*CONFIGURATIONS, *POLICIES)),
    *((RBAC, kind) for kind in ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")),
    *(("v1", kind) for kind in ("ServiceAccount", "Service", "ConfigMap", "Pod")),
    ("apps/v1", "Deployment"),
    ("policy/v1", "PodDisruptionBudget"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("monitoring.coreos.com/v1", "ServiceMonitor"),
    ("monitoring.coreos.com/v1", "PrometheusRule"),
]
CRDS = [
    ref("apiextensions.k8s.io/v1", "CustomResourceDefinition", f"{plural}.gpu.cozystack.io")
    for plural in ("gpuclasses", "gpudevices")
]
MONITORS = [
    crd("monitoring.coreos.com", kind, {"v1": {"spec": ANYTHING}}) for kind in ("ServiceMonitor", "PrometheusRule")
]
NEWEST_ALONE = pytest.mark.parametrize("plane", [NEWEST], indirect=True)
ORDER = {**ref(names.API_VERSION, names.GPU_DEVICE, "my-gpu", "default"), "spec": {"className": "h200"}}


@pytest.fixture
async def monitors(kube: Client) -> AsyncIterator[None]:
    """Prometheus's operator is there, as far as the chart is concerned."""
    for monitor in MONITORS:
        await kube.apply(monitor)
    await eventually(lambda: _served(kube))
    yield
    for monitor in MONITORS:
        await kube.delete(monitor)
        await gone(kube, monitor)


async def _served(kube: Client) -> bool:
    group = "/apis/monitoring.coreos.com/v1"
    found = [await kube.raw("GET", f"{group}/{plural}") for plural in ("servicemonitors", "prometheusrules")]
    return all("items" in one for one in found)


async def of_the_release(kube: Client) -> set[tuple[str, str]]:
    """Kind and name of what is there with the release's label, but for its CRDs."""
    found = set()
    for version, kind in OF_A_RELEASE:
        for obj in await kube.list(version, kind, labelSelector="app.kubernetes.io/name=gpu-webhooks"):
            found.add((kind, obj["metadata"]["name"]))
    return found


async def forget(kube: Client) -> None:
    """Take the CRDs out, so that another release can bring them."""
    for definition in CRDS:
        if await exists(kube, definition):
            await kube.delete(definition)
            await gone(kube, definition)


@pytest.mark.usefixtures("monitors")
@pytest.mark.parametrize(
    ("namespace", "values"), [(NAMESPACE, {}), ("default", EVERYTHING)], ids=["as it comes", "everything, in default"]
)
async def test_it_installs_upgrades_and_leaves_nothing_but_orders(
    plane: ControlPlane, kube: Client, namespace: str, values: Mapping[str, Any]
) -> None:
    await forget(kube)
    with installed(plane, values, "--create-namespace", namespace=namespace, checked=True):
        await eventually(lambda: _order(kube))
        helm(plane, "upgrade", values, namespace=namespace, checked=True)
        hooks = [obj for obj in rendered(plane, values, namespace=namespace) if "helm.sh/hook" in str(obj["metadata"])]
        wanted = {
            (obj["kind"], obj["metadata"]["name"])
            for obj in rendered(plane, values, namespace=namespace)
            if obj not in hooks and obj["kind"] != "CustomResourceDefinition"
        }
        assert {one for one in await of_the_release(kube) if one[0] != "Pod"} == wanted

    await eventually(lambda: _nothing(kube))
    assert [await exists(kube, definition) for definition in CRDS] == [True, True]
    await kube.get(ORDER)
    await kube.delete(ORDER)


async def _order(kube: Client) -> bool:
    await kube.apply(ORDER)
    return True


async def _nothing(kube: Client) -> bool:
    return await _is_left(kube, set())


async def _is_left(kube: Client, wanted: set[tuple[str, str]]) -> bool:
    return await of_the_release(kube) == wanted


@pytest.mark.usefixtures("monitors", "no_release")
async def test_the_api_server_warns_of_nothing_in_it(plane: ControlPlane, kube: Client) -> None:
    await kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for obj in (obj for obj in rendered(plane, EVERYTHING) if obj["kind"] != "Pod"):
        answer = await kube.apply(obj, manager="anybody", dry_run=True)
        assert (obj["kind"], answer.warnings) == (obj["kind"], [])


@pytest.mark.usefixtures("monitors")
async def test_its_pods_are_let_in_where_pods_are_restricted(plane: ControlPlane, kube: Client) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted"}
    await kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})

    async def both() -> bool:
        return len(await kube.list("v1", "Pod", NAMESPACE, labelSelector="app.kubernetes.io/component=admission")) == 2

    with installed(plane, {}):
        await eventually(both)
        [doctor] = [obj for obj in rendered(plane, EVERYTHING) if obj["kind"] == "Pod"]
        doctor["spec"].pop("serviceAccountName")
        assert (await kube.create(doctor, dry_run=True)).warnings == []
    await kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})


BUNDLE = base64.b64encode(b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n").decode()


@pytest.fixture
async def release(plane: ControlPlane, kube: Client) -> None:
    """The chart is there, and the service has put its authority into the webhook configurations."""
    standing.on(plane, plain)
    await inject(kube.as_(SERVICE))
    assert await bundles(kube) == [BUNDLE] * 8


async def inject(kube: Client) -> None:
    """What the service does: the field alone, by server-side apply, with its own rights."""
    for kind in CONFIGURATIONS:
        named = ref(ADMISSION, kind, "gpu-webhooks")
        there = await kube.get(named)
        parts = [{"name": one["name"], "clientConfig": {"caBundle": BUNDLE}} for one in there["webhooks"]]
        await kube.apply({**named, "webhooks": parts}, manager="gpu-webhooks-certificates")


async def bundles(kube: Client) -> list[str | None]:
    found = [await kube.get(ref(ADMISSION, kind, "gpu-webhooks")) for kind in CONFIGURATIONS]
    return [one["clientConfig"].get("caBundle") for configuration in found for one in configuration["webhooks"]]


OTHER_VALUES = {"tenantNamespaceSelector": {"matchLabels": {"a": "b"}}, "kubevirt": {"namespace": "cozy-kubevirt"}}


@pytest.mark.usefixtures("release")
async def test_an_upgrade_leaves_the_bundle_alone(plane: ControlPlane, kube: Client) -> None:
    changes: tuple[tuple[str, dict[str, Any], dict[str, str] | None], ...] = (
        ("--server-side=true", OTHER_VALUES, {"a": "b"}),
        ("--server-side=false", {}, None),
    )
    for how, values, labels in changes:
        helm(plane, "upgrade", values, how)

        assert await bundles(kube) == [BUNDLE] * 8
        for kind in CONFIGURATIONS:
            for webhook in (await kube.get(ref(ADMISSION, kind, "gpu-webhooks")))["webhooks"]:
                assert webhook["namespaceSelector"].get("matchLabels") == labels


@pytest.mark.usefixtures("release")
async def test_a_tool_that_applies_the_rendered_chart_leaves_the_bundle_alone(
    plane: ControlPlane, kube: Client
) -> None:
    for manager in ("argocd-controller", "kustomize-controller"):
        for values in ({}, OTHER_VALUES, {}):
            for obj in rendered(plane, values):
                if obj["kind"] in CONFIGURATIONS:
                    await kube.apply(obj, manager=manager, force=True)

        assert await bundles(kube) == [BUNDLE] * 8


@NEWEST_ALONE
@pytest.mark.usefixtures("release")
async def test_an_upgrade_between_a_service_inside_and_one_outside_keeps_the_bundle(
    plane: ControlPlane, kube: Client
) -> None:
    helm(plane, "upgrade", {"webhooks": {"url": "https://127.0.0.1:9443"}})

    configuration = await kube.get(ref(ADMISSION, CONFIGURATIONS[1], "gpu-webhooks"))
    assert {one["clientConfig"].get("url") for one in configuration["webhooks"]} == {"https://127.0.0.1:9443/validate"}
    assert await bundles(kube) == [BUNDLE] * 8

    helm(plane, "upgrade", {})

    configuration = await kube.get(ref(ADMISSION, CONFIGURATIONS[1], "gpu-webhooks"))
    assert {one["clientConfig"].get("url") for one in configuration["webhooks"]} == {None}
    assert await bundles(kube) == [BUNDLE] * 8


@NEWEST_ALONE
@pytest.mark.usefixtures("release")
async def test_what_was_edited_by_hand_is_told_by_an_upgrade_and_put_right_when_forced(
    plane: ControlPlane, kube: Client
) -> None:
    named = ref(ADMISSION, CONFIGURATIONS[1], "gpu-webhooks")
    await kube.patch(named, [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}])

    with pytest.raises(HelmError, match="conflict"):
        helm(plane, "upgrade", {}, "--server-side=true")
    helm(plane, "upgrade", {}, "--server-side=true", "--force-conflicts")

    assert (await kube.get(named))["webhooks"][0]["failurePolicy"] == "Fail"
    assert await bundles(kube) == [BUNDLE] * 8


OFFER = gpu_class()
OURS = {"gpuclasses": "gpu.cozystack.io/class-protection", "gpudevices": "gpu.cozystack.io/device"}


async def held(kube: Client) -> None:
    """A class and an order of it carry our finalizers, as while the controller runs; the order somebody else's too."""
    await eventually(lambda: kube.apply(OFFER))
    await eventually(lambda: _order(kube))
    await kube.patch(OFFER, {"metadata": {"finalizers": [OURS["gpuclasses"]]}})
    await kube.patch(ORDER, {"metadata": {"finalizers": [OURS["gpudevices"], "a.example/b"]}})


async def let_go(kube: Client) -> bool:
    """Whether our finalizers are off, and nothing else."""
    found = [(await kube.get(obj))["metadata"].get("finalizers") for obj in (OFFER, ORDER)]
    return found == [None, ["a.example/b"]]


@NEWEST_ALONE
@pytest.mark.usefixtures("monitors", "release")
async def test_switched_off_it_blocks_nobody_and_keeps_orders_which_can_be_deleted(
    plane: ControlPlane, kube: Client
) -> None:
    await held(kube)

    async with jobs_run(kube, plane, NAMESPACE) as said:
        await asyncio.to_thread(helm, plane, "upgrade", {"gpus": {"enabled": False}})

    assert said == ["released 1 devices and 1 classes; the orders stay\n"]
    assert await let_go(kube)
    reserved = {(kind, "usage-monitor.gpu.cozystack.io") for kind in POLICIES}
    await eventually(lambda: _is_left(kube, reserved))
    async with jobs_run(kube, plane, NAMESPACE) as said:
        await asyncio.to_thread(helm, plane, "upgrade", {"gpus": {"enabled": False}})
    assert said == ["released 0 devices and 0 classes; the orders stay\n"]
    helm(plane, "upgrade", {})
    assert await bundles(kube) == [None] * 8
    await kube.patch(ORDER, {"metadata": {"finalizers": None}})
    await kube.delete(ORDER)
    await kube.delete(OFFER)
    await gone(kube, OFFER, seconds=5)


@NEWEST_ALONE
@pytest.mark.usefixtures("monitors")
async def test_an_uninstall_lets_go_of_everything_so_that_the_crds_can_be_deleted(
    plane: ControlPlane, kube: Client
) -> None:
    helm(plane, "install", {}, "--create-namespace", "--take-ownership")
    await held(kube)

    async with jobs_run(kube, plane, NAMESPACE) as said:
        await asyncio.to_thread(uninstall, plane, "--timeout=90s")

    assert said == ["released 1 devices and 1 classes; the orders stay\n"]
    assert await let_go(kube)
    await eventually(lambda: _nothing(kube))
    await kube.patch(ORDER, {"metadata": {"finalizers": None}})
    await forget(kube)


@NEWEST_ALONE
async def test_a_release_of_another_name_takes_the_crds_over(plane: ControlPlane, kube: Client) -> None:
    with installed(plane, {}):
        await eventually(lambda: _order(kube))

    with pytest.raises(HelmError, match="invalid ownership metadata"):
        helm(plane, "install", {}, name="other")
    helm(plane, "install", {}, "--take-ownership", name="other")
    await kube.get(ORDER)

    await kube.delete(ORDER)
    uninstall(plane, name="other")
    await forget(kube)


@pytest.mark.parametrize("values", [{}, {"webhooks": {"url": "https://127.0.0.1:1"}}], ids=["no bundle", "closed port"])
async def test_before_the_service_is_there_only_what_asks_for_devices_is_refused(
    plane: ControlPlane, kube: Client, values: dict[str, Any]
) -> None:
    labels = {HOST_LABEL: "a"}
    await kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "waiting", "labels": labels}})
    await eventually(lambda: kube.get(ref("v1", "ServiceAccount", "default", "waiting")))
    with installed(plane, values):
        # no policy knows this name, so that it is the service's to judge
        await kube.create({**ref("v1", "ConfigMap", names.SETTINGS, NAMESPACE), "data": {}})
        gpus = {"devices": {"hostDevices": [{"name": "a", "deviceName": "nvidia.com/a"}]}}
        await eventually(lambda: refused(kube, vmi("a", gpus)))
        limits = {"nvidia.com/a": "1"}
        assert await refused(kube, pod(limits))
        assert await refused(kube, {**ORDER, "metadata": {"name": "a", "namespace": "waiting"}})

        await eventually(lambda: kube.create(vmi("a", {"devices": {}})))
        await kube.create(pod({"cpu": "1", "devices.kubevirt.io/kvm": "1"}))
        vm = {"runStrategy": "Halted", "template": {"spec": {"domain": gpus}}}
        await kube.create({**ref("kubevirt.io/v1", "VirtualMachine", "a", "waiting"), "spec": vm})
        await kube.patch(vmi("a", {"devices": {}}), {"status": {"phase": "Running"}})
        await kube.delete(ref("v1", "Namespace", "waiting"))
        await gone(kube, ref("v1", "Namespace", "waiting"))
        await kube.delete(ref("v1", "ConfigMap", names.SETTINGS, NAMESPACE))


def vmi(name: str, domain: dict[str, Any]) -> dict[str, Any]:
    return {**ref("kubevirt.io/v1", "VirtualMachineInstance", name, "waiting"), "spec": {"domain": domain}}


def pod(limits: Mapping[str, str]) -> dict[str, Any]:
    container = {"name": "a", "image": "a", "resources": {"limits": limits}}
    return {**ref("v1", "Pod", "a", "waiting"), "spec": {"containers": [container]}}


async def refused(kube: Client, obj: Mapping[str, Any]) -> bool:
    try:
        await kube.create(obj, dry_run=True)
    except APIError as error:
        return error.code == 500 and "failed calling webhook" in error.message
    return False
