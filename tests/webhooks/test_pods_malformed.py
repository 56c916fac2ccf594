"""Pods with wrong types on the way to what the rules look at: 422 with the field path, on each path that reads it."""

from copy import deepcopy
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from gpu.gpudevice import GPUDevice
from webhooks.testing import TENANT, VIRT_CONTROLLER, InMemoryCatalog, Pair, User, review
from webhooks.virtcontroller import launcher_of

Obj: TypeAlias = dict[str, Any]
Keys: TypeAlias = tuple[str | int, ...]

EXAMPLES = Path(__file__).parents[2] / "examples"
REFERENCE = "gpu.cozystack.io/device-reference"
MIGRATION_JOB = "kubevirt.io/migrationJobUID"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
AFFINITY = f"spec.affinity.nodeAffinity.{REQUIRED}"
L40S = "nvidia.com/L40S-24Q"

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


def launcher(keys: Keys, value: object) -> Obj:
    """The pod of desk, pinned, with one thing in it that is something else."""
    pod = launcher_of(DESK)
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-node-2"]}]}]
    pod["spec"]["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    parent: Any = pod
    for key in keys[:-1]:
        parent = parent.setdefault(key, {}) if isinstance(parent, dict) else parent[key]
    parent[keys[-1]] = value
    return pod


def reviewed(pod: object, user: User = VIRT_CONTROLLER) -> Obj:
    body = review(launcher(("status",), {}), user=user)
    body["request"]["object"] = deepcopy(pod)
    return body


TERMS: Keys = ("spec", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")
COMPUTE: Keys = ("spec", "containers", 0)
OWNER: Keys = ("metadata", "ownerReferences", 0)

READ_FIRST = [
    pytest.param(("metadata",), None, "metadata", id="metadata null"),
    pytest.param(("metadata",), "x", "metadata", id="metadata a string"),
    pytest.param(("metadata", "labels"), [], "metadata.labels", id="labels a list"),
    pytest.param(("metadata", "labels"), "x", "metadata.labels", id="labels a string"),
    pytest.param(("metadata", "labels", REFERENCE), 7, f"metadata.labels[{REFERENCE}]", id="reference a number"),
    pytest.param(("metadata", "labels", REFERENCE), {}, f"metadata.labels[{REFERENCE}]", id="reference an object"),
    pytest.param(("metadata", "labels", MIGRATION_JOB), [], f"metadata.labels[{MIGRATION_JOB}]", id="migration a list"),
]
"""Read by both paths in any case."""

READ_TO_PIN = [
    pytest.param(("spec",), "x", "spec", id="spec a string"),
    pytest.param(("spec",), [], "spec", id="spec a list"),
    pytest.param(("spec", "affinity"), "x", "spec.affinity", id="affinity a string"),
    pytest.param(("spec", "affinity", "nodeAffinity"), [], "spec.affinity.nodeAffinity", id="node affinity a list"),
    pytest.param(TERMS[:-1], 7, AFFINITY, id="required a number"),
    pytest.param(TERMS, {}, f"{AFFINITY}.nodeSelectorTerms", id="terms an object"),
    pytest.param(TERMS, ["x"], f"{AFFINITY}.nodeSelectorTerms[0]", id="term a string"),
    pytest.param(TERMS, [{"matchFields": []}, None], f"{AFFINITY}.nodeSelectorTerms[1]", id="term null"),
    pytest.param(
        (*TERMS, 0, "matchFields"), "x", f"{AFFINITY}.nodeSelectorTerms[0].matchFields", id="match fields a string"
    ),
    pytest.param(
        (*TERMS, 0, "matchFields"), {}, f"{AFFINITY}.nodeSelectorTerms[0].matchFields", id="match fields an object"
    ),
    pytest.param(
        (*TERMS, 0, "matchFields"), ["x"], f"{AFFINITY}.nodeSelectorTerms[0].matchFields[0]", id="match field a string"
    ),
]
"""Read by both paths where there is a node to pin to."""

READ_FOR_GPUS = [
    pytest.param(("spec", "containers"), {}, "spec.containers", id="containers an object"),
    pytest.param(("spec", "containers"), ["x"], "spec.containers[0]", id="container a string"),
    pytest.param(("spec", "containers"), [None], "spec.containers[0]", id="container null"),
    pytest.param(("spec", "initContainers"), "x", "spec.initContainers", id="init containers a string"),
    pytest.param(("spec", "ephemeralContainers"), 3, "spec.ephemeralContainers", id="ephemeral containers a number"),
    pytest.param((*COMPUTE, "resources"), [], "spec.containers[0].resources", id="resources a list"),
    pytest.param((*COMPUTE, "resources"), "", "spec.containers[0].resources", id="resources a string"),
    pytest.param((*COMPUTE, "resources", "limits"), "x", "spec.containers[0].resources.limits", id="limits a string"),
    pytest.param((*COMPUTE, "resources", "limits"), [], "spec.containers[0].resources.limits", id="limits a list"),
    pytest.param((*COMPUTE, "resources", "requests"), 1, "spec.containers[0].resources.requests", id="requests 1"),
    pytest.param(("spec", "resources"), True, "spec.resources", id="pod level resources true"),
    pytest.param(("spec", "resources", "limits"), [], "spec.resources.limits", id="pod level limits a list"),
    pytest.param(("spec", "overhead"), [], "spec.overhead", id="overhead a list"),
    pytest.param(("metadata", "ownerReferences"), "x", "metadata.ownerReferences", id="owners a string"),
    pytest.param(("metadata", "ownerReferences"), {}, "metadata.ownerReferences", id="owners an object"),
    pytest.param(("metadata", "ownerReferences"), ["x"], "metadata.ownerReferences[0]", id="owner a string"),
    pytest.param((*OWNER, "uid"), 7, "metadata.ownerReferences[].uid", id="owner's uid a number"),
    pytest.param((*OWNER, "apiVersion"), [], "metadata.ownerReferences[].apiVersion", id="owner's version a list"),
]
"""Read by the validating path, and by the mutating path before it refuses."""

READ_TO_VALIDATE = [
    pytest.param(("metadata", "name"), 7, "metadata.name", id="name a number"),
    pytest.param(("spec", "resourceClaims"), "x", "spec.resourceClaims", id="claims a string"),
    pytest.param(("spec", "resourceClaims"), {}, "spec.resourceClaims", id="claims an object"),
    pytest.param(("spec", "resourceClaims"), [{}, "x"], "spec.resourceClaims[1]", id="claim a string"),
    pytest.param(
        ("spec", "resourceClaims"),
        [{"resourceClaimName": 7}],
        "spec.resourceClaims[0].resourceClaimName",
        id="claim's name a number",
    ),
    pytest.param(
        ("spec", "resourceClaims"),
        [{"resourceClaimTemplateName": {}}],
        "spec.resourceClaims[0].resourceClaimTemplateName",
        id="template's name an object",
    ),
]


@pytest.mark.parametrize(("keys", "value", "field"), [*READ_FIRST, *READ_TO_PIN, *READ_FOR_GPUS, *READ_TO_VALIDATE])
async def test_the_validating_path_names_the_field(gpu_pair: Pair, keys: Keys, value: object, field: str) -> None:
    reply = await gpu_pair.validate(reviewed(launcher(keys, value)))

    assert (reply.allowed, reply.code, reply.reason) == (False, 422, "Invalid")
    assert reply.fields == (field,)
    assert f"{field}: " in reply.message


@pytest.mark.parametrize(("keys", "value", "field"), [*READ_FIRST, *READ_TO_PIN])
async def test_the_mutating_path_names_the_field(gpu_pair: Pair, keys: Keys, value: object, field: str) -> None:
    reply = await gpu_pair.mutate(reviewed(launcher(keys, value)))

    assert (reply.allowed, reply.code, reply.reason) == (False, 422, "Invalid")
    assert reply.fields == (field,)
    assert f"{field}: " in reply.message


@pytest.mark.parametrize(("keys", "value", "field"), [*READ_FIRST, READ_TO_PIN[0], *READ_FOR_GPUS])
async def test_the_mutating_path_names_the_field_where_there_is_no_node_to_pin_to(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog, keys: Keys, value: object, field: str
) -> None:
    gpu_catalog.hold("tenant-a", "desk-gpu", node="", phase="Pending")

    reply = await gpu_pair.mutate(reviewed(launcher(keys, value)))

    assert (reply.allowed, reply.code, reply.fields) == (False, 422, (field,))


@pytest.mark.parametrize("path", ["mutate", "validate"])
async def test_a_creation_without_an_object_is_malformed(gpu_pair: Pair, path: str) -> None:
    reply = await getattr(gpu_pair, path)(reviewed(None))

    assert (reply.allowed, reply.code, reply.fields) == (False, 422, ("request.object",))


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        pytest.param(("metadata", "annotations"), "x", id="annotations"),
        pytest.param(("metadata", "finalizers"), {}, id="finalizers"),
        pytest.param(("spec", "volumes"), 7, id="volumes"),
        pytest.param(("spec", "affinity", "podAffinity"), "x", id="pod affinity"),
        pytest.param((*TERMS, 0, "matchExpressions"), "x", id="match expressions"),
        pytest.param((*COMPUTE, "image"), [], id="image"),
        pytest.param((*COMPUTE, "resources", "claims"), "x", id="container's claims"),
        pytest.param((*COMPUTE, "resources", "limits", "cpu"), [], id="an amount of no GPU"),
        pytest.param(("metadata", "labels", "app"), 7, id="another label"),
        pytest.param((*OWNER, "name"), 7, id="owner's name"),
        pytest.param(("status",), "x", id="status"),
    ],
)
async def test_what_no_rule_looks_at_may_be_anything(gpu_pair: Pair, keys: Keys, value: object) -> None:
    """The API server judges it."""
    pod = launcher(keys, value)

    replies = [await gpu_pair.mutate(reviewed(pod)), await gpu_pair.validate(reviewed(pod))]

    assert [reply.allowed for reply in replies] == [True, True]


async def test_a_tenants_pod_is_not_read_by_the_mutating_path(gpu_pair: Pair) -> None:
    reply = await gpu_pair.mutate(reviewed({"metadata": "x", "spec": 7}, TENANT))

    assert reply.allowed
    assert reply.patch == ()


class TestNamesThatNoObjectCanHave:
    """They may not be fit for a URL either, so nothing is asked for by them."""

    class Careful(InMemoryCatalog):
        async def fresh_device(self, namespace: str, name: str) -> GPUDevice | None:
            assert name == "desk-gpu"
            return await super().fresh_device(namespace, name)

    @pytest.fixture
    def gpu_catalog(self) -> InMemoryCatalog:
        return self.Careful.from_directory(EXAMPLES / "catalog")

    @pytest.mark.parametrize("path", ["mutate", "validate"])
    @pytest.mark.parametrize("reference", ["../desk-gpu", "desk-gpu?watch", "DESK", "a" * 64, "%2e%2e"])
    async def test_are_not_read_afresh(self, gpu_pair: Pair, reference: str, path: str) -> None:
        pod = launcher(("metadata", "labels", REFERENCE), reference)

        reply = await getattr(gpu_pair, path)(reviewed(pod))

        assert (reply.allowed, reply.code) == (False, 422)
        assert reply.fields == (f"metadata.labels[{REFERENCE}]",)
