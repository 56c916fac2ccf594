"""A pod with GPUs on /validate: who makes it, whose it is, which device serves it, where it runs."""

from pathlib import Path
from typing import Any, TypeAlias

import pytest

from gpu.errors import CatalogError
from gpu.gpudevice import GPUDevice
from webhooks.settings import Settings
from webhooks.testing import ADMIN, TENANT, VIRT_CONTROLLER, InMemoryCatalog, Pair, Reply, User, review
from webhooks.virtcontroller import launcher_of

Obj: TypeAlias = dict[str, Any]

EXAMPLES = Path(__file__).parents[2] / "examples"
REFERENCE = "gpu.cozystack.io/device-reference"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
AFFINITY_FIELD = f"spec.affinity.nodeAffinity.{REQUIRED}"
L40S = "nvidia.com/L40S-24Q"
NODE = "gpu-node-2"
ASKED = f"spec.containers[0].resources.limits[{L40S}]"
OTHER_KUBEVIRT = User("system:serviceaccount:virt:kubevirt-controller", ("system:serviceaccounts:virt",))

DESK: Obj = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "metadata": {
        "name": "desk",
        "namespace": "tenant-a",
        "uid": "3c1d1d2e-52f4-4c2a-9d3e-0f6f1f4a7b01",
        "labels": {REFERENCE: "desk-gpu"},
    },
    "spec": {"domain": {"devices": {"gpus": [{"name": "gpu-0", "deviceName": L40S}]}}},
}
"""Its device is held on gpu-node-2 and bound to it."""


def required(*terms: object) -> Obj:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


def on(*nodes: str, operator: str = "In", key: str = "metadata.name") -> Obj:
    return {"key": key, "operator": operator, "values": list(nodes)}


PINNED = {"matchFields": [on(NODE)]}


def launcher(*, name: str | None = None, **metadata: Any) -> Obj:
    """The pod of desk as the mutating path leaves it; ``metadata`` takes the place of what it has there."""
    pod = launcher_of(DESK, name=name)
    pod["spec"]["affinity"] = required(PINNED)
    pod["metadata"] |= metadata
    return pod


def owner(**changes: Any) -> Obj:
    vmi = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "desk", "controller": True}
    return {**vmi, "uid": DESK["metadata"]["uid"], **changes}


async def validated(pair: Pair, pod: Obj, user: User = VIRT_CONTROLLER) -> Reply:
    return await pair.validate(review(pod, user=user))


async def test_the_pod_of_the_vmi_that_its_held_device_is_bound_to_is_let_in(gpu_pair: Pair) -> None:
    reply = await validated(gpu_pair, launcher())

    assert reply.allowed


@pytest.mark.parametrize(
    "user",
    [
        TENANT,
        ADMIN,
        OTHER_KUBEVIRT,
        User("system:serviceaccount:cozy-fluxcd:kustomize-controller", ("system:serviceaccounts:cozy-fluxcd",)),
        User("system:serviceaccount:cozy-velero:velero", ("system:masters",)),
        User("system:serviceaccount:cozy-system:gpu-controller", ("system:serviceaccounts:cozy-system",)),
        User("system:kube-controller-manager"),
        User("system:serviceaccount:kubevirt:kubevirt-handler", VIRT_CONTROLLER.groups),
        User("system:serviceaccount:kubevirt:kubevirt-controller:x", VIRT_CONTROLLER.groups),
        User("", VIRT_CONTROLLER.groups),
    ],
    ids=lambda user: user.username or "nobody",
)
async def test_only_virt_controller_makes_gpu_pods(gpu_pair: Pair, user: User) -> None:
    reply = await validated(gpu_pair, launcher(), user)

    assert (reply.allowed, reply.code, reply.fields) == (False, 403, (ASKED,))
    assert f"asks for '{L40S}' by its raw name" in reply.message


class TestKubeVirtInAnotherNamespace:
    @pytest.fixture
    def gpu_settings(self) -> Settings:
        return Settings(kubevirt_namespace="virt")

    async def test_its_virt_controllers_pods_are_let_in(self, gpu_pair: Pair) -> None:
        reply = await validated(gpu_pair, launcher(), OTHER_KUBEVIRT)

        assert reply.allowed

    async def test_those_of_the_usual_account_are_not(self, gpu_pair: Pair) -> None:
        reply = await validated(gpu_pair, launcher(), VIRT_CONTROLLER)

        assert (reply.allowed, reply.code, reply.fields) == (False, 403, (ASKED,))


@pytest.mark.parametrize(
    "owners",
    [
        pytest.param(None, id="null"),
        pytest.param([], id="none"),
        pytest.param([owner(controller=False)], id="no controller"),
        pytest.param([owner(controller=None)], id="controller null"),
        pytest.param([owner(controller="true")], id="controller a string"),
        pytest.param([owner(apiVersion="example.com/v1")], id="kind of another group"),
        pytest.param([owner(apiVersion="kubevirt.io.example.com/v1")], id="a group that begins alike"),
        pytest.param([owner(apiVersion="v1")], id="kind of the core group"),
        pytest.param([owner(apiVersion="")], id="no group"),
        pytest.param([owner(kind="VirtualMachine")], id="a VirtualMachine"),
        pytest.param([owner(apiVersion="v1", kind="Pod")], id="a Pod"),
        pytest.param([owner(apiVersion="apps/v1", kind="ReplicaSet")], id="a ReplicaSet"),
        pytest.param([owner(uid="")], id="without a uid"),
        pytest.param([owner(uid=None)], id="uid null"),
        pytest.param([owner(apiVersion="v1", kind="Pod"), owner(controller=False)], id="VMI beside the controller"),
    ],
)
async def test_the_controller_owner_has_to_be_a_vmi(gpu_pair: Pair, owners: list[Obj] | None) -> None:
    reply = await validated(gpu_pair, launcher(ownerReferences=owners))

    assert (reply.allowed, reply.code, reply.fields) == (False, 403, ("metadata.ownerReferences",))
    assert "VirtualMachineInstance of kubevirt.io" in reply.message


@pytest.mark.parametrize(
    "owners",
    [
        pytest.param([owner(apiVersion="v1", kind="Pod", controller=False), owner()], id="beside others"),
        pytest.param([owner(apiVersion="kubevirt.io/v1alpha3")], id="of an older version"),
    ],
)
async def test_a_vmi_is_found_among_the_owners(gpu_pair: Pair, owners: list[Obj]) -> None:
    reply = await validated(gpu_pair, launcher(ownerReferences=owners))

    assert reply.allowed


async def test_an_owner_forged_by_a_tenant_helps_nothing(gpu_pair: Pair) -> None:
    reply = await validated(gpu_pair, launcher(name="mine", ownerReferences=[owner()]), TENANT)

    assert (reply.allowed, reply.code, reply.fields) == (False, 403, (ASKED,))


@pytest.mark.parametrize("labels", [None, {}, {"app": "x"}, {REFERENCE: ""}], ids=["null", "none", "others", "empty"])
async def test_without_the_label_the_pod_is_refused(gpu_pair: Pair, labels: Obj | None) -> None:
    reply = await validated(gpu_pair, launcher(labels=labels))

    assert (reply.allowed, reply.code, reply.fields) == (False, 403, (f"metadata.labels[{REFERENCE}]",))
    assert "restart the VM" in reply.message


@pytest.mark.parametrize(
    "reference",
    ["ghost", "theirs", "DESK-GPU", "desk-gpu ", "../desk-gpu", "desk-gpu/status", "a" * 4000, "\n\x00", "%2e", "ü"],
)
async def test_a_reference_to_no_device_of_the_namespace_is_refused(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog, reference: str
) -> None:
    order = {"kind": "GPUDevice", "metadata": {"name": "theirs", "namespace": "tenant-b"}}
    gpu_catalog.add({**order, "spec": {"className": "l40s-24q"}})
    gpu_catalog.hold("tenant-b", "theirs", node=NODE, vmi=DESK)

    reply = await validated(gpu_pair, launcher(labels={REFERENCE: reference}))

    assert (reply.allowed, reply.code, reply.fields) == (False, 422, (f"metadata.labels[{REFERENCE}]",))
    assert "there is no GPUDevice" in reply.message
    assert "in namespace 'tenant-a'" in reply.message
    assert len(reply.message) < 400
    assert reply.message.isprintable()


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"phase": "Pending"}, id="pending"),
        pytest.param({"phase": ""}, id="no phase"),
        pytest.param({"nodeName": ""}, id="no node"),
        pytest.param({"resourceName": ""}, id="no resource"),
        pytest.param({"phase": "Gone"}, id="an unknown phase"),
    ],
)
async def test_a_device_that_is_not_held_serves_nobody(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog, status: Obj
) -> None:
    gpu_catalog.hold("tenant-a", "desk-gpu", node=NODE, vmi=DESK)
    held = {"phase": "Held", "resourceName": L40S, "nodeName": NODE}
    binding = {"name": "desk", "uid": DESK["metadata"]["uid"]}
    order = {"kind": "GPUDevice", "metadata": {"name": "desk-gpu", "namespace": "tenant-a"}}
    gpu_catalog.add({**order, "spec": {"className": "l40s-24q"}, "status": {**held, "binding": binding, **status}})

    reply = await validated(gpu_pair, launcher())

    assert (reply.allowed, reply.code) == (False, 403)
    assert "'desk-gpu' is not held yet" in reply.message
    assert "tries again" in reply.message


async def test_why_a_device_waits_is_told(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    reason = {"type": "Held", "status": "False", "reason": "QuotaExceeded", "message": "tenant-a holds 8 of 8"}
    gpu_catalog.hold("tenant-a", "desk-gpu", node="", phase="Pending", conditions=[{"type": "X"}, reason])

    reply = await validated(gpu_pair, launcher())

    assert (reply.allowed, reply.code) == (False, 403)
    assert "(QuotaExceeded: tenant-a holds 8 of 8)" in reply.message


async def test_a_device_that_is_bound_to_nobody_yet_serves_nobody(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    gpu_catalog.hold("tenant-a", "desk-gpu", node=NODE)

    reply = await validated(gpu_pair, launcher())

    assert (reply.allowed, reply.code) == (False, 403)
    assert "held, but not bound to this VMI yet" in reply.message


async def test_a_device_that_is_bound_to_another_vmi_is_a_conflict(gpu_pair: Pair) -> None:
    """A restarted VM's VMI has the old one's name: the uid decides."""
    reply = await validated(gpu_pair, launcher(ownerReferences=[owner(uid="0000-next-desk")]))

    assert (reply.allowed, reply.code, reply.reason) == (False, 409, "Conflict")
    assert "bound to VirtualMachineInstance 'desk' of another uid" in reply.message


@pytest.mark.parametrize("phase", ["Held", "InUse", "Releasing"])
async def test_a_device_serves_its_own_vmi_as_long_as_it_is_held(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog, phase: str
) -> None:
    gpu_catalog.hold("tenant-a", "desk-gpu", node=NODE, vmi=DESK, phase=phase)

    reply = await validated(gpu_pair, launcher())

    assert reply.allowed


async def test_a_device_that_is_deleted_while_it_is_used_serves_its_own_vmi(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    metadata = {"name": "desk-gpu", "namespace": "tenant-a", "deletionTimestamp": "2026-11-01T10:00:00Z"}
    gpu_catalog.add({"kind": "GPUDevice", "metadata": metadata, "spec": {"className": "l40s-24q"}})
    gpu_catalog.hold("tenant-a", "desk-gpu", node=NODE, vmi=DESK, phase="Releasing")

    reply = await validated(gpu_pair, launcher())

    assert reply.allowed


async def test_what_memory_says_lets_no_pod_in(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    with gpu_catalog.stale():
        gpu_catalog.hold("tenant-a", "desk-gpu", node="", phase="Pending")

        reply = await validated(gpu_pair, launcher())

    assert (reply.allowed, reply.code) == (False, 403)
    assert "not held yet" in reply.message


async def test_what_memory_says_refuses_no_pod(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    gpu_catalog.hold("tenant-a", "desk-gpu", node="", phase="Pending")
    with gpu_catalog.stale():
        gpu_catalog.hold("tenant-a", "desk-gpu", node=NODE, vmi=DESK)

        reply = await validated(gpu_pair, launcher())

    assert reply.allowed


class TestWhenNothingCanBeReadAfresh:
    class Unreachable(InMemoryCatalog):
        async def fresh_device(self, namespace: str, name: str) -> GPUDevice | None:
            raise CatalogError(f"GPUDevice {namespace}/{name}: connection refused")

    @pytest.fixture
    def gpu_catalog(self) -> InMemoryCatalog:
        return self.Unreachable.from_directory(EXAMPLES / "catalog")

    async def test_no_gpu_pod_is_let_in(self, gpu_pair: Pair) -> None:
        reply = await validated(gpu_pair, launcher())

        assert (reply.allowed, reply.code, reply.reason) == (False, 503, "ServiceUnavailable")

    async def test_pods_without_gpus_are(self, gpu_pair: Pair) -> None:
        pod = launcher()
        pod["spec"]["containers"][0]["resources"] = {"limits": {"intel.com/qat": "1"}}

        reply = await validated(gpu_pair, pod)

        assert reply.allowed


@pytest.mark.parametrize(
    "affinity",
    [
        pytest.param(None, id="none"),
        pytest.param({}, id="empty"),
        pytest.param(required(), id="no terms"),
        pytest.param({"nodeAffinity": {REQUIRED: {}}}, id="terms missing"),
        pytest.param({"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": PINNED}]}}, id="only preferred"),
        pytest.param(required(PINNED, {"matchExpressions": [on("a", key="zone")]}), id="one of two terms unpinned"),
        pytest.param(required({}, PINNED), id="an empty term"),
        pytest.param(required({"matchFields": [on("gpu-node-1")]}), id="another node"),
        pytest.param(required({"matchFields": [on(NODE, "gpu-node-1")]}), id="two nodes"),
        pytest.param(required({"matchFields": [on()]}), id="no node"),
        pytest.param(required({"matchFields": None}), id="match fields null"),
        pytest.param(required({"matchFields": [on(NODE, operator="NotIn")]}), id="anywhere but there"),
        pytest.param(required({"matchFields": [on(NODE, key="spec.name")]}), id="another field"),
        pytest.param(required({"matchExpressions": [on(NODE, key="kubernetes.io/hostname")]}), id="by hostname label"),
        pytest.param(required({"matchExpressions": [on(NODE)]}), id="by a label of the field's name"),
    ],
)
async def test_a_pod_that_could_run_elsewhere_is_refused(gpu_pair: Pair, affinity: Obj | None) -> None:
    pod = launcher()
    pod["spec"]["affinity"] = affinity

    reply = await validated(gpu_pair, pod)

    assert (reply.allowed, reply.code, reply.fields) == (False, 403, (AFFINITY_FIELD,))
    assert f"does not hold the pod to node '{NODE}' in every term" in reply.message


@pytest.mark.parametrize(
    "affinity",
    [
        pytest.param(required(PINNED, {"matchExpressions": [on("a", key="zone")], **PINNED}), id="every term"),
        pytest.param(required({"matchFields": [on("gpu-node-9", operator="NotIn"), on(NODE)]}), id="beside others"),
    ],
)
async def test_a_pod_that_can_run_nowhere_else_is_let_in(gpu_pair: Pair, affinity: Obj) -> None:
    pod = launcher()
    pod["spec"]["affinity"] = affinity

    reply = await validated(gpu_pair, pod)

    assert reply.allowed


async def test_the_node_that_counts_is_the_one_read_afresh(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    with gpu_catalog.stale():
        gpu_catalog.hold("tenant-a", "desk-gpu", node="gpu-node-4", vmi=DESK)

        admitted = await gpu_pair.admit(launcher(), user=VIRT_CONTROLLER)

    assert admitted.mutated.allowed
    assert admitted.refusal.fields == (AFFINITY_FIELD,)
    assert "'gpu-node-4'" in admitted.refusal.message


RAW: Obj = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "cuda", "namespace": "tenant-a", "labels": {REFERENCE: "desk-gpu"}},
    "spec": {"containers": [{"name": "cuda", "resources": {"limits": {L40S: "1"}}}]},
}


@pytest.mark.parametrize("user", [TENANT, VIRT_CONTROLLER], ids=lambda user: user.username)
@pytest.mark.parametrize(
    ("obj", "options"),
    [
        pytest.param(RAW, {"operation": "UPDATE", "old": RAW}, id="update"),
        pytest.param(None, {"operation": "DELETE", "old": RAW}, id="delete"),
        pytest.param(RAW, {"operation": "UPDATE", "old": RAW, "subresource": "status"}, id="status"),
        pytest.param(RAW, {"operation": "UPDATE", "old": RAW, "subresource": "ephemeralcontainers"}, id="ephemeral"),
        pytest.param(RAW, {"subresource": "resize"}, id="create of a subresource"),
        pytest.param({**RAW, "kind": "Binding"}, {"subresource": "binding"}, id="binding"),
        pytest.param(
            {**RAW, "apiVersion": "policy/v1", "kind": "Eviction"}, {"subresource": "eviction"}, id="eviction"
        ),
        pytest.param(
            {"apiVersion": "v1", "kind": "PodExecOptions", "command": ["sh"]},
            {"operation": "CONNECT", "subresource": "exec"},
            id="exec",
        ),
        pytest.param({**RAW, "apiVersion": "example.com/v1"}, {}, id="a Pod of another group"),
    ],
)
async def test_what_creates_no_pod_is_let_in_on_both_paths(
    gpu_pair: Pair, obj: Obj | None, options: Obj, user: User
) -> None:
    body = review(obj, user=user, **options)

    replies = [await gpu_pair.mutate(body), await gpu_pair.validate(body)]

    assert [(reply.allowed, reply.patch) for reply in replies] == [(True, ()), (True, ())]
