"""A GPU pod on /validate beside other pods of its VMI: the stand-in before it, the target of a migration."""

from typing import Any, TypeAlias

import pytest

from webhooks.testing import VIRT_CONTROLLER, InMemoryCatalog, Pair, Reply, review
from webhooks.virtcontroller import launcher_of

Obj: TypeAlias = dict[str, Any]

MIGRATION_JOB = "kubevirt.io/migrationJobUID"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
AFFINITY_FIELD = f"spec.affinity.nodeAffinity.{REQUIRED}"
L40S = "nvidia.com/L40S-24Q"
NODE, RESERVED = "gpu-node-2", "gpu-node-3"

DESK: Obj = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "metadata": {
        "name": "desk",
        "namespace": "tenant-a",
        "uid": "3c1d1d2e-52f4-4c2a-9d3e-0f6f1f4a7b01",
        "labels": {"gpu.cozystack.io/device-reference": "desk-gpu"},
    },
    "spec": {"domain": {"devices": {"gpus": [{"name": "gpu-0", "deviceName": L40S}]}}},
}
"""Its device is held on gpu-node-2 and bound to it."""

OTHER_VMI: Obj = {**DESK, "metadata": {**DESK["metadata"], "name": "other", "uid": "other-uid"}}


def pod_on(node: str | None, *, name: str, of: Obj = DESK, migration: str | None = None, **parts: Any) -> Obj:
    """A launcher that is pinned to the node; ``parts`` replace whole parts of it."""
    pod = launcher_of(of, name=name)
    requirement = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = [{"matchFields": [requirement]}] if node else []
    pod["spec"]["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    if migration is not None:
        pod["metadata"]["labels"][MIGRATION_JOB] = migration
    return {**pod, **parts}


def deleted(pod: Obj) -> Obj:
    return {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-11-01T10:00:00Z"}}


def asking_for(pod: Obj, amounts: Obj) -> Obj:
    return {**pod, "spec": {**pod["spec"], "containers": [{"resources": {"limits": amounts}}]}}


async def validated(pair: Pair, pod: Obj) -> Reply:
    return await pair.validate(review(pod, user=VIRT_CONTROLLER))


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(pod_on(NODE, name="first"), id="pending"),
        pytest.param(pod_on(NODE, name="first", status={"phase": "Running"}), id="running"),
        pytest.param(pod_on("gpu-node-9", name="first", status={}), id="on another node"),
        pytest.param(pod_on(None, name="first", status={"phase": "Unknown"}), id="pinned to no node"),
        pytest.param(pod_on(RESERVED, name="first", migration="m-1"), id="a migration target"),
        pytest.param(
            asking_for(pod_on(NODE, name="first"), {"nvidia.com/GH100_H200_SXM_141GB": "1"}), id="with another GPU"
        ),
    ],
)
async def test_a_second_pod_of_a_vmi_gets_no_gpus(gpu_pair: Pair, gpu_catalog: InMemoryCatalog, other: Obj) -> None:
    gpu_catalog.hold("tenant-a", "desk-gpu", node=NODE, vmi=DESK, migration={"uid": "m-1", "nodeName": RESERVED})
    gpu_catalog.add(other)

    reply = await validated(gpu_pair, pod_on(NODE, name="second"))

    assert (reply.allowed, reply.code, reply.reason) == (False, 409, "Conflict")
    assert "pod 'first' of the same VMI has the GPUs" in reply.message


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(pod_on(NODE, name="first", status={"phase": "Succeeded"}), id="finished"),
        pytest.param(pod_on(NODE, name="first", status={"phase": "Failed"}), id="failed"),
        pytest.param(deleted(pod_on(NODE, name="first", status={"phase": "Running"})), id="deleted"),
        pytest.param(asking_for(pod_on(NODE, name="first"), {"devices.kubevirt.io/kvm": "1"}), id="without GPUs"),
        pytest.param(asking_for(pod_on(NODE, name="first"), {"intel.com/qat": "1"}), id="with another resource"),
        pytest.param(pod_on(NODE, name="first", of=OTHER_VMI), id="of another VMI"),
        pytest.param(pod_on(NODE, name="second"), id="itself"),
    ],
)
async def test_a_pod_that_takes_no_gpus_of_the_vmi_is_in_nobodys_way(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog, other: Obj
) -> None:
    gpu_catalog.add(other)

    reply = await validated(gpu_pair, pod_on(NODE, name="second"))

    assert reply.allowed


async def test_a_name_of_a_device_class_is_a_gpu_of_the_other_pod_too(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    by_class = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
    metadata = {"name": "gpu-settings", "namespace": "gpu-system"}
    gpu_catalog.add({"kind": "ConfigMap", "metadata": metadata, "data": {"resourceNames": by_class}})
    gpu_catalog.add(asking_for(pod_on(NODE, name="first"), {by_class: "1"}))

    reply = await validated(gpu_pair, pod_on(NODE, name="second"))

    assert (reply.allowed, reply.code) == (False, 409)


async def test_the_launcher_follows_a_stand_in_that_has_finished(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    """A volume that waits for its first consumer gets one: a pod that asks for all that the launcher will."""
    stand_in = pod_on(NODE, name="stand-in")
    launcher = pod_on(NODE, name="launcher")
    first = await validated(gpu_pair, stand_in)
    gpu_catalog.add(stand_in)
    too_early = await validated(gpu_pair, launcher)
    gpu_catalog.add({**stand_in, "status": {"phase": "Succeeded"}})

    in_time = await validated(gpu_pair, launcher)

    assert first.allowed
    assert (too_early.allowed, too_early.code) == (False, 409)
    assert in_time.allowed


@pytest.mark.parametrize("gone_in_truth", [True, False], ids=["it is gone", "it is new"])
async def test_the_other_pods_are_read_afresh(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog, *, gone_in_truth: bool
) -> None:
    other = pod_on(NODE, name="first")
    if gone_in_truth:
        gpu_catalog.add(other)
    with gpu_catalog.stale():
        if gone_in_truth:
            gpu_catalog.remove("Pod", "tenant-a", "first")
        else:
            gpu_catalog.add(other)

        reply = await validated(gpu_pair, pod_on(NODE, name="second"))

    assert reply.allowed is gone_in_truth


class TestMigration:
    @pytest.fixture
    def gpu_catalog(self, gpu_catalog: InMemoryCatalog) -> InMemoryCatalog:
        """Desk runs on its device's node, and migration m-1 of it has another reserved."""
        gpu_catalog.hold("tenant-a", "desk-gpu", node=NODE, vmi=DESK, migration={"uid": "m-1", "nodeName": RESERVED})
        for name, uid in (("move-desk", "m-1"), ("move-later", "m-2")):
            metadata = {"name": name, "namespace": "tenant-a", "uid": uid}
            gpu_catalog.add({"kind": "VirtualMachineInstanceMigration", "metadata": metadata})
        source = pod_on(NODE, name="source", status={"phase": "Running"})
        source["spec"]["nodeName"] = NODE
        gpu_catalog.add(source)
        return gpu_catalog

    async def test_its_target_is_let_in_beside_its_source(self, gpu_pair: Pair) -> None:
        reply = await validated(gpu_pair, pod_on(RESERVED, name="target", migration="m-1"))

        assert reply.allowed

    async def test_both_paths_together_send_the_target_to_the_reserved_node(self, gpu_pair: Pair) -> None:
        admitted = await gpu_pair.admit(pod_on(None, name="target", migration="m-1"), user=VIRT_CONTROLLER)

        assert admitted.allowed
        assert admitted.obj["spec"] == pod_on(RESERVED, name="target")["spec"]

    @pytest.mark.parametrize("node", [NODE, "gpu-node-9", None])
    async def test_its_target_runs_on_the_reserved_node_only(self, gpu_pair: Pair, node: str | None) -> None:
        reply = await validated(gpu_pair, pod_on(node, name="target", migration="m-1"))

        assert (reply.allowed, reply.code, reply.fields) == (False, 403, (AFFINITY_FIELD,))
        assert f"'{RESERVED}'" in reply.message

    async def test_its_target_gets_as_many_gpus_as_are_granted_and_no_more(self, gpu_pair: Pair) -> None:
        target = asking_for(pod_on(RESERVED, name="target", migration="m-1"), {L40S: "2"})

        reply = await validated(gpu_pair, target)

        assert (reply.allowed, reply.code) == (False, 403)
        assert "asks for 2" in reply.message

    @pytest.mark.parametrize(
        "other",
        [
            pytest.param(pod_on(RESERVED, name="first", migration="m-1"), id="another target"),
            pytest.param(pod_on(RESERVED, name="first"), id="another launcher"),
            pytest.param(pod_on(None, name="first"), id="one that may come there"),
        ],
    )
    async def test_its_target_shares_the_reserved_node_with_no_pod_of_the_vmi(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog, other: Obj
    ) -> None:
        gpu_catalog.add(other)

        reply = await validated(gpu_pair, pod_on(RESERVED, name="target", migration="m-1"))

        assert (reply.allowed, reply.code) == (False, 409)
        assert "pod 'first'" in reply.message

    async def test_the_next_target_follows_one_that_failed(self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
        gpu_catalog.add(pod_on(RESERVED, name="first", migration="m-1", status={"phase": "Failed"}))

        reply = await validated(gpu_pair, pod_on(RESERVED, name="target", migration="m-1"))

        assert reply.allowed

    @pytest.mark.parametrize(
        ("uid", "message"),
        [
            pytest.param("m-2", "no node is reserved yet for GPUDevice 'desk-gpu' in migration", id="later"),
            pytest.param("m-9", "names a migration that does not exist in this namespace", id="forged"),
            pytest.param("", "names a migration that does not exist in this namespace", id="empty"),
        ],
    )
    @pytest.mark.parametrize("node", [NODE, RESERVED])
    async def test_the_target_of_another_migration_is_refused(
        self, gpu_pair: Pair, node: str, uid: str, message: str
    ) -> None:
        reply = await validated(gpu_pair, pod_on(node, name="target", migration=uid))

        assert (reply.allowed, reply.code, reply.fields) == (False, 403, (f"metadata.labels[{MIGRATION_JOB}]",))
        assert message in reply.message

    async def test_a_second_launcher_without_the_migrations_label_is_refused_on_the_reserved_node(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog
    ) -> None:
        gpu_catalog.remove("Pod", "tenant-a", "source")

        reply = await validated(gpu_pair, pod_on(RESERVED, name="target"))

        assert (reply.allowed, reply.code, reply.fields) == (False, 403, (AFFINITY_FIELD,))

    async def test_a_target_for_a_vmi_that_the_device_is_not_bound_to_is_refused(self, gpu_pair: Pair) -> None:
        reply = await validated(gpu_pair, pod_on(RESERVED, name="target", of=OTHER_VMI, migration="m-1"))

        assert (reply.allowed, reply.code) == (False, 409)

    async def test_a_reservation_is_read_afresh(self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
        with gpu_catalog.stale():
            gpu_catalog.hold("tenant-a", "desk-gpu", node=NODE, vmi=DESK)

            reply = await validated(gpu_pair, pod_on(RESERVED, name="target", migration="m-1"))

        assert (reply.allowed, reply.code) == (False, 403)
        assert "no node is reserved yet" in reply.message


async def test_a_migration_label_on_a_vms_template_gives_its_launcher_no_second_place(gpu_pair: Pair) -> None:
    admitted = await gpu_pair.admit(pod_on(NODE, name="launcher", migration="m-1"), user=VIRT_CONTROLLER)

    assert (admitted.refusal.code, admitted.refusal.fields) == (403, (f"metadata.labels[{MIGRATION_JOB}]",))
    assert "take the label off the VM" in admitted.refusal.message
