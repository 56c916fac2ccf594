"""A pod on /validate: which names are GPUs, where a pod asks for them, and for how many."""

from pathlib import Path
from typing import Any, TypeAlias

import pytest

from gpu.offer import Offer
from webhooks.testing import ADMIN, TENANT, VIRT_CONTROLLER, InMemoryCatalog, Pair, Reply, User, review
from webhooks.virtcontroller import launcher_of

Obj: TypeAlias = dict[str, Any]

EXAMPLES = Path(__file__).parents[2] / "examples"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
L40S = "nvidia.com/L40S-24Q"
H200 = "nvidia.com/GH100_H200_SXM_141GB"
RETIRED = "nvidia.com/GA100_A100_PCIE_40GB"
BY_DEVICE_CLASS = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
LIMITS = "spec.containers[0].resources.limits"
REQUESTS = "spec.containers[0].resources.requests"

LAB: Obj = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "metadata": {
        "name": "lab",
        "namespace": "tenant-a",
        "uid": "3c1d1d2e-52f4-4c2a-9d3e-0f6f1f4a7b02",
        "labels": {"gpu.cozystack.io/device-reference": "lab-gpu"},
    },
    "spec": {},
}
"""Its device grants two H200."""


@pytest.fixture
def gpu_catalog(gpu_catalog: InMemoryCatalog) -> InMemoryCatalog:
    gpu_catalog.hold("tenant-a", "lab-gpu", node="gpu-node-1", vmi=LAB)
    return gpu_catalog


def launcher(spec: Obj) -> Obj:
    """A pod that asks as ``spec`` says, and with which all else is right."""
    pod = launcher_of(LAB)
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-node-1"]}]}]
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    pod["spec"] = {"containers": [{"name": "compute"}], "affinity": affinity, **spec}
    return pod


def limits(**amounts: Any) -> Obj:
    return {"resources": {"limits": amounts}}


def compute(amounts: Obj) -> Obj:
    return {"containers": [limits(**amounts)]}


async def validated(pair: Pair, pod: Obj, user: User = VIRT_CONTROLLER) -> Reply:
    return await pair.validate(review(pod, user=user))


PLACES = [
    pytest.param(compute({H200: "2"}), (f"{LIMITS}[{H200}]",), id="limits"),
    pytest.param({"containers": [{"resources": {"requests": {H200: "2"}}}]}, (f"{REQUESTS}[{H200}]",), id="requests"),
    pytest.param(
        {"containers": [{"resources": {"requests": {H200: "2"}, "limits": {H200: "2"}}}]},
        (f"{LIMITS}[{H200}]",),
        id="both",
    ),
    pytest.param(
        {"containers": [limits(**{H200: "1"}), {"name": "none"}, limits(**{H200: "1"})]},
        (f"{LIMITS}[{H200}]", f"spec.containers[2].resources.limits[{H200}]"),
        id="two containers",
    ),
    pytest.param(
        {"initContainers": [limits(**{H200: "2"})]},
        (f"spec.initContainers[0].resources.limits[{H200}]",),
        id="init container",
    ),
    pytest.param(
        {"ephemeralContainers": [limits(**{H200: "2"})]},
        (f"spec.ephemeralContainers[0].resources.limits[{H200}]",),
        id="ephemeral container",
    ),
    pytest.param(limits(**{H200: "2"}), (f"spec.resources.limits[{H200}]",), id="pod level limits"),
    pytest.param({"resources": {"requests": {H200: 2}}}, (f"spec.resources.requests[{H200}]",), id="pod level"),
    pytest.param({"overhead": {H200: "2"}}, (f"spec.overhead[{H200}]",), id="overhead"),
    pytest.param(compute({H200: "2", "intel.com/qat": "3"}), (f"{LIMITS}[{H200}]",), id="beside what is no GPU"),
]


@pytest.mark.parametrize(("spec", "_fields"), PLACES)
async def test_a_pod_may_ask_for_exactly_what_its_device_grants(
    gpu_pair: Pair, spec: Obj, _fields: tuple[str, ...]
) -> None:
    reply = await validated(gpu_pair, launcher(spec))

    assert reply.allowed


@pytest.mark.parametrize("user", [TENANT, ADMIN], ids=lambda user: user.username)
@pytest.mark.parametrize(("spec", "fields"), PLACES)
async def test_wherever_a_pod_asks_for_gpus_nobody_else_may_make_it(
    gpu_pair: Pair, spec: Obj, fields: tuple[str, ...], user: User
) -> None:
    reply = await validated(gpu_pair, launcher(spec), user)

    assert (reply.allowed, reply.code, reply.fields) == (False, 403, fields)
    assert f"asks for '{H200}' by its raw name" in reply.message


@pytest.mark.parametrize(
    ("spec", "asked"),
    [
        pytest.param(compute({H200: "1"}), 1, id="too few"),
        pytest.param(compute({H200: "3"}), 3, id="too many"),
        pytest.param(compute({H200: "0"}), 0, id="none"),
        pytest.param(compute({H200: "1k"}), 1000, id="thousand"),
        pytest.param(compute({H200: 3}), 3, id="a number"),
        pytest.param(
            {"containers": [{"resources": {"requests": {H200: "2"}, "limits": {H200: "3"}}}]}, 3, id="more in limits"
        ),
        pytest.param(
            {"containers": [{"resources": {"requests": {H200: "3"}, "limits": {H200: "2"}}}]}, 3, id="more in requests"
        ),
        pytest.param({"containers": [limits(**{H200: "2"}), limits(**{H200: "2"})]}, 4, id="two containers"),
        pytest.param({**compute({H200: "2"}), "initContainers": [limits(**{H200: "2"})]}, 4, id="init container too"),
        pytest.param({**compute({H200: "2"}), **limits(**{H200: "2"})}, 4, id="pod level too"),
        pytest.param({**compute({H200: "2"}), "overhead": {H200: "1"}}, 3, id="overhead too"),
    ],
)
async def test_another_number_of_gpus_is_refused(gpu_pair: Pair, spec: Obj, asked: int) -> None:
    reply = await validated(gpu_pair, launcher(spec))

    assert (reply.allowed, reply.code) == (False, 403)
    assert f"the pod asks for {asked} of '{H200}'" in reply.message
    assert "the device grants 2" in reply.message


@pytest.mark.parametrize("amount", ["0", "1"])
@pytest.mark.parametrize("beside", [{}, {H200: "2"}], ids=["alone", "beside the granted"])
async def test_another_gpu_than_the_granted_is_refused(gpu_pair: Pair, beside: Obj, amount: str) -> None:
    reply = await validated(gpu_pair, launcher(compute({**beside, L40S: amount})))

    assert (reply.allowed, reply.code, reply.fields) == (False, 403, (f"{LIMITS}[{L40S}]",))
    assert f"asks for '{L40S}', and the device grants '{H200}'" in reply.message


@pytest.mark.parametrize("amount", ["2", 2, 2.0, "2.0", "2000m", "0.002k", "2e0", "+2"])
async def test_a_quantity_is_read_as_the_api_reads_it(gpu_pair: Pair, amount: object) -> None:
    reply = await validated(gpu_pair, launcher(compute({H200: amount})))

    assert reply.allowed


@pytest.mark.parametrize(
    ("amount", "message"),
    [
        ("0.5", "must be a whole number"),
        (1.5, "must be a whole number"),
        ("1500m", "must be a whole number"),
        ("-1", "must be a whole number"),
        (-2, "must be a whole number"),
        ("two", "must be a quantity"),
        ("", "must be a quantity"),
        ("2GB", "must be a quantity"),
        ("9" * 5000, "must be a quantity"),
        (True, "must be a quantity"),
        (None, "must be a quantity"),
        ([2], "must be a quantity"),
        ({"value": 2}, "must be a quantity"),
    ],
    ids=lambda value: repr(value)[:20],
)
async def test_what_is_no_number_of_gpus_is_malformed(gpu_pair: Pair, amount: object, message: str) -> None:
    replies = [await validated(gpu_pair, launcher(compute({H200: amount})), user) for user in (VIRT_CONTROLLER, TENANT)]

    for reply in replies:
        assert (reply.allowed, reply.code, reply.reason) == (False, 422, "Invalid")
        assert reply.fields == (f"{LIMITS}[{H200}]",)
        assert message in reply.message


async def test_a_zero_quantity_of_a_gpu_is_a_tenants_to_ask_for_no_more_than_one(gpu_pair: Pair) -> None:
    reply = await validated(gpu_pair, launcher(compute({H200: "0"})), TENANT)

    assert (reply.allowed, reply.code, reply.fields) == (False, 403, (f"{LIMITS}[{H200}]",))


async def test_the_resource_that_a_device_holds_counts_not_the_one_its_class_sells_now(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    gpu_catalog.hold("tenant-a", "lab-gpu", node="gpu-node-1", vmi=LAB, resourceName=RETIRED)

    held = await validated(gpu_pair, launcher(compute({RETIRED: "2"})))
    sold = await validated(gpu_pair, launcher(compute({H200: "2"})))

    assert held.allowed
    assert (sold.allowed, sold.fields) == (False, (f"{LIMITS}[{H200}]",))


def settings(**data: str) -> Obj:
    return {"kind": "ConfigMap", "metadata": {"name": "gpu-settings", "namespace": "gpu-system"}, "data": data}


def gpu_class(resource_name: str, *sold: str) -> Obj:
    source = {"devicePlugin": {"resourceName": resource_name}}
    spec = {"vendor": "AMD", "model": "MI300X", "mode": "Passthrough", "memory": "192Gi", "maxCount": 8}
    status = {"resourceNames": list(sold)}
    return {
        "kind": "GPUClass",
        "metadata": {"name": "mi300x"},
        "spec": {**spec, "source": source},
        "status": status,
    }


@pytest.mark.parametrize("user", [TENANT, ADMIN, VIRT_CONTROLLER], ids=lambda user: user.username)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("amd.com/mi300x", id="sold by a class"),
        pytest.param("amd.com/gpu", id="once sold by a class"),
        pytest.param(RETIRED, id="in the settings alone"),
        pytest.param(BY_DEVICE_CLASS, id="of a DeviceClass in the settings"),
    ],
)
async def test_every_name_of_the_settings_and_of_a_class_is_a_gpu(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog, name: str, user: User
) -> None:
    gpu_catalog.add(settings(resourceNames=f"{BY_DEVICE_CLASS},{RETIRED},{H200}", deviceClassNames="gpu.nvidia.com"))
    gpu_catalog.add(gpu_class("amd.com/mi300x", "amd.com/gpu"))

    reply = await validated(gpu_pair, launcher(compute({name: "2"})), user)

    assert (reply.allowed, reply.code, reply.fields) == (False, 403, (f"{LIMITS}[{name}]",))


@pytest.mark.parametrize("user", [TENANT, ADMIN, VIRT_CONTROLLER], ids=lambda user: user.username)
@pytest.mark.parametrize(
    "name",
    [
        "intel.com/qat",
        "nvidia.com/gpu",
        f"{H200}-X",
        "devices.kubevirt.io/kvm",
        "kubernetes.io/batch",
        "node.kubernetes.io/fpga",
        "deviceclass.resource.kubernetes.io/nic.example.com",
        "cpu",
        "hugepages-2Mi",
    ],
)
async def test_other_resources_are_let_in_by_whoever_asks(gpu_pair: Pair, name: str, user: User) -> None:
    pod = launcher({**compute({name: "anything"}), "initContainers": [limits(**{name: "1"})], "affinity": None})
    del pod["metadata"]["ownerReferences"]
    pod["metadata"]["labels"] = {}

    admitted = await gpu_pair.admit(pod, user=user)

    assert admitted.allowed
    assert admitted.mutated.patch == ()


async def test_a_name_that_memory_still_has_is_read_afresh(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    pod = launcher(compute({RETIRED: "1"}))
    with gpu_catalog.stale():
        gpu_catalog.add(settings(resourceNames=H200))

        reply = await validated(gpu_pair, pod, TENANT)

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
        catalog.hold("tenant-a", "lab-gpu", node="gpu-node-1", vmi=LAB)
        return catalog

    @pytest.mark.parametrize("user", [TENANT, VIRT_CONTROLLER], ids=lambda user: user.username)
    @pytest.mark.parametrize("name", [RETIRED, "intel.com/qat", BY_DEVICE_CLASS])
    async def test_a_name_that_might_be_a_gpus_cant_be_judged(self, gpu_pair: Pair, name: str, user: User) -> None:
        reply = await validated(gpu_pair, launcher(compute({name: "1"})), user)

        assert (reply.allowed, reply.code, reply.reason) == (False, 503, "ServiceUnavailable")
        assert f"whether '{name}' is a GPU can't be told" in reply.message
        assert "gpu-settings is missing" in reply.message

    @pytest.mark.parametrize("name", ["cpu", "devices.kubevirt.io/kvm", "kubernetes.io/batch", "node.kubernetes.io/x"])
    async def test_a_name_that_can_be_no_gpus_is_let_in(self, gpu_pair: Pair, name: str) -> None:
        reply = await validated(gpu_pair, launcher(compute({name: "1"})), TENANT)

        assert reply.allowed

    async def test_a_classs_name_is_a_gpus_all_the_same(self, gpu_pair: Pair) -> None:
        refused = await validated(gpu_pair, launcher(compute({H200: "2"})), TENANT)
        let_in = await validated(gpu_pair, launcher(compute({H200: "2"})))

        assert (refused.allowed, refused.code) == (False, 403)
        assert let_in.allowed

    async def test_what_is_granted_covers_no_name_that_cant_be_judged(self, gpu_pair: Pair) -> None:
        reply = await validated(gpu_pair, launcher(compute({H200: "2", RETIRED: "1"})))

        assert (reply.allowed, reply.code) == (False, 503)
        assert f"'{RETIRED}'" in reply.message

    async def test_settings_that_only_memory_lacks_are_read_afresh(
        self, gpu_pair: Pair, gpu_catalog: SettingsLost
    ) -> None:
        gpu_catalog.memory_only = True

        gpu = await validated(gpu_pair, launcher(compute({RETIRED: "1"})), TENANT)
        other = await validated(gpu_pair, launcher(compute({"intel.com/qat": "1"})), TENANT)

        assert (gpu.allowed, gpu.code) == (False, 403)
        assert other.allowed
