"""What holds for any pod on either path, with an oracle of its own."""

import asyncio
from collections.abc import Callable, Coroutine
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeAlias

import jsonpatch
import orjson
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from gpu.clock import utc_now
from gpu.errors import FieldError
from gpu.pod import is_pinned, pin
from webhooks.answer import Answer
from webhooks.context import Context
from webhooks.manifests import read_manifests
from webhooks.mutating import mutate
from webhooks.review import Request, decode
from webhooks.settings import Settings
from webhooks.testing import ADMIN, TENANT, VIRT_CONTROLLER, InMemoryCatalog, Reply, User, review
from webhooks.validating import validate

Obj: TypeAlias = dict[str, Any]

EXAMPLES = Path(__file__).parents[2] / "examples"
MANIFESTS = [manifest.obj for manifest in read_manifests(EXAMPLES / "catalog")]
REFERENCE = "gpu.cozystack.io/device-reference"
MIGRATION_JOB = "kubevirt.io/migrationJobUID"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
L40S, RETIRED = "nvidia.com/L40S-24Q", "nvidia.com/GA100_A100_PCIE_40GB"
GPU_NAMES = {L40S, RETIRED, "nvidia.com/GH100_H200_SXM_141GB"}
OTHER_NAMES = ("intel.com/qat", "cpu", "devices.kubevirt.io/kvm", "nvidia.com/gpu")
NODE, RESERVED, ELSEWHERE = "gpu-node-2", "gpu-node-3", "gpu-node-9"
UID = "3c1d1d2e-52f4-4c2a-9d3e-0f6f1f4a7b01"
VMI: Obj = {"metadata": {"name": "desk", "uid": UID}}


def mostly(good: object, *bad: object) -> st.SearchStrategy[Any]:
    """What is right four times out of five, so that a pod of many parts is right often enough."""
    return st.sampled_from(range(5)).flatmap(lambda n: st.just(good) if n or not bad else st.sampled_from(bad))


def owner(**changes: Any) -> Obj:
    right = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "desk", "controller": True}
    return {**right, "uid": UID, **changes}


def on(*nodes: str, operator: str = "In", key: str = "metadata.name") -> Obj:
    return {"key": key, "operator": operator, "values": list(nodes)}


requirements = st.lists(
    st.sampled_from([on(NODE), on(RESERVED), on(NODE, ELSEWHERE), on(NODE, operator="NotIn"), on(NODE, key="other")]),
    max_size=3,
)
terms = st.fixed_dictionaries(
    {},
    optional={
        "matchFields": st.none() | requirements,
        "matchExpressions": st.just([on("a", key="zone")]),
    },
)
required_affinities = st.none() | st.fixed_dictionaries({"nodeSelectorTerms": st.none() | st.lists(terms, max_size=3)})
affinities = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "nodeAffinity": st.none()
        | st.fixed_dictionaries(
            {}, optional={REQUIRED: required_affinities, PREFERRED: st.just([{"weight": 1, "preference": {}}])}
        ),
        "podAffinity": st.just({}),
    },
)


def pinned(node: str) -> Obj:
    term = {"matchExpressions": [on("a", key="zone")], "matchFields": [on(node)]}
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term, {"matchFields": [on(node)]}]}}}


amounts = st.dictionaries(st.sampled_from(OTHER_NAMES), st.just("1"), max_size=2)
gpu_amounts = st.dictionaries(st.sampled_from(sorted(GPU_NAMES)), st.sampled_from(["0", "1", 1, "2"]), max_size=2)
resources = st.fixed_dictionaries({}, optional={"limits": amounts | gpu_amounts, "requests": amounts | gpu_amounts})
holders = st.fixed_dictionaries({}, optional={"resources": resources})
wild_specs = st.fixed_dictionaries(
    {"containers": st.lists(holders, max_size=2)},
    optional={
        "initContainers": st.lists(holders, max_size=2),
        "ephemeralContainers": st.lists(holders, max_size=1),
        "resources": resources,
        "overhead": amounts | gpu_amounts,
    },
)
right_specs = st.fixed_dictionaries(
    {"containers": amounts.map(lambda more: [{"resources": {"limits": {**more, L40S: "1"}}}])},
    optional={"initContainers": st.builds(lambda more: [{"resources": {"limits": more}}], amounts)},
)

owners = mostly(
    [owner()],
    None,
    [],
    [owner(controller=False)],
    [owner(kind="Pod", apiVersion="v1")],
    [owner(apiVersion="example.com/v1")],
    [owner(uid="another")],
    [owner(kind="Pod", controller=False), owner()],
)


@st.composite
def pods(draw: st.DrawFn) -> Obj:
    labels = {REFERENCE: draw(mostly("desk-gpu", None, "", "ghost", "my-gpu", "lab-gpu"))}
    migration = draw(mostly(None, "m-1", "m-1", "m-2", ""))
    labels[MIGRATION_JOB] = migration
    right_node = NODE if migration is None else RESERVED
    affinity = draw(affinities) if draw(st.integers(0, 3)) == 0 else pinned(draw(mostly(right_node, ELSEWHERE)))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "launcher",
            "namespace": "tenant-a",
            "labels": {key: value for key, value in labels.items() if value is not None},
            "ownerReferences": draw(owners),
        },
        "spec": {**draw(right_specs if draw(st.booleans()) else wild_specs), "affinity": affinity},
    }


def other_pod(node: str, *, resource: str = L40S, phase: str = "Running", **metadata: Any) -> Obj:
    return {
        "kind": "Pod",
        "metadata": {"name": "other", "namespace": "tenant-a", "ownerReferences": [owner()], **metadata},
        "spec": {"nodeName": node, "containers": [{"resources": {"limits": {resource: "1"}}}]},
        "status": {"phase": phase},
    }


in_the_way = [other_pod(NODE), other_pod(RESERVED)]
out_of_the_way = [
    other_pod(NODE, phase="Failed"),
    other_pod(NODE, resource="intel.com/qat"),
    other_pod(NODE, deletionTimestamp="2026-11-01T10:00:00Z"),
    other_pod(NODE, ownerReferences=[owner(uid="another")]),
]
neighbours = mostly(None, *in_the_way, *out_of_the_way)

statuses = mostly(
    {"phase": "InUse"},
    {"phase": "Releasing"},
    {"phase": "Pending"},
    {"binding": None},
    {"binding": {"name": "desk", "uid": "another"}},
    {"nodeName": ""},
    {"migration": None},
)
users = mostly(VIRT_CONTROLLER, TENANT, ADMIN, User("system:serviceaccount:x:kubevirt-controller"))


def scene(status: Obj, neighbour: Obj | None) -> InMemoryCatalog:
    catalog = InMemoryCatalog()
    for manifest in MANIFESTS:
        catalog.add(manifest)
    migration = {"uid": "m-1", "nodeName": RESERVED}
    catalog.hold("tenant-a", "desk-gpu", node=NODE, vmi=VMI, **{"migration": migration, **status})
    if neighbour:
        catalog.add(neighbour)
    return catalog


def asked_gpus(pod: Obj) -> list[tuple[str, int]]:
    """Every GPU name with its amount, once for each place; the larger of request and limit."""
    spec = pod["spec"]
    places = [spec.get("resources", {}), {"limits": spec.get("overhead", {})}]
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        places += [holder.get("resources", {}) for holder in spec.get(kind, [])]
    found = []
    for place in places:
        both = [*place.get("limits", {}).items(), *place.get("requests", {}).items()]
        found += [
            (name, max(int(amount) for key, amount in both if key == name)) for name in GPU_NAMES & dict(both).keys()
        ]
    return found


def holds_to(pod: Obj, node: str) -> bool:
    node_affinity = (pod["spec"]["affinity"] or {}).get("nodeAffinity") or {}
    terms = (node_affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or []
    return bool(terms) and all(on(node) in (term.get("matchFields") or []) for term in terms)


def may_have_gpus(pod: Obj, user: User, status: Obj, neighbour: Obj | None) -> bool:
    """The conditions of the design, one by one, for a pod that asks for GPUs."""
    gpus = asked_gpus(pod)
    labels = pod["metadata"]["labels"]
    controllers = [o for o in pod["metadata"]["ownerReferences"] or [] if o["controller"] is True]
    job = labels.get(MIGRATION_JOB)
    reserved = "migration" not in status
    node = NODE if job is None else RESERVED
    return all(
        (
            user.username == "system:serviceaccount:kubevirt:kubevirt-controller",
            [(o["apiVersion"], o["kind"], o["uid"]) for o in controllers]
            == [("kubevirt.io/v1", "VirtualMachineInstance", UID)],
            labels.get(REFERENCE) == "desk-gpu",
            status.get("phase") != "Pending" and status.get("nodeName") != "",
            status.get("binding", VMI["metadata"]) == VMI["metadata"],
            {name for name, _ in gpus} == {L40S},
            sum(amount for _, amount in gpus) == 1,
            job is None or (job == "m-1" and reserved),
            holds_to(pod, node),
            neighbour not in in_the_way or (job is not None and neighbour == in_the_way[0]),
        )
    )


Decide: TypeAlias = Callable[[Request, Context], Coroutine[Any, Any, Answer]]


def answer_to(decide: Decide, request: Request, catalog: InMemoryCatalog) -> Answer:
    context = Context(catalog=catalog, settings=Settings(), clock=utc_now, devices=lambda _: None)
    return asyncio.run(decide(request, context))


def answer(decide: Decide, pod: Obj, user: User, catalog: InMemoryCatalog) -> Reply:
    """What a path says, by way of the codec; the HTTP path is shown elsewhere."""
    request = decode(orjson.dumps(review(pod, user=user)))
    assert isinstance(request, Request)
    given_answer = answer_to(decide, request, catalog)
    refusal = given_answer.refusal
    return Reply(
        allowed=refusal is None,
        code=refusal.code if refusal else 200,
        reason=refusal.reason if refusal else "",
        message=refusal.message if refusal else "",
        causes=tuple((cause.field, cause.message) for cause in refusal.causes) if refusal else (),
        warnings=(),
        patch=tuple(given_answer.patch),
    )


RIGHT: Obj = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "launcher",
        "namespace": "tenant-a",
        "labels": {REFERENCE: "desk-gpu"},
        "ownerReferences": [owner()],
    },
    "spec": {
        "containers": [{"resources": {"limits": {L40S: "1"}, "requests": {L40S: "1"}}}],
        "initContainers": [{"resources": {"limits": {"cpu": "1"}}}],
        "overhead": {"cpu": "1"},
        "resourceClaims": [{"name": "nic", "resourceClaimName": "nic"}],
        "affinity": pinned(NODE),
    },
}
TARGET: Obj = {**RIGHT, "metadata": {**RIGHT["metadata"], "labels": {REFERENCE: "desk-gpu", MIGRATION_JOB: "m-1"}}}
TARGET["spec"] = {**RIGHT["spec"], "affinity": pinned(RESERVED)}


@settings(max_examples=400, deadline=None)
@given(pods(), users, statuses, neighbours)
@example(RIGHT, VIRT_CONTROLLER, {}, None)
@example(TARGET, VIRT_CONTROLLER, {}, in_the_way[0])
@example(TARGET, VIRT_CONTROLLER, {}, in_the_way[1])
def test_a_pod_with_gpus_is_let_in_exactly_when_every_condition_holds(
    pod: Obj, user: User, status: Obj, neighbour: Obj | None
) -> None:
    expected = not asked_gpus(pod) or may_have_gpus(pod, user, status, neighbour)
    event(f"asks for GPUs: {bool(asked_gpus(pod))}, let in: {expected}")

    reply = answer(validate, pod, user, scene(status, neighbour))

    assert reply.allowed is expected, reply.message


@settings(max_examples=200, deadline=None)
@given(pods(), users, statuses)
def test_the_mutating_path_refuses_only_what_the_validating_path_would_and_as_it_would(
    pod: Obj, user: User, status: Obj
) -> None:
    catalog = scene(status, None)

    reply = answer(mutate, pod, user, catalog)

    event(f"let in: {reply.allowed}, patched: {bool(reply.patch)}")
    if not reply.allowed:
        assert asked_gpus(pod)
        assert reply == answer(validate, pod, user, catalog)


@settings(max_examples=200, deadline=None)
@given(pods(), users, statuses)
def test_the_mutating_path_changes_the_affinity_alone_and_only_once(pod: Obj, user: User, status: Obj) -> None:
    catalog = scene(status, None)
    first = answer(mutate, pod, user, catalog)

    pod_after = first.applied_to(pod)
    second = answer(mutate, pod_after, user, catalog)

    assert without_affinity(pod_after) == without_affinity(pod)
    assert second.patch == ()
    assert second.allowed is first.allowed
    if first.patch:
        assert user == VIRT_CONTROLLER
        assert REFERENCE in pod["metadata"]["labels"]


def without_affinity(pod: Obj) -> list[Obj | None]:
    """All of the pod but its required node affinity."""
    rest = deepcopy(pod)
    rest["spec"] = rest["spec"] or {}
    affinity = rest["spec"].pop("affinity", None) or {}
    node_affinity = affinity.pop("nodeAffinity", None) or {}
    return [rest, affinity, node_affinity.get(PREFERRED)]


specs: st.SearchStrategy[Obj | None] = st.none() | st.fixed_dictionaries(
    {}, optional={"affinity": affinities, "containers": st.just([])}
)


@given(specs, st.sampled_from([NODE, "a.b/c~d"]))
def test_a_pod_that_is_pinned_runs_nowhere_else_and_is_otherwise_the_same(spec: Obj | None, node: str) -> None:
    pod = {"metadata": {"name": "launcher"}, "spec": spec}
    before = deepcopy(pod)

    after = jsonpatch.apply_patch(pod, pin(pod, node))

    assert is_pinned(after, node)
    assert pin(after, node) == []
    assert pod == before
    assert without_affinity(after) == without_affinity(pod)
    for term, old in zip(terms_of(after), terms_of(pod), strict=False):
        assert term == {**old, "matchFields": term["matchFields"]}
        had = old.get("matchFields") or []
        assert term["matchFields"] in (had, [*had, on(node)])
    assert len(terms_of(after)) == max(1, len(terms_of(pod)))


@given(specs, st.sampled_from([NODE, ELSEWHERE]))
def test_a_pod_is_pinned_exactly_when_nothing_is_to_be_added(spec: Obj | None, node: str) -> None:
    pod = {"metadata": {"name": "launcher"}, "spec": spec}

    assert is_pinned(pod, node) is (pin(pod, node) == [])


def terms_of(pod: Obj) -> list[Obj]:
    node_affinity = ((pod["spec"] or {}).get("affinity") or {}).get("nodeAffinity") or {}
    found: list[Obj] = (node_affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or []
    return found


def places(value: object) -> list[tuple[str | int, ...]]:
    """The way to everything in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(), *((key, *rest) for key, item in items for rest in places(item))]


junk = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5) | st.just(L40S), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from([RIGHT, TARGET]), st.data(), statuses, users)
def test_junk_anywhere_in_a_pod_is_answered_to(right: Obj, data: st.DataObject, status: Obj, user: User) -> None:
    """What is malformed has a field path; nothing else is raised."""
    pod: Any = deepcopy(right)
    *way, last = data.draw(st.sampled_from(places(pod)[1:]))
    parent = pod
    for key in way:
        parent = parent[key]
    parent[last] = data.draw(junk)
    request = decode(orjson.dumps(review(right, user=user)))
    assert isinstance(request, Request)
    request.object = orjson.loads(orjson.dumps(pod))

    for decide in (mutate, validate):
        try:
            reply = answer_to(decide, request, scene(status, in_the_way[0]))
        except FieldError as error:
            assert error.path.startswith(("metadata", "spec"))  # noqa: PT017 - either outcome is right
        else:
            assert reply.refusal is None or reply.refusal.code in {403, 409, 422}
