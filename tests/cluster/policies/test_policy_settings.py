"""The settings that the policies on raw names go by: missing, empty, as people write them, and very many."""

import copy
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from actors import KUBEVIRT
from controlplane.errors import APIError
from installed import CHART
from policies.callers import CONTROLLER, HANDLER_OF_KUBEVIRT, TENANT
from policies.cases import ELSEWHERE, Call, Case, create, delete, update
from policies.force import until_in_force
from policies.stored import H200, REFERENCE, SETTINGS, claim, claim_spec, named, network, pod, vmi
from policies.world import Verdict, World, policies_of
from release import NAMESPACE
from waiting import eventually

from gpu import names

NOT_FOUND = "no params found for policy binding with `Deny` parameterNotFoundAction"
MOST_NAMES, MOST_DEVICES = 200, 1000
BY_SETTINGS = ("vmi-raw-names", "pod-raw-names", "claims", "networks")


def asks(name: str) -> dict[str, Any]:
    return pod(limits={name: "1"})


def devices(*of: str) -> dict[str, Any]:
    entries = [{"name": f"d{at}", "deviceName": name} for at, name in enumerate(of)]
    return vmi(domain={"devices": {"hostDevices": entries}})


async def ask(world: World, call: Call, *, who: Any = TENANT, where: str = "tenant-a") -> Verdict:
    return await world.verdict(Case(title="", who=who, call=call, where=where))


async def published(world: World, data: Mapping[str, str] | None, probe: str, *, refused: bool) -> None:
    """Publish settings; back when a pod that asks for ``probe`` is judged by them."""
    await world.publish(data)

    async def is_judged() -> bool:
        found = await ask(world, create(asks(probe)))
        return NOT_FOUND not in found.message and bool(found.policy) == refused

    await eventually(is_judged)


@pytest.fixture
async def world(world: World) -> AsyncIterator[World]:
    """The settings are back afterwards."""
    yield world
    await published(world, SETTINGS, H200, refused=True)


@pytest.fixture
async def without_settings(world: World) -> World:
    await world.unpublish()

    async def is_missed() -> bool:
        return NOT_FOUND in (await ask(world, create(pod()))).message

    await eventually(is_missed)
    return world


CREATED = {
    "vmi-raw-names": vmi(),
    "pod-raw-names": pod(),
    "claims": claim(),
    "networks": network(),
}


async def test_while_the_settings_are_missing_what_they_decide_is_refused_in_tenants_namespaces(
    without_settings: World,
) -> None:
    for policy, obj in CREATED.items():
        # when a tenant creates what no GPU is asked for by
        found = await ask(without_settings, create(obj))
        # then it can't be told, and is refused
        assert found.policy == f"{policy}.gpu.cozystack.io"
        assert NOT_FOUND in found.message


@pytest.mark.parametrize("page", ["docs/policies.md", "docs/tenants.md", "README.md"])
async def test_who_is_told_so_finds_the_words_in_the_documentation(without_settings: World, page: str) -> None:
    # given what the API server says while the settings are missing
    with pytest.raises(APIError) as refused:
        await without_settings.kube.create(without_settings.manifest(pod("web-0"), "tenant-a"), dry_run=True)
    # then it stands there, as a whole where the policies are described
    text = " ".join((CHART.parents[1] / page).read_text().split())
    assert NOT_FOUND in text
    assert refused.value.code == 422
    assert (refused.value.message in text) is (page == "docs/policies.md"), refused.value.message


async def test_while_the_settings_are_missing_everything_else_goes_on(without_settings: World) -> None:
    world = without_settings
    config_map = {**named("v1", "ConfigMap", "new"), "data": {}}
    settings = {**named("v1", "ConfigMap", names.SETTINGS), "data": dict(SETTINGS)}
    calls = {
        "a VMI's status": (update("raw-vmi", {"status": {"phase": "Running"}}), HANDLER_OF_KUBEVIRT, "tenant-a"),
        "a VMI's labels": (update("vmi", {"metadata": {"labels": {"a": "b"}}}), TENANT, "tenant-a"),
        "a VMI's deletion": (delete("vmi"), TENANT, "tenant-a"),
        "a pod's status": (update("launcher", {"status": {"message": "a"}}, "status"), HANDLER_OF_KUBEVIRT, "tenant-a"),
        "a pod's deletion": (delete("launcher"), TENANT, "tenant-a"),
        "a claim's status": (update("raw-claim", {"status": {}}, "status"), TENANT, "tenant-a"),
        "a claim's finalizers": (update("raw-claim", {"metadata": {"finalizers": None}}), TENANT, "tenant-a"),
        "a tenant's ConfigMap": (create(config_map), TENANT, "tenant-a"),
        "a pod elsewhere": (create(asks(H200)), TENANT, ELSEWHERE),
        "the controller's pod": (create(asks(H200)), CONTROLLER, NAMESPACE),
        "the settings": (create(settings), CONTROLLER, NAMESPACE),
        "a pod of KubeVirt": (create(pod()), TENANT, KUBEVIRT),
        "a pod of the cluster": (create(pod()), TENANT, "kube-system"),
    }
    for what, (call, who, where) in calls.items():
        assert (what, await ask(world, call, who=who, where=where)) == (what, Verdict())


async def test_the_refusal_while_the_settings_are_missing_is_the_bindings(world: World) -> None:
    # given bindings that would let in what can't be told
    pairs = policies_of(world.plane)
    for policy in BY_SETTINGS:
        binding = copy.deepcopy(dict(pairs[f"{policy}.gpu.cozystack.io"][1]))
        binding["spec"]["paramRef"]["parameterNotFoundAction"] = "Allow"
        await world.kube.patch(binding, {"spec": binding["spec"]})
    try:
        await until_in_force(world)
        # when the settings are missing
        await world.unpublish()

        async def is_let_in() -> bool:
            return all([not (await ask(world, create(obj))).policy for obj in (*CREATED.values(), asks(H200))])

        # then everything is let in
        await eventually(is_let_in)
    finally:
        for policy in BY_SETTINGS:
            binding = dict(pairs[f"{policy}.gpu.cozystack.io"][1])
            await world.kube.patch(binding, {"spec": binding["spec"]})
        await until_in_force(world)


@pytest.mark.parametrize(
    "data", [None, {}, {"resourceNames": "", "deviceClassNames": ""}, {"resourceNames": " , ,"}], ids=str
)
async def test_empty_settings_name_no_gpu(world: World, data: Mapping[str, str] | None) -> None:
    await published(world, data, H200, refused=False)
    # then what asks by name is let in, an empty name too, and gpus are refused all the same
    assert await ask(world, create(devices(H200, ""))) == Verdict()
    assert await ask(world, create(claim(spec=claim_spec("gpu.example.com")))) == Verdict()
    assert await ask(world, create(network(resource=","))) == Verdict()
    assert (await ask(world, create(vmi(domain={"devices": {"gpus": [{"name": "a"}]}})))).policy.startswith(
        "vmi-raw-names"
    )


@pytest.mark.parametrize(
    "listed", ["example.com/a", " example.com/a ", "example.com/b , example.com/a", ",example.com/a,,example.com/a,"]
)
async def test_names_count_however_they_are_listed(world: World, listed: str) -> None:
    await published(world, {"resourceNames": listed}, "example.com/a", refused=True)
    assert "asks for example.com/a by" in (await ask(world, create(devices("example.com/a")))).message
    assert await ask(world, create(devices(H200, "example.com", "example.com/"))) == Verdict()
    assert await ask(world, create(asks(H200))) == Verdict()


async def test_guarded_classes_count_with_spaces_too(world: World) -> None:
    await published(
        world,
        {"deviceClassNames": " a.example.com , b.example.com "},
        "deviceclass.resource.kubernetes.io/b.example.com",
        refused=True,
    )
    assert (
        "asks for the DeviceClass b.example.com by name"
        in (await ask(world, create(claim(spec=claim_spec("b.example.com"))))).message
    )
    assert await ask(world, create(claim(spec=claim_spec("c.example.com")))) == Verdict()


async def test_200_names_and_a_vmi_of_1000_devices_are_far_within_the_budget(
    world: World, record_property: Any
) -> None:
    # given as many names as there may be
    published_names = [f"vendor-{at:03}.example.com/GPU_OF_A_LONG_NAME_{at:03}" for at in range(MOST_NAMES)]
    await published(world, {"resourceNames": ",".join(published_names)}, published_names[-1], refused=True)
    # then a VMI of many other devices is let in, and one is found among them
    others = ["intel.com/sriov"] * MOST_DEVICES
    assert await ask(world, create(devices(*others))) == Verdict()
    assert (
        f"asks for {published_names[-1]} by"
        in (await ask(world, create(devices(*others, published_names[-1])))).message
    )
    # and so it is with a pod of many containers
    sidecars = [
        {"name": f"c{at}", "image": "a", "resources": {"limits": {"intel.com/sriov": "1"}}} for at in range(100)
    ]
    many = pod()
    many["spec"]["containers"] += sidecars
    assert await ask(world, create(many)) == Verdict()
    # how far it would go: above that a VMI is refused, since its cost can't be paid
    least, most = 3 * MOST_DEVICES, 7 * MOST_DEVICES
    while most - least > 250:
        middle = (least + most) // 2
        found = await ask(world, create(devices(*["intel.com/sriov"] * middle)))
        least, most = (middle, most) if not found.policy else (least, middle)
    record_property("devices within the budget", least)
    print(f"with {MOST_NAMES} names the budget is enough for a VMI of {least} host devices")
    assert least > 3 * MOST_DEVICES
    assert "cost limit exceeded" in (await ask(world, create(devices(*["intel.com/sriov"] * most)))).message
    assert await ask(world, create(vmi(labels=REFERENCE, domain={"devices": {"hostDevices": []}}))) == Verdict()
