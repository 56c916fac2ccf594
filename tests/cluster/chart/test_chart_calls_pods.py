"""Of which pods and devices the API server asks the pair: counted by a webhook that lets everything in."""

from collections.abc import Mapping
from typing import Any

import pytest
from actors import VIRT_CONTROLLER
from asking import CLAIM, H200, LABEL, PLAIN_NAMES, TENANT, calls_of, container, device, pod
from controlplane.client import Client
from recorder import Call, Recorder
from release import NAMESPACE
from waiting import eventually

from gpu import names

PODS_THAT_ASK: Mapping[str, dict[str, Any]] = {
    "a container": {"containers": {**PLAIN_NAMES, H200: "1"}},
    "a later container": {"sidecars": [container("b", {H200: "1"})]},
    "an init container": {"initContainers": [container("a", {H200: "1"})]},
    "a sidecar": {"initContainers": [container("a", {H200: "1"}, restartPolicy="Always")]},
    "a limit of zero": {"containers": {H200: "0"}},
    "a DeviceClass as a resource": {"containers": {"deviceclass.resource.kubernetes.io/gpu.nvidia.com": "1"}},
    "a claim": {"resourceClaims": [CLAIM]},
    "a claim template": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "my-claims"}]},
}
PLAIN_PODS: Mapping[str, dict[str, Any]] = {
    "nothing": {"containers": {}},
    "other resources": {"initContainers": [container("a", PLAIN_NAMES)]},
    "KubeVirt's devices": {
        "containers": {**PLAIN_NAMES, "devices.kubevirt.io/kvm": "1", "devices.kubevirt.io/tun": "1"}
    },
    "the label alone": {"labels": LABEL},
    "resources of its own": {"resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}},
}


@pytest.mark.parametrize("user", ["admin", VIRT_CONTROLLER])
async def test_a_new_pod_that_asks_for_devices_is_judged(
    kube: Client, recorder: Recorder, tenant: str, user: str
) -> None:
    found = await calls_of(
        kube.as_(user, ["system:masters"]), recorder, {case: pod(**parts) for case, parts in PODS_THAT_ASK.items()}
    )

    assert found == {case: [Call("/validate", "CREATE", "Pod", "v1", tenant, "5s")] for case in PODS_THAT_ASK}


@pytest.mark.usefixtures("tenant")
async def test_a_plain_pod_is_not(kube: Client, recorder: Recorder) -> None:
    found = await calls_of(kube, recorder, {case: pod(**parts) for case, parts in PLAIN_PODS.items()})

    assert found == {case: [] for case in PLAIN_PODS}


@pytest.mark.usefixtures("tenant")
async def test_what_becomes_of_a_pod_is_not(kube: Client, recorder: Recorder) -> None:
    running = await kube.create(pod(labels=LABEL, containers={H200: "1"}))
    recorder.taken()

    await kube.patch(running, {"metadata": {"labels": {"a": "b"}}})
    await kube.patch(running, {"status": {"phase": "Failed"}}, subresource="status")
    await kube.delete(running)

    assert recorder.taken() == []


@pytest.mark.usefixtures("tenant")
async def test_what_a_limit_range_adds_to_a_pod_counts(kube: Client, recorder: Recorder) -> None:
    limits = {"type": "Container", "default": {H200: "1"}, "defaultRequest": {H200: "1"}}
    limit_range = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "gpus", "namespace": TENANT},
        "spec": {"limits": [limits]},
    }
    await kube.create(limit_range)

    async def added() -> bool:
        recorder.taken()
        await kube.create(pod(), dry_run=True)
        return [call.path for call in recorder.taken()] == ["/validate"]

    try:
        await eventually(added)
    finally:
        await kube.delete(limit_range)


async def test_a_runtime_class_whose_overhead_has_a_gpu_counts(kube: Client, recorder: Recorder, tenant: str) -> None:
    runtime = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "gpu-overhead"},
        "handler": "a",
        "overhead": {"podFixed": {H200: "1"}},
    }
    await kube.create(runtime)
    recorder.taken()

    async def known() -> bool:
        await kube.create(pod(runtimeClassName="gpu-overhead"), dry_run=True)
        return True

    try:
        await eventually(known)
        assert recorder.taken() == [Call("/validate", "CREATE", "Pod", "v1", tenant, "5s")]
    finally:
        await kube.delete(runtime)


async def test_a_launcher_with_the_label_is_pinned_before_it_is_judged(
    kube: Client, recorder: Recorder, tenant: str
) -> None:
    launcher = pod(labels=LABEL, containers={H200: "1"})
    recorder.taken()

    await kube.as_(VIRT_CONTROLLER).create(launcher, dry_run=True)

    assert [(call.path, call.namespace) for call in recorder.taken()] == [("/mutate", tenant), ("/validate", tenant)]


@pytest.mark.parametrize(
    ("user", "labels"),
    [("admin", LABEL), (f"system:serviceaccount:{TENANT}:kubevirt-controller", LABEL), (VIRT_CONTROLLER, {})],
    ids=["an admin's", "one of another kubevirt-controller", "one without the label"],
)
@pytest.mark.usefixtures("tenant")
async def test_another_pod_is_not_pinned(kube: Client, recorder: Recorder, user: str, labels: dict[str, str]) -> None:
    recorder.taken()

    await kube.as_(user, ["system:masters"]).create(pod(labels=labels, containers={H200: "1"}), dry_run=True)

    assert [call.path for call in recorder.taken()] == ["/validate"]


@pytest.mark.parametrize(
    "user", ["jane", f"system:serviceaccount:{TENANT}:gpu-webhooks", "system:kube-controller-manager"]
)
async def test_a_new_device_is_judged(kube: Client, recorder: Recorder, tenant: str, user: str) -> None:
    recorder.taken()

    await kube.as_(user, ["system:masters"]).create(device(), dry_run=True)

    assert recorder.taken() == [Call("/validate", "CREATE", names.GPU_DEVICE, "v1alpha1", tenant, "5s")]


@pytest.mark.usefixtures("tenant")
async def test_a_device_that_the_pair_builds_is_not_and_it_may(kube: Client, recorder: Recorder) -> None:
    recorder.taken()

    await kube.as_(f"system:serviceaccount:{NAMESPACE}:gpu-webhooks").create(device())

    assert recorder.taken() == []


@pytest.mark.usefixtures("tenant")
async def test_what_becomes_of_a_device_is_not_judged(kube: Client, recorder: Recorder) -> None:
    ordered = device()
    await kube.create(ordered)
    recorder.taken()

    await kube.patch(ordered, {"metadata": {"labels": {"a": "b"}}})
    await kube.patch(ordered, {"status": {"phase": "Pending"}}, subresource="status")
    await kube.delete(ordered)

    assert recorder.taken() == []
