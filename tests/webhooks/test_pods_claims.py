"""A pod with resource claims (DRA) on /validate."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from gpu.errors import CatalogError
from gpu.offer import Offer
from webhooks.testing import ADMIN, TENANT, VIRT_CONTROLLER, InMemoryCatalog, Pair, User, review

Obj: TypeAlias = dict[str, Any]

EXAMPLES = Path(__file__).parents[2] / "examples"
VERSIONS = ["v1", "v1beta2", "v1beta1"]
USERS = [TENANT, ADMIN, VIRT_CONTROLLER]
GPUS = "gpu.nvidia.com"
NICS = "nic.example.com"


def exactly(device_class: str) -> Obj:
    return {"name": "req-0", "exactly": {"deviceClassName": device_class, "count": 1}}


def first_available(*device_classes: str) -> Obj:
    alternatives = [{"name": f"or-{n}", "deviceClassName": name} for n, name in enumerate(device_classes)]
    return {"name": "req-0", "firstAvailable": alternatives}


def direct(device_class: str) -> Obj:
    return {"name": "req-0", "deviceClassName": device_class}


def claim(*requests: Obj, version: str = "v1", namespace: str = "tenant-a", name: str = "asks") -> Obj:
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"devices": {"requests": list(requests)}},
    }


def template(*requests: Obj, version: str = "v1") -> Obj:
    of = claim(*requests, version=version)
    return {**of, "kind": "ResourceClaimTemplate", "spec": {"metadata": {}, "spec": of["spec"]}}


def pod(*claims: Obj) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "cuda", "namespace": "tenant-a"},
        "spec": {"containers": [{"name": "cuda"}], "resourceClaims": [{"name": "gpu", **entry} for entry in claims]},
    }


BY_CLAIM: Obj = {"resourceClaimName": "asks"}
BY_TEMPLATE: Obj = {"resourceClaimTemplateName": "asks"}
Road: TypeAlias = tuple[Callable[..., Obj], Obj]
"""What builds a claim or a template of one version, and what a pod calls it by."""

ROADS: list[Road] = [
    (partial(build, version=version), by)
    for build, by in ((claim, BY_CLAIM), (template, BY_TEMPLATE))
    for version in VERSIONS
]


def road_id(road: Road) -> str:
    obj = road[0]()
    return f"{obj['kind']} {obj['apiVersion']}"


@pytest.mark.parametrize("user", USERS, ids=lambda user: user.username)
@pytest.mark.parametrize("road", ROADS, ids=road_id)
@pytest.mark.parametrize(
    "requests",
    [
        pytest.param([exactly(GPUS)], id="exactly"),
        pytest.param([first_available(NICS, GPUS)], id="first available"),
        pytest.param([direct(GPUS)], id="direct"),
        pytest.param([exactly(NICS), exactly(GPUS)], id="second request"),
    ],
)
async def test_a_claim_for_gpus_is_refused_whoever_makes_the_pod(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog, requests: list[Obj], road: Road, user: User
) -> None:
    build, named = road
    gpu_catalog.add(build(*requests))

    reply = await gpu_pair.validate(review(pod(named), user=user))

    assert (reply.allowed, reply.code, reply.fields) == (False, 403, ("spec.resourceClaims[0]",))
    assert f"the claim 'asks' asks for the DeviceClass '{GPUS}' by name" in reply.message
    assert "order a GPUDevice" in reply.message


@pytest.mark.parametrize("user", USERS, ids=lambda user: user.username)
@pytest.mark.parametrize("road", ROADS, ids=road_id)
@pytest.mark.parametrize(
    "requests",
    [
        pytest.param([exactly(NICS)], id="exactly"),
        pytest.param([first_available(NICS, f"{GPUS}.example.com")], id="first available"),
        pytest.param([direct(NICS)], id="direct"),
        pytest.param([], id="nothing"),
    ],
)
async def test_a_claim_for_anything_else_is_let_in(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog, requests: list[Obj], road: Road, user: User
) -> None:
    build, named = road
    gpu_catalog.add(build(*requests))

    admitted = await gpu_pair.admit(pod(named), user=user)

    assert admitted.allowed
    assert admitted.mutated.patch == ()


@pytest.mark.parametrize("named", [BY_CLAIM, BY_TEMPLATE, {}, {"resourceClaimName": ""}], ids=str)
@pytest.mark.parametrize("user", USERS, ids=lambda user: user.username)
async def test_a_claim_that_does_not_exist_is_let_in(gpu_pair: Pair, named: Obj, user: User) -> None:
    reply = await gpu_pair.validate(review(pod(named), user=user))

    assert reply.allowed


async def test_a_claim_and_a_template_of_one_name_are_two_things(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    gpu_catalog.add(claim(exactly(NICS)))
    gpu_catalog.add(template(exactly(GPUS)))

    by_claim = await gpu_pair.validate(review(pod(BY_CLAIM)))
    by_template = await gpu_pair.validate(review(pod(BY_TEMPLATE)))

    assert by_claim.allowed
    assert not by_template.allowed


async def test_a_claim_of_another_namespace_is_not_the_pods(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    gpu_catalog.add(claim(exactly(GPUS), namespace="tenant-b"))

    reply = await gpu_pair.validate(review(pod(BY_CLAIM)))

    assert reply.allowed


async def test_every_claim_of_a_pod_is_looked_at(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    gpu_catalog.add(claim(exactly(NICS)))
    gpu_catalog.add(claim(exactly(GPUS), name="hidden"))

    reply = await gpu_pair.validate(review(pod(BY_CLAIM, {}, {"resourceClaimName": "hidden"})))

    assert (reply.allowed, reply.code, reply.fields) == (False, 403, ("spec.resourceClaims[2]",))
    assert "'hidden'" in reply.message


@pytest.mark.parametrize("is_gpu", [True, False], ids=["it asks for GPUs now", "it did ask for GPUs"])
async def test_a_claim_is_read_afresh(gpu_pair: Pair, gpu_catalog: InMemoryCatalog, *, is_gpu: bool) -> None:
    gpu_catalog.add(claim(exactly(NICS if is_gpu else GPUS)))
    with gpu_catalog.stale():
        gpu_catalog.add(claim(exactly(GPUS if is_gpu else NICS)))

        reply = await gpu_pair.validate(review(pod(BY_CLAIM)))

    assert reply.allowed is not is_gpu


def settings(device_classes: str) -> Obj:
    metadata = {"name": "gpu-settings", "namespace": "gpu-system"}
    return {"kind": "ConfigMap", "metadata": metadata, "data": {"deviceClassNames": device_classes}}


async def test_a_device_class_that_is_a_gpus_no_more_is_let_in(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    gpu_catalog.add(claim(exactly(GPUS)))
    gpu_catalog.add(claim(exactly(NICS), name="second"))
    with gpu_catalog.stale():
        gpu_catalog.add(settings(NICS))

        first = await gpu_pair.validate(review(pod(BY_CLAIM)))
        both = await gpu_pair.validate(review(pod(BY_CLAIM, {"resourceClaimName": "second"})))

    assert first.allowed
    assert both.fields == ("spec.resourceClaims[1]",)


async def test_without_device_classes_for_gpus_every_claim_is_let_in(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    gpu_catalog.add(claim(exactly(GPUS)))
    gpu_catalog.add(settings(""))

    reply = await gpu_pair.validate(review(pod(BY_CLAIM)))

    assert reply.allowed


async def test_a_claim_for_gpus_is_refused_beside_a_device_that_is_held(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    gpu_catalog.add(claim(exactly(GPUS)))
    launcher = pod(BY_CLAIM)
    uid = "3c1d1d2e-52f4-4c2a-9d3e-0f6f1f4a7b01"
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "uid": uid, "controller": True}
    launcher["metadata"] |= {
        "labels": {"gpu.cozystack.io/device-reference": "desk-gpu"},
        "ownerReferences": [owner],
    }
    launcher["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/L40S-24Q": "1"}}

    admitted = await gpu_pair.admit(launcher, user=VIRT_CONTROLLER)
    del launcher["spec"]["resourceClaims"]
    without = await gpu_pair.admit(launcher, user=VIRT_CONTROLLER)

    assert admitted.refusal.fields == ("spec.resourceClaims[0]",)
    assert without.allowed


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE"])
async def test_only_creation_is_looked_at(gpu_pair: Pair, gpu_catalog: InMemoryCatalog, operation: str) -> None:
    gpu_catalog.add(claim(exactly(GPUS)))
    old = pod(BY_CLAIM)

    reply = await gpu_pair.validate(review(None if operation == "DELETE" else old, old=old, operation=operation))

    assert reply.allowed


class TestWhenNoClaimCanBeRead:
    class Unreachable(InMemoryCatalog):
        async def claimed_classes(self, namespace: str, *, claim: str | None, template: str | None) -> frozenset[str]:
            raise CatalogError(f"{namespace}/{claim or template}: connection refused")

    @pytest.fixture
    def gpu_catalog(self) -> InMemoryCatalog:
        return self.Unreachable.from_directory(EXAMPLES / "catalog")

    async def test_a_pod_with_claims_is_to_be_tried_again(self, gpu_pair: Pair) -> None:
        reply = await gpu_pair.validate(review(pod(BY_CLAIM)))

        assert (reply.allowed, reply.code, reply.reason) == (False, 503, "ServiceUnavailable")

    async def test_a_pod_without_is_let_in(self, gpu_pair: Pair) -> None:
        reply = await gpu_pair.validate(review(pod()))

        assert reply.allowed


class SettingsLost(InMemoryCatalog):
    """Somebody deleted the ConfigMap; ``memory_only`` where it is there again, and memory does not have it yet."""

    memory_only = False

    @property
    def offer(self) -> Offer:
        return Offer(super().offer.classes, None)

    async def fresh_offer(self) -> Offer:
        return await super().fresh_offer() if self.memory_only else self.offer


class TestWhileTheSettingsAreMissing:
    @pytest.fixture
    def gpu_catalog(self) -> SettingsLost:
        catalog = SettingsLost.from_directory(EXAMPLES / "catalog")
        catalog.add(claim(exactly(GPUS)))
        catalog.add(claim(name="empty"))
        return catalog

    async def test_a_claim_cant_be_judged(self, gpu_pair: Pair) -> None:
        reply = await gpu_pair.validate(review(pod(BY_CLAIM)))

        assert (reply.allowed, reply.code, reply.reason) == (False, 503, "ServiceUnavailable")
        assert f"'{GPUS}'" in reply.message
        assert "gpu-settings is missing" in reply.message

    @pytest.mark.parametrize("name", ["empty", "ghost"])
    async def test_a_claim_that_asks_for_nothing_is_let_in(self, gpu_pair: Pair, name: str) -> None:
        reply = await gpu_pair.validate(review(pod({"resourceClaimName": name})))

        assert reply.allowed

    async def test_settings_that_only_memory_lacks_are_read_afresh(
        self, gpu_pair: Pair, gpu_catalog: SettingsLost
    ) -> None:
        gpu_catalog.memory_only = True
        gpu_catalog.add(claim(exactly(NICS), name="other"))

        gpus = await gpu_pair.validate(review(pod(BY_CLAIM)))
        other = await gpu_pair.validate(review(pod({"resourceClaimName": "other"})))

        assert (gpus.allowed, gpus.code) == (False, 403)
        assert other.allowed
