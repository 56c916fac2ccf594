"""The virt-launcher pod on /mutate: pinned to the node that its GPUs are held on."""

from copy import deepcopy
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from gpu.errors import CatalogError
from gpu.gpudevice import GPUDevice
from gpu.offer import Offer
from webhooks.settings import Settings
from webhooks.testing import ADMIN, TENANT, VIRT_CONTROLLER, InMemoryCatalog, Pair, User, assert_patched, review
from webhooks.virtcontroller import launcher_of

Obj: TypeAlias = dict[str, Any]

EXAMPLES = Path(__file__).parents[2] / "examples"
REFERENCE = "gpu.cozystack.io/device-reference"
MIGRATION_JOB = "kubevirt.io/migrationJobUID"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
L40S = "nvidia.com/L40S-24Q"
H200 = "nvidia.com/GH100_H200_SXM_141GB"
OTHER_KUBEVIRT = User("system:serviceaccount:virt:kubevirt-controller", ("system:serviceaccounts:virt",))
MIGRATION = {"uid": "m-1", "nodeName": "gpu-node-3"}

IN_ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
PREFERRED = [{"weight": 1, "preference": {"matchExpressions": [IN_ZONE]}}]


def vmi(name: str, uid_end: str, resource_name: str, count: int) -> Obj:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {
            "name": name,
            "namespace": "tenant-a",
            "uid": f"3c1d1d2e-52f4-4c2a-9d3e-0f6f1f4a7b{uid_end}",
            "labels": {REFERENCE: f"{name}-gpu"},
        },
        "spec": {
            "domain": {
                "devices": {"gpus": [{"name": f"gpu-{n}", "deviceName": resource_name} for n in range(count)]},
            },
        },
    }


DESK = vmi("desk", "01", L40S, 1)
"""Its device is held on gpu-node-2 and bound to it."""

LAB = vmi("lab", "02", H200, 2)
"""Its device waits."""


def on(node: str) -> Obj:
    return {"key": "metadata.name", "operator": "In", "values": [node]}


def required(*terms: Obj) -> Obj:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


def launcher(of: Obj = DESK, labels: Obj | None = None) -> Obj:
    pod = launcher_of(of)
    pod["metadata"]["labels"].update(labels or {})
    return pod


def without_gpus(pod: Obj) -> Obj:
    pod["spec"]["containers"][0]["resources"] = {"limits": {"devices.kubevirt.io/kvm": "1"}}
    return pod


async def test_the_pod_is_held_to_its_devices_node_and_nothing_else_of_it_changes(gpu_pair: Pair) -> None:
    pod = launcher()
    expected = deepcopy(pod)
    expected["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"][0]["matchFields"] = [on("gpu-node-2")]

    reply = await gpu_pair.mutate(review(pod, user=VIRT_CONTROLLER))

    assert_patched(reply, pod, expected)


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        pytest.param(None, required({"matchFields": [on("gpu-node-2")]}), id="null"),
        pytest.param({}, required({"matchFields": [on("gpu-node-2")]}), id="empty"),
        pytest.param({"nodeAffinity": None}, required({"matchFields": [on("gpu-node-2")]}), id="null node affinity"),
        pytest.param(
            {"nodeAffinity": {REQUIRED: None}}, required({"matchFields": [on("gpu-node-2")]}), id="null required"
        ),
        pytest.param(
            {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": None}}},
            required({"matchFields": [on("gpu-node-2")]}),
            id="null terms",
        ),
        pytest.param(required(), required({"matchFields": [on("gpu-node-2")]}), id="empty terms"),
        pytest.param(
            {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": PREFERRED}},
            {
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": PREFERRED,
                    REQUIRED: {"nodeSelectorTerms": [{"matchFields": [on("gpu-node-2")]}]},
                }
            },
            id="preferred only",
        ),
        pytest.param(
            {"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone"}]}},
            {
                "podAntiAffinity": {REQUIRED: [{"topologyKey": "zone"}]},
                **required({"matchFields": [on("gpu-node-2")]}),
            },
            id="other affinities only",
        ),
        pytest.param(
            required({"matchExpressions": [IN_ZONE]}, {"matchFields": [on("gpu-node-2")]}, {"matchFields": None}, {}),
            required(
                {"matchExpressions": [IN_ZONE], "matchFields": [on("gpu-node-2")]},
                {"matchFields": [on("gpu-node-2")]},
                {"matchFields": [on("gpu-node-2")]},
                {"matchFields": [on("gpu-node-2")]},
            ),
            id="every term",
        ),
        pytest.param(
            required({"matchExpressions": [IN_ZONE], "matchFields": [on("gpu-node-7")]}),
            required({"matchExpressions": [IN_ZONE], "matchFields": [on("gpu-node-7"), on("gpu-node-2")]}),
            id="beside another match field",
        ),
    ],
)
async def test_the_node_is_added_to_whatever_affinity_the_pod_has(
    gpu_pair: Pair, affinity: Obj | None, expected: Obj
) -> None:
    pod = launcher()
    pod["spec"]["affinity"] = affinity

    reply = await gpu_pair.mutate(review(pod, user=VIRT_CONTROLLER))

    assert_patched(reply, pod, {**pod, "spec": {**pod["spec"], "affinity": expected}})


async def test_a_pod_without_any_affinity_gets_one(gpu_pair: Pair) -> None:
    pod = launcher()
    del pod["spec"]["affinity"]

    reply = await gpu_pair.mutate(review(pod, user=VIRT_CONTROLLER))

    expected = required({"matchFields": [on("gpu-node-2")]})
    assert_patched(reply, pod, {**pod, "spec": {**pod["spec"], "affinity": expected}})


async def test_a_pod_that_is_pinned_already_is_left_as_it_is(gpu_pair: Pair) -> None:
    pod = launcher()
    pod["spec"]["affinity"] = required({"matchExpressions": [IN_ZONE], "matchFields": [on("gpu-node-2")]})

    reply = await gpu_pair.mutate(review(pod, user=VIRT_CONTROLLER))

    assert reply.allowed
    assert reply.patch == ()


async def test_mutated_twice_is_mutated_once(gpu_pair: Pair) -> None:
    pod = launcher()
    pod["spec"]["affinity"] = required({"matchExpressions": [IN_ZONE]}, {})
    first = await gpu_pair.mutate(review(pod, user=VIRT_CONTROLLER))

    second = await gpu_pair.mutate(review(first.applied_to(pod), user=VIRT_CONTROLLER))

    assert first.patch
    assert second.allowed
    assert second.patch == ()


async def test_what_the_mutating_path_pins_the_validating_path_lets_in(gpu_pair: Pair) -> None:
    admitted = await gpu_pair.admit(launcher(), user=VIRT_CONTROLLER)

    assert admitted.allowed


@pytest.mark.parametrize("user", [TENANT, ADMIN, OTHER_KUBEVIRT], ids=lambda user: user.username)
async def test_pods_of_anybody_else_are_not_touched(gpu_pair: Pair, user: User) -> None:
    reply = await gpu_pair.mutate(review(launcher(), user=user))

    assert reply.allowed
    assert reply.patch == ()


@pytest.mark.parametrize("labels", [None, {}, {"app": "x"}], ids=["null", "none", "others"])
async def test_pods_without_the_label_are_not_touched(gpu_pair: Pair, labels: Obj | None) -> None:
    pod = launcher()
    pod["metadata"]["labels"] = labels

    reply = await gpu_pair.mutate(review(pod, user=VIRT_CONTROLLER))

    assert reply.allowed
    assert reply.patch == ()


class TestKubeVirtInAnotherNamespace:
    @pytest.fixture
    def gpu_settings(self) -> Settings:
        return Settings(kubevirt_namespace="virt")

    async def test_its_virt_controllers_pods_are_pinned(self, gpu_pair: Pair) -> None:
        reply = await gpu_pair.mutate(review(launcher(), user=OTHER_KUBEVIRT))

        assert reply.allowed
        assert reply.patch

    async def test_the_usual_accounts_are_not(self, gpu_pair: Pair) -> None:
        reply = await gpu_pair.mutate(review(launcher(), user=VIRT_CONTROLLER))

        assert reply.allowed
        assert reply.patch == ()


async def test_a_device_in_use_that_is_being_deleted_still_pins_its_pod(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    gpu_catalog.hold("tenant-a", "desk-gpu", node="gpu-node-5", vmi=DESK, phase="Releasing")

    reply = await gpu_pair.mutate(review(launcher(), user=VIRT_CONTROLLER))

    assert on("gpu-node-5") in reply.patch[0]["value"]


async def test_a_migration_target_is_pinned_to_the_reserved_node(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    gpu_catalog.hold("tenant-a", "desk-gpu", node="gpu-node-2", vmi=DESK, migration=MIGRATION)
    pod = launcher(labels={MIGRATION_JOB: "m-1"})

    reply = await gpu_pair.mutate(review(pod, user=VIRT_CONTROLLER))

    terms = reply.applied_to(pod)["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert [term["matchFields"] for term in terms] == [[on("gpu-node-3")]]


async def test_the_source_of_a_migration_is_pinned_to_the_devices_own_node(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    gpu_catalog.hold("tenant-a", "desk-gpu", node="gpu-node-2", vmi=DESK, migration=MIGRATION)

    reply = await gpu_pair.mutate(review(launcher(), user=VIRT_CONTROLLER))

    assert reply.patch[0]["value"] == [on("gpu-node-2")]


async def test_a_node_that_memory_lacks_is_read_afresh(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    with gpu_catalog.stale():
        gpu_catalog.hold("tenant-a", "lab-gpu", node="gpu-node-1", vmi=LAB)

        reply = await gpu_pair.mutate(review(launcher(LAB), user=VIRT_CONTROLLER))

    assert reply.patch[0]["value"] == [on("gpu-node-1")]


async def test_a_device_that_memory_lacks_is_read_afresh(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    gpu_catalog.remove("GPUDevice", "tenant-a", "desk-gpu")
    order = {"kind": "GPUDevice", "metadata": {"name": "desk-gpu", "namespace": "tenant-a"}}
    with gpu_catalog.stale():
        gpu_catalog.add({**order, "spec": {"className": "l40s-24q"}})
        gpu_catalog.hold("tenant-a", "desk-gpu", node="gpu-node-6", vmi=DESK)

        reply = await gpu_pair.mutate(review(launcher(), user=VIRT_CONTROLLER))

    assert reply.patch[0]["value"] == [on("gpu-node-6")]


async def test_a_reservation_that_memory_lacks_is_read_afresh(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    old = {"uid": "m-0", "nodeName": "gpu-node-9"}
    gpu_catalog.hold("tenant-a", "desk-gpu", node="gpu-node-2", vmi=DESK, migration=old)
    with gpu_catalog.stale():
        gpu_catalog.hold("tenant-a", "desk-gpu", node="gpu-node-2", vmi=DESK, migration=MIGRATION)

        reply = await gpu_pair.mutate(review(launcher(labels={MIGRATION_JOB: "m-1"}), user=VIRT_CONTROLLER))

    assert reply.patch[0]["value"] == [on("gpu-node-3")]


NOWHERE = [
    pytest.param(launcher(LAB), 403, "not held yet", id="the device waits"),
    pytest.param(launcher(labels={REFERENCE: "ghost"}), 422, "there is no GPUDevice 'ghost'", id="no such device"),
    pytest.param(launcher(labels={REFERENCE: "../desk-gpu"}), 422, "there is no GPUDevice", id="no device's name"),
    pytest.param(launcher(labels={REFERENCE: ""}), 403, "is missing on a pod", id="an empty label"),
    pytest.param(launcher(labels={MIGRATION_JOB: "m-1"}), 403, "no node is reserved yet", id="no reservation"),
    pytest.param(launcher(labels={MIGRATION_JOB: "m-9"}), 403, "does not exist", id="a migration that is none"),
    pytest.param(launcher(labels={MIGRATION_JOB: ""}), 403, "does not exist", id="an empty migration label"),
]


@pytest.fixture
def migrating(gpu_catalog: InMemoryCatalog) -> InMemoryCatalog:
    """Migration m-1 of desk exists, and its device's reservation is another migration's."""
    metadata = {"name": "move-desk", "namespace": "tenant-a", "uid": "m-1"}
    gpu_catalog.add({"kind": "VirtualMachineInstanceMigration", "metadata": metadata})
    other = {"uid": "m-0", "nodeName": "gpu-node-3"}
    gpu_catalog.hold("tenant-a", "desk-gpu", node="gpu-node-2", vmi=DESK, migration=other)
    return gpu_catalog


@pytest.mark.usefixtures("migrating")
@pytest.mark.parametrize(("pod", "code", "message"), NOWHERE)
async def test_without_a_node_the_pod_is_refused_as_the_validating_path_would(
    gpu_pair: Pair, pod: Obj, code: int, message: str
) -> None:
    reply = await gpu_pair.mutate(review(pod, user=VIRT_CONTROLLER))

    assert not reply.allowed
    assert reply.code == code
    assert message in reply.message
    assert reply == await gpu_pair.validate(review(pod, user=VIRT_CONTROLLER))


@pytest.mark.usefixtures("migrating")
@pytest.mark.parametrize(("pod", "_code", "_message"), NOWHERE)
async def test_a_pod_with_the_label_that_asks_for_no_gpu_is_never_refused(
    gpu_pair: Pair, pod: Obj, _code: int, _message: str
) -> None:
    admitted = await gpu_pair.admit(without_gpus(deepcopy(pod)), user=VIRT_CONTROLLER)

    assert admitted.allowed
    assert admitted.mutated.patch == ()


async def test_a_waiting_pod_without_a_vmi_is_refused_as_the_validating_path_would(gpu_pair: Pair) -> None:
    pod = launcher(LAB)
    del pod["metadata"]["ownerReferences"]

    reply = await gpu_pair.mutate(review(pod, user=VIRT_CONTROLLER))

    assert reply.fields == ("metadata.ownerReferences",)
    assert reply == await gpu_pair.validate(review(pod, user=VIRT_CONTROLLER))


async def test_a_waiting_pod_with_a_name_that_is_no_gpus_any_more_is_let_in(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    pod = without_gpus(launcher(LAB))
    pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/GA100_A100_PCIE_40GB": "1"}}
    settings = {"kind": "ConfigMap", "metadata": {"name": "gpu-settings", "namespace": "gpu-system"}}
    with gpu_catalog.stale():
        gpu_catalog.add({**settings, "data": {}})

        reply = await gpu_pair.mutate(review(pod, user=VIRT_CONTROLLER))

    assert reply.allowed
    assert reply.patch == ()


class TestWhenNothingCanBeReadAfresh:
    class Unreachable(InMemoryCatalog):
        async def fresh_device(self, namespace: str, name: str) -> GPUDevice | None:
            raise CatalogError(f"GPUDevice {namespace}/{name}: connection refused")

    @pytest.fixture
    def gpu_catalog(self) -> InMemoryCatalog:
        return self.Unreachable.from_directory(EXAMPLES / "catalog")

    async def test_a_node_in_memory_is_enough(self, gpu_pair: Pair) -> None:
        reply = await gpu_pair.mutate(review(launcher(), user=VIRT_CONTROLLER))

        assert reply.patch[0]["value"] == [on("gpu-node-2")]

    async def test_without_one_the_pod_is_to_be_tried_again(self, gpu_pair: Pair) -> None:
        reply = await gpu_pair.mutate(review(launcher(LAB), user=VIRT_CONTROLLER))

        assert not reply.allowed
        assert reply.code == 503


class TestWhenTheOfferCantBeReadAfresh:
    class Unreachable(InMemoryCatalog):
        async def fresh_offer(self) -> Offer:
            raise CatalogError("ConfigMap gpu-settings: connection refused")

    @pytest.fixture
    def gpu_catalog(self) -> InMemoryCatalog:
        return self.Unreachable.from_directory(EXAMPLES / "catalog")

    async def test_a_waiting_pod_without_gpus_is_let_in(self, gpu_pair: Pair) -> None:
        reply = await gpu_pair.mutate(review(without_gpus(launcher(LAB)), user=VIRT_CONTROLLER))

        assert reply.allowed


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE"])
async def test_only_creation_is_looked_at(gpu_pair: Pair, operation: str) -> None:
    pod = launcher(LAB)
    new = None if operation == "DELETE" else pod

    reply = await gpu_pair.mutate(review(new, old=pod, operation=operation, user=VIRT_CONTROLLER))

    assert reply.allowed
    assert reply.patch == ()
