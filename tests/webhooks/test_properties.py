"""What holds for every VMI that the mutating path lets in, whatever road it asks for GPUs on."""

import asyncio
import json
import re
from copy import deepcopy
from dataclasses import dataclass
from itertools import count as counting
from itertools import islice
from typing import Any
from uuid import uuid4

import jsonpatch
import orjson
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from gpu.clock import utc_now
from webhooks.answer import Answer
from webhooks.app import make_app
from webhooks.context import Context
from webhooks.mutating import mutate
from webhooks.review import Request, decode
from webhooks.settings import Settings
from webhooks.testing import InMemoryCatalog, Pair, persisted, review
from webhooks.validating import validate

REFERENCE = "gpu.cozystack.io/device-reference"
TEMPLATE = "gpu.cozystack.io/device-template"
SOLD = "nvidia.com/SOLD"
OTHER_CLASS = "amd.com/OTHER"
RETIRED = "nvidia.com/RE~TIRED/1"
GPU_NAMES = [SOLD, OTHER_CLASS, RETIRED]
OTHER_NAMES = ["intel.com/nic", "example.com/not~a/gpu", "devices.kubevirt.io/kvm", "memory", "nvidia.com/sold"]
CLAIMS = ["claim-0", "claim-1", "claim-2", ""]

many = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
few = settings(many, max_examples=10)


# What a VMI can look like.

odd_keys = st.sampled_from(["app", "a/b~c", "~1", "~0/~1", "", "-", "0", "ключ", "gpu.cozystack.io/other"])
unknown_fields = st.sampled_from(
    [
        {},
        {},
        {},
        {"future": None},
        {"future/~field": {"gpus": [{"deviceName": SOLD}], "~1": []}},
        {"gpus~": [[], {}, 1.5]},
    ]
)
MISSING = object()


def objects(known: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with the known fields, and with fields that nobody knows."""
    return st.builds(
        lambda unknown, fields: {**unknown, **{key: value for key, value in fields.items() if value is not MISSING}},
        unknown_fields,
        st.fixed_dictionaries(known),
    )


entry = objects(
    {
        "name": st.sampled_from([*(f"gpu-{index}" for index in range(5)), "card", "nic"]),
        "deviceName": st.sampled_from([*GPU_NAMES, *OTHER_NAMES, None, MISSING]),
        "claimName": st.sampled_from([*CLAIMS, None, *[MISSING] * 5]),
        "requestName": st.sampled_from(["r", "", None, MISSING, MISSING]),
        "virtualGPUOptions": st.sampled_from([{"display": {"enabled": True}}, MISSING]),
    }
)
entries = st.lists(entry, max_size=3)
amounts = st.dictionaries(
    st.sampled_from([*GPU_NAMES, *OTHER_NAMES]), st.sampled_from(["0", 0, "1", 1, "2", "1Gi", "500m"]), max_size=4
)
devices = objects(
    {
        "gpus": entries,
        "hostDevices": entries,
        "disks": st.sampled_from([[{"name": "root"}], MISSING]),
    }
)
domain = objects(
    {
        "devices": devices,
        "resources": objects({"requests": amounts, "limits": amounts}),
        "memory": st.sampled_from([{"guest": "1Gi"}, MISSING]),
    }
)
claim = objects({"name": st.sampled_from([*CLAIMS, None, MISSING]), "resourceClaimName": st.just("c")})
network = objects(
    {
        "name": st.just("n"),
        "resourceClaim": st.sampled_from([*({"claimName": name} for name in CLAIMS), {}, None, MISSING]),
    }
)
spec = objects(
    {
        "domain": domain,
        "resourceClaims": st.lists(claim, max_size=4),
        "networks": st.lists(network, max_size=2),
    }
)
marks = st.dictionaries(odd_keys, st.sampled_from(["", "x", "~/"]), max_size=2)
vmis = objects({"spec": spec, "status": st.sampled_from([{}, MISSING])})
names = st.sampled_from(["vm", "a.b", "a-b", "A_B", "x" * 63, "x" * 253, "x" * 252 + ".", "gpu-0"])
namings = st.builds(lambda name: {"name": name}, names) | st.builds(lambda name: {"generateName": name}, names)


DOMAIN = ("spec", "domain")
PARENTS = [
    ("spec",),
    DOMAIN,
    (*DOMAIN, "devices"),
    (*DOMAIN, "devices", "gpus"),
    (*DOMAIN, "devices", "hostDevices"),
    (*DOMAIN, "resources"),
    (*DOMAIN, "resources", "requests"),
    (*DOMAIN, "resources", "limits"),
    ("spec", "resourceClaims"),
    ("spec", "networks"),
]
gaps = st.dictionaries(st.sampled_from(PARENTS), st.sampled_from([None, MISSING]), max_size=2)


def with_gaps(obj: dict[str, Any], gaps: dict[tuple[str, ...], Any]) -> dict[str, Any]:
    """The object with some parts null or missing."""
    for path, value in gaps.items():
        parent = at(obj, *path[:-1])
        if parent is not None:
            parent[path[-1]] = value
            if value is MISSING:
                del parent[path[-1]]
    return obj


@dataclass(frozen=True)
class Scenario:
    """A VMI that may be let in: it has no more GPU entries than its device grants. ``device`` is None by template."""

    obj: dict[str, Any]
    device: dict[str, Any] | None
    granted: str
    count: int
    dry_run: bool


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    obj = with_gaps(deepcopy(draw(vmis)), draw(gaps))
    asked = len(gpu_entries(obj))
    count = draw(st.integers(max(asked, 1), 16))
    metadata = {
        **draw(objects({"labels": st.none() | marks, "annotations": st.none() | marks})),
        **draw(namings),
        "namespace": f"tenant-{draw(st.integers(0, 9))}",
    }
    by_template = draw(st.booleans())
    granted, status = SOLD, {}
    if by_template:
        order = {"className": "sold", "count": count} if count > 1 or draw(st.booleans()) else {"className": "sold"}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), TEMPLATE: json.dumps(order)}
        if draw(st.booleans()):
            metadata["labels"] = {**(metadata.get("labels") or {}), REFERENCE: draw(st.sampled_from(["gone-1", ""]))}
    else:
        metadata["labels"] = {**(metadata.get("labels") or {}), REFERENCE: "ordered"}
        if draw(st.booleans()):
            granted = draw(st.sampled_from([*GPU_NAMES, "nvidia.com/unpublished"]))
            status = {"phase": "Held", "resourceName": granted, "nodeName": "node"}
    device = {
        "kind": "GPUDevice",
        "metadata": {"name": "ordered", "namespace": metadata["namespace"]},
        "spec": {"className": "sold", "count": count},
        "status": status,
    }
    obj |= {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": metadata}
    event("by template" if by_template else "by reference")
    event(f"{asked} GPU entries")
    event(f"{sum(name in GPU_NAMES for name in resources_in(obj))} GPU names in resources")
    event(f"{len(claims_in(obj))} claims")
    return Scenario(obj, None if by_template else device, granted, count, draw(st.booleans()))


# What has to become of it, said once more and in another way than the product says it.


def at(obj: Any, *keys: str) -> Any:
    for key in keys:
        obj = (obj or {}).get(key)
    return obj


def gpu_entries(obj: dict[str, Any], granted: str = SOLD) -> list[dict[str, Any]]:
    devices = at(obj, "spec", "domain", "devices") or {}
    named = [entry for entry in devices.get("hostDevices") or [] if entry.get("deviceName") in {*GPU_NAMES, granted}]
    return [*(devices.get("gpus") or []), *named]


def names_in(obj: dict[str, Any]) -> list[Any]:
    devices = at(obj, "spec", "domain", "devices") or {}
    return [entry.get("name") for key in ("gpus", "hostDevices") for entry in devices.get(key) or []]


def resources_in(obj: dict[str, Any]) -> list[str]:
    return [name for key in ("requests", "limits") for name in at(obj, "spec", "domain", "resources", key) or {}]


def claims_in(obj: dict[str, Any]) -> set[Any]:
    lists = [at(obj, "spec", "domain", "devices", key) or [] for key in ("gpus", "hostDevices")]
    networks = [network.get("resourceClaim") or {} for network in at(obj, "spec", "networks") or []]
    return {holder.get("claimName") for holder in (*lists[0], *lists[1], *networks)} - {None, ""}


def expected(scenario: Scenario, reference: str) -> dict[str, Any]:
    """The VMI with exactly the changes that it has to come out with."""
    want = deepcopy(scenario.obj)
    mine, before = gpu_entries(want, scenario.granted), claims_in(want)
    for entry in mine:
        entry["deviceName"] = scenario.granted
        entry.pop("claimName", None)
        entry.pop("requestName", None)
    if missing := scenario.count - len(mine):
        taken, parent = set(names_in(want)), want
        for key in ("spec", "domain", "devices"):
            parent[key] = {} if parent.get(key) is None else parent[key]
            parent = parent[key]
        free = (name for index in counting() if (name := f"gpu-{index}") not in taken)
        added = [{"name": name, "deviceName": scenario.granted} for name in islice(free, missing)]
        parent["gpus"] = [*(parent.get("gpus") or []), *added]
    for key in ("requests", "limits"):
        for name in {*GPU_NAMES, scenario.granted}:
            (at(want, "spec", "domain", "resources", key) or {}).pop(name, None)
    if claims := at(want, "spec", "resourceClaims"):
        lost = before - claims_in(want)
        want["spec"]["resourceClaims"] = [claim for claim in claims if claim.get("name") not in lost]
    want["metadata"]["labels"] = {**(want["metadata"].get("labels") or {}), REFERENCE: reference}
    return want


# The pair, driven without HTTP.


def new_catalog(*objects: dict[str, Any] | None) -> InMemoryCatalog:
    catalog = InMemoryCatalog()
    for name, resource_name in (("sold", SOLD), ("other", OTHER_CLASS)):
        source = {"devicePlugin": {"resourceName": resource_name}}
        spec = {"vendor": "v", "model": "m", "mode": "Passthrough", "memory": "1Gi", "maxCount": 16, "source": source}
        catalog.add({"kind": "GPUClass", "metadata": {"name": name}, "spec": spec})
    data = {"resourceNames": ",".join(GPU_NAMES)}
    catalog.add({"kind": "ConfigMap", "metadata": {"name": "gpu-settings", "namespace": "gpu-system"}, "data": data})
    for obj in objects:
        if obj is not None:
            catalog.add(obj)
    return catalog


def context_of(catalog: InMemoryCatalog) -> Context:
    return Context(catalog=catalog, settings=Settings(), clock=utc_now, devices=lambda _: None)


def request_for(obj: dict[str, Any], *, dry_run: bool = False) -> Request:
    request = decode(orjson.dumps(review(obj, dry_run=dry_run)))
    assert isinstance(request, Request)
    return request


def applied(answer: Answer, obj: dict[str, Any]) -> dict[str, Any]:
    assert answer.refusal is None, answer.refusal.message
    patched: dict[str, Any] = jsonpatch.apply_patch(obj, orjson.loads(orjson.dumps(answer.patch)))
    return patched


@many
@given(scenarios())
def test_the_patch_gives_exactly_what_the_device_grants_and_changes_nothing_else(scenario: Scenario) -> None:
    catalog = new_catalog(scenario.device)
    request = request_for(scenario.obj, dry_run=scenario.dry_run)

    answer = asyncio.run(mutate(request, context_of(catalog)))

    patched = applied(answer, scenario.obj)
    mine = gpu_entries(patched, scenario.granted)
    added = [name for name in names_in(patched) if names_in(patched).count(name) > names_in(scenario.obj).count(name)]
    assert [entry["deviceName"] for entry in mine] == [scenario.granted] * scenario.count
    assert not any("claimName" in entry or "requestName" in entry for entry in mine)
    assert not {*GPU_NAMES, scenario.granted}.intersection(resources_in(patched))
    assert all(re.fullmatch("[A-Za-z0-9_-]+", name) and name not in names_in(scenario.obj) for name in added)
    assert len(set(added)) == len(added)
    assert patched == expected(scenario, patched["metadata"]["labels"][REFERENCE])


@many
@given(scenarios())
def test_the_object_that_came_in_is_not_changed(scenario: Scenario) -> None:
    request = request_for(scenario.obj, dry_run=scenario.dry_run)

    asyncio.run(mutate(request, context_of(new_catalog(scenario.device))))

    assert request.object == scenario.obj


@many
@given(scenarios())
def test_what_is_granted_is_there_and_only_built_where_it_is_no_dry_run(scenario: Scenario) -> None:
    catalog = new_catalog(scenario.device)
    namespace = scenario.obj["metadata"]["namespace"]

    answer = asyncio.run(mutate(request_for(scenario.obj, dry_run=scenario.dry_run), context_of(catalog)))

    reference = applied(answer, scenario.obj)["metadata"]["labels"][REFERENCE]
    found = {device.name: (device.class_name, device.count) for device in catalog.devices(namespace)}
    built_none = scenario.device is None and scenario.dry_run
    assert found == ({} if built_none else {reference: ("sold", scenario.count)})


@many
@given(scenarios())
def test_applied_twice_it_changes_nothing(scenario: Scenario) -> None:
    context = context_of(new_catalog(scenario.device))
    first = asyncio.run(mutate(request_for(scenario.obj, dry_run=scenario.dry_run), context))
    patched = applied(first, scenario.obj)

    again = asyncio.run(mutate(request_for(patched, dry_run=scenario.dry_run), context))

    assert again.refusal is None
    assert list(again.patch) == []
    assert [warning for warning in again.warnings if not warning.startswith("would have built")] == []


@many
@given(scenarios())
def test_the_validating_path_admits_what_the_mutating_path_left(scenario: Scenario) -> None:
    context = context_of(new_catalog(scenario.device))
    first = asyncio.run(mutate(request_for(scenario.obj, dry_run=scenario.dry_run), context))
    stored = persisted(applied(first, scenario.obj))

    answer = asyncio.run(validate(request_for(stored, dry_run=scenario.dry_run), context))

    assert answer.refusal is None, answer.refusal.message
    assert list(answer.patch) == []


@many
@given(scenarios())
def test_one_entry_taken_away_or_renamed_afterwards_is_refused(scenario: Scenario) -> None:
    context = context_of(new_catalog(scenario.device))
    first = asyncio.run(mutate(request_for(scenario.obj, dry_run=scenario.dry_run), context))
    taken, renamed = persisted(applied(first, scenario.obj)), persisted(applied(first, scenario.obj))
    devices = taken["spec"]["domain"]["devices"]
    last = gpu_entries(taken, scenario.granted)[-1]
    for key in ("gpus", "hostDevices"):
        devices[key] = [entry for entry in devices.get(key) or [] if entry is not last]
    gpu_entries(renamed, scenario.granted)[-1]["deviceName"] = "nvidia.com/ANOTHER"

    refusals = [
        asyncio.run(validate(request_for(obj, dry_run=scenario.dry_run), context)).refusal for obj in (taken, renamed)
    ]

    assert [refusal and refusal.code for refusal in refusals] == [403, 403]


@many
@given(scenarios(), st.integers(1, 3))
def test_one_entry_too_many_is_refused_and_nothing_is_built(scenario: Scenario, more: int) -> None:
    catalog = new_catalog(scenario.device)
    before = catalog.devices(scenario.obj["metadata"]["namespace"])
    obj = deepcopy(scenario.obj)
    room = scenario.count - len(gpu_entries(obj, scenario.granted))
    parent = obj
    for key in ("spec", "domain", "devices"):
        parent[key] = parent.get(key) or {}
        parent = parent[key]
    parent["hostDevices"] = [
        *(parent.get("hostDevices") or []),
        *({"name": f"more-{index}", "deviceName": OTHER_CLASS} for index in range(room + more)),
    ]

    answer = asyncio.run(mutate(request_for(obj, dry_run=scenario.dry_run), context_of(catalog)))

    first_too_many = len(parent["hostDevices"]) - more
    assert answer.refusal is not None
    assert answer.refusal.code == 403
    assert [cause.field for cause in answer.refusal.causes] == [f"spec.domain.devices.hostDevices[{first_too_many}]"]
    assert list(answer.patch) == []
    assert catalog.devices(obj["metadata"]["namespace"]) == before


@st.composite
def orders(draw: st.DrawFn) -> dict[str, Any]:
    """A VMI that orders a device, from a small choice, so that two often look alike."""
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "controller": True, "name": "o"}
    order = {"className": "sold", "count": draw(st.integers(1, 2))}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {
            **draw(namings),
            "namespace": "tenant-a",
            "annotations": {TEMPLATE: json.dumps(order)},
            "ownerReferences": [{**owner, "uid": draw(st.sampled_from(["o-1", "o-2"]))}],
            **draw(st.sampled_from([{}, {"labels": {REFERENCE: "gone-1"}}])),
        },
        "spec": {},
    }


def identity(obj: dict[str, Any]) -> tuple[str, ...]:
    metadata = obj["metadata"]
    if "name" not in metadata:
        return (str(uuid4()),)
    return (metadata["ownerReferences"][0]["uid"], metadata["name"], metadata["annotations"][TEMPLATE])


@many
@given(st.lists(st.tuples(orders(), st.booleans()), min_size=2, max_size=8))
def test_different_vmis_never_share_a_template_device_and_a_retry_comes_to_its_own(
    calls: list[tuple[dict[str, Any], bool]],
) -> None:
    catalog = new_catalog()
    owners: dict[str, tuple[str, ...]] = {}
    references: dict[tuple[str, ...], set[str]] = {}

    for obj, is_stale in calls:
        who = identity(obj)
        if is_stale:
            with catalog.stale():
                answer = asyncio.run(mutate(request_for(obj), context_of(catalog)))
        else:
            answer = asyncio.run(mutate(request_for(obj), context_of(catalog)))
        reference = applied(answer, obj)["metadata"]["labels"][REFERENCE]
        references.setdefault(who, set()).add(reference)
        assert owners.setdefault(reference, who) == who

    assert all(len(found) == 1 for found in references.values())
    assert {device.name for device in catalog.devices("tenant-a")} == owners.keys()


@few
@given(st.lists(scenarios().filter(lambda scenario: bool(gpu_entries(scenario.obj))), min_size=3, max_size=3))
def test_over_http_both_paths_let_it_in_and_give_what_is_granted(batch: list[Scenario]) -> None:
    async def run() -> None:
        catalog = new_catalog()
        async with TestClient(TestServer(make_app(catalog=catalog))) as client:
            for index, scenario in enumerate(batch):
                obj = deepcopy(scenario.obj)
                obj["metadata"]["namespace"] = f"batch-{index}"
                if scenario.device is not None:
                    metadata = {**scenario.device["metadata"], "namespace": f"batch-{index}"}
                    catalog.add({**scenario.device, "metadata": metadata})

                admitted = await Pair(client).admit(obj, dry_run=scenario.dry_run)

                assert admitted.allowed, admitted.refusal.message
                patched = admitted.mutated.applied_to(obj)
                reference = patched["metadata"]["labels"][REFERENCE]
                whole = Scenario(obj, scenario.device, scenario.granted, scenario.count, scenario.dry_run)
                assert patched == expected(whole, reference)
                assert all(len(warning) <= 120 for warning in admitted.mutated.warnings)

    asyncio.run(run())
