"""The pair, over real TLS, on what a real API server sent while real VMs ran: see tests/reviews/README.md."""

import fnmatch
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import uuid4

import aiohttp
import orjson
import pytest

from certs.selfsigned import SelfSigned
from gpu import names
from webhooks.app import TRANSPORT, make_app
from webhooks.manifests import read_manifests
from webhooks.server import Listen, Server
from webhooks.testing import TENANT, InMemoryCatalog, Reply, assert_patched

REVIEWS: Final = Path(__file__).parent.parent / "reviews"
CATALOG: Final = Path(__file__).parent.parent.parent / "examples" / "catalog"

H200: Final = "nvidia.com/GH100_H200_SXM_141GB"
L40S: Final = "nvidia.com/L40S-24Q"
RAW: Final = "by its raw name"
LABEL: Final = f"metadata.labels[{names.DEVICE_REFERENCE}]"
ANNOTATION: Final = f"metadata.annotations[{names.DEVICE_TEMPLATE}]"
EDITED: Final = "can't be added, changed or dropped on a VMI"
LABEL_EDIT: Final = "train.validate.update.virtualmachineinstances.admin.1"
AFFINITY: Final = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
DESK_GPU: Final = {"name": "desk-gpu", "namespace": "tenant-a"}

RECORDED: Final = frozenset(file.stem for file in REVIEWS.glob("*.json"))
_asked: set[str] = set()


def recorded(stem: str) -> dict[str, Any]:
    review: dict[str, Any] = orjson.loads((REVIEWS / f"{stem}.json").read_bytes())
    return review


Order: TypeAlias = tuple[str, int, bool]
"""A device's class, its count, and whether it was built from a template."""


@dataclass(frozen=True)
class Asking:
    """A recorded review as it was asked, or, where the platform's own group asked, as a tenant would ask it."""

    stem: str
    by_tenant: bool = False

    def __str__(self) -> str:
        return f"{self.stem}{' by a tenant' if self.by_tenant else ''}"

    @property
    def scenario(self) -> str:
        return self.stem.split(".")[0]

    @property
    def phase(self) -> str:
        return self.stem.split(".")[1]

    @property
    def review(self) -> dict[str, Any]:
        review = recorded(self.stem)
        user = review["request"]["userInfo"]
        if self.by_tenant and user["username"].startswith("system:"):
            user["groups"].remove("system:masters")
        elif self.by_tenant:
            user |= {"username": TENANT.username, "groups": list(TENANT.groups)}
        return review

    @property
    def obj(self) -> dict[str, Any]:
        obj: dict[str, Any] = recorded(self.stem)["request"]["object"]
        return obj


VGPU: Final = Asking("vgpu.validate.create.virtualmachineinstances.admin.1")
VGPU_POD: Final = Asking("vgpu.validate.create.pods.kubevirt-controller.1")


def _askings(*patterns: str, but: str = "") -> Iterator[Asking]:
    for pattern in patterns:
        stems = [stem for stem in fnmatch.filter(RECORDED, pattern) if not fnmatch.fnmatchcase(stem, but)]
        assert stems, f"nothing was recorded of {pattern}"
        for stem in sorted(stems):
            _asked.add(stem)
            yield Asking(stem)
            if "system:masters" in recorded(stem)["request"]["userInfo"]["groups"]:
                yield Asking(stem, by_tenant=True)


def each(*patterns: str, but: str = "") -> pytest.MarkDecorator:
    """Every recorded review whose file's name matches one of the patterns."""
    return pytest.mark.parametrize("asking", list(_askings(*patterns, but=but)), ids=str)


def told(rows: Mapping[str, tuple[Sequence[str], Any]]) -> pytest.MarkDecorator:
    """Like ``each``: by what is right in words, the patterns and what is right."""
    return pytest.mark.parametrize(
        ("asking", "right"),
        [
            pytest.param(asking, right, id=f"{asking}: {words}")
            for words, (patterns, right) in rows.items()
            for asking in _askings(*patterns)
        ],
    )


def vmis(phase: str, *scenarios: str) -> list[str]:
    return [f"{scenario}.{phase}.create.virtualmachineinstances.*" for scenario in scenarios]


def launchers(phase: str, *scenarios: str) -> list[str]:
    return [f"{scenario}.{phase}.create.pods.kubevirt-controller.*" for scenario in scenarios]


class Served:
    """The pair as the API server finds it."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def post(self, path: str, review: Mapping[str, Any]) -> Reply:
        body, headers = orjson.dumps(review), {"Content-Type": "application/json"}
        async with self._session.post(f"/{path}?timeout=5s", data=body, headers=headers) as response:
            assert response.status == 200, await response.text()
            return Reply.of(await response.read(), uid=review["request"]["uid"])

    async def ask(self, asking: Asking) -> Reply:
        return await self.post(asking.phase, asking.review)


@pytest.fixture
def catalog() -> InMemoryCatalog:
    """The examples' classes and settings, and desk-gpu, which nobody uses yet."""
    catalog = InMemoryCatalog()
    for file in ("gpuclasses.yaml", "settings.yaml"):
        for manifest in read_manifests(CATALOG / file):
            catalog.add(manifest.obj)
    catalog.add({"kind": names.GPU_DEVICE, "metadata": DESK_GPU, "spec": {"className": "l40s-24q", "count": 1}})
    return catalog


@pytest.fixture
async def pair(catalog: InMemoryCatalog) -> AsyncIterator[Served]:
    certificates = SelfSigned(names=["127.0.0.1"])
    listen = Listen(port=0, plain_port=0, quiet=0.0)
    server = Server(make_app(catalog=catalog)[TRANSPORT], tls=certificates.serving.context, listen=listen)
    trust = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=certificates.ca_pem.decode()))
    await server.start()
    async with aiohttp.ClientSession(f"https://127.0.0.1:{server.port}", connector=trust) as session:
        yield Served(session)
    await server.stop()


def built(catalog: InMemoryCatalog) -> dict[str, Order]:
    """The devices beside desk-gpu, by name."""
    devices = [device for device in catalog.devices("tenant-a") if device.name != "desk-gpu"]
    return {device.name: (device.class_name, device.count, device.from_template) for device in devices}


def expected(obj: Mapping[str, Any], *, device: str, gpus: list[dict[str, Any]]) -> dict[str, Any]:
    """``obj`` with the label and these ``gpus``, and nothing else changed."""
    after = deepcopy(dict(obj))
    after["metadata"].setdefault("labels", {})[names.DEVICE_REFERENCE] = device
    after["spec"]["domain"]["devices"]["gpus"] = gpus
    return after


def pinned(pod: Mapping[str, Any], node: str) -> dict[str, Any]:
    """``pod`` held to ``node`` in the one required term that virt-controller gives it."""
    after = deepcopy(dict(pod))
    (term,) = after["spec"]["affinity"]["nodeAffinity"][AFFINITY.rpartition(".")[2]]["nodeSelectorTerms"]
    term["matchFields"] = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    return after


def validating(asking: Asking, obj: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The validating review that belongs to a mutating one; with ``obj`` if given, as the API server stored it then."""
    review = replace(asking, stem=asking.stem.replace(".mutate.", ".validate.")).review
    stored = review["request"]["object"]
    if obj is not None:
        given = {key: stored["metadata"][key] for key in ("name", "uid", "creationTimestamp", "generation")}
        review["request"]["object"] = {**obj, "metadata": {**obj["metadata"], **given}}
    return review


def assert_untouched(reply: Reply) -> None:
    assert (reply.allowed, reply.message, reply.patch) == (True, "", ())


def assert_refused(reply: Reply, *fields: str, code: int = 403, message: str) -> None:
    assert (reply.allowed, reply.code, reply.fields, reply.patch) == (False, code, fields, ()), reply.message
    assert message in reply.message


def gpus(*entries: str) -> list[dict[str, Any]]:
    return [{"name": name, "deviceName": H200} for name in entries]


BUILT: Final = {
    "one of h200, label, the gpus entry keeps its name": (vmis("mutate", "train"), (("h200", 1, True), gpus("gpu0"))),
    "one of h200, label, a gpus entry": (vmis("mutate", "farm", "it-template"), (("h200", 1, True), gpus("gpu-0"))),
    "one of 8, label, 8 gpus entries renamed": (
        vmis("mutate", "big"),
        (("h200", 8, True), gpus(*(f"gpu{n}" for n in range(8)))),
    ),
}


@told(BUILT)
async def test_an_annotation_has_its_device_built_and_the_vmi_refer_to_it(
    pair: Served, catalog: InMemoryCatalog, asking: Asking, right: tuple[Order, list[dict[str, Any]]]
) -> None:
    reply = await pair.ask(asking)

    ((device, order),) = built(catalog).items()
    assert (order, device.startswith(f"{asking.scenario}-")) == (right[0], True)
    assert_patched(reply, asking.obj, expected(asking.obj, device=device, gpus=right[1]))


@told(BUILT)
async def test_on_reinvocation_nothing_is_left_to_do(
    pair: Served, catalog: InMemoryCatalog, asking: Asking, right: tuple[Order, list[dict[str, Any]]]
) -> None:
    mutated = await pair.ask(asking)
    again = asking.review
    again["request"] |= {"uid": str(uuid4()), "object": mutated.applied_to(asking.obj)}

    reply = await pair.post("mutate", again)

    assert_untouched(reply)
    assert list(built(catalog).values()) == [right[0]]


@told(BUILT)
async def test_what_the_mutating_path_made_of_a_vmi_is_let_in_by_the_validating_path(
    pair: Served, catalog: InMemoryCatalog, asking: Asking, right: tuple[Order, list[dict[str, Any]]]
) -> None:
    assert validating(asking, asking.obj) == validating(asking)
    mutated = await pair.ask(asking)

    reply = await pair.post("validate", validating(asking, mutated.applied_to(asking.obj)))

    assert_untouched(reply)
    assert list(built(catalog).values()) == [right[0]]


async def test_two_vmis_without_a_name_get_a_device_each(pair: Served, catalog: InMemoryCatalog) -> None:
    askings = [Asking(f"farm.mutate.create.virtualmachineinstances.kubevirt-controller.{n}") for n in (1, 2)]
    assert not [asking for asking in askings if "name" in asking.obj["metadata"]]

    made = [(await pair.ask(asking)).applied_to(asking.obj) for asking in askings]

    assert built(catalog) == {vmi["metadata"]["labels"][names.DEVICE_REFERENCE]: ("h200", 1, True) for vmi in made}
    assert len(built(catalog)) == 2


async def test_a_renamed_vgpu_entry_keeps_its_options_and_its_tag(pair: Served, catalog: InMemoryCatalog) -> None:
    catalog.hold("tenant-a", "desk-gpu", node="gpu-node-2", resourceName="nvidia.com/L40S-24Q-NEW")
    asking = Asking("vgpu.mutate.create.virtualmachineinstances.admin.1")

    reply = await pair.ask(asking)

    options = {"display": {"enabled": True, "ramFB": {"enabled": False}}}
    entry = {"name": "desk", "deviceName": "nvidia.com/L40S-24Q-NEW", "tag": "vgpu", "virtualGPUOptions": options}
    assert_patched(reply, asking.obj, expected(asking.obj, device="desk-gpu", gpus=[entry]))


@each(
    *vmis("mutate", "hostdev", "limits", "dra", "vgpu"),
    *launchers("mutate", "train", "farm", "it-template", "hostdev", "limits", "dra"),
    *("raw-gpu.mutate.create.pods.admin.*", "plain.mutate.create.pods.admin.*"),
)
async def test_what_has_no_mark_of_ours_and_what_asks_for_its_device_already_is_not_mutated(
    pair: Served, catalog: InMemoryCatalog, asking: Asking
) -> None:
    reply = await pair.ask(asking)

    assert_untouched(reply)
    assert (reply.warnings, built(catalog)) == ((), {})


@told(
    {
        "annotation without label": (
            vmis("validate", "train", "farm", "it-template", "big"),
            ([ANNOTATION], "the mutating webhook of gpu-webhooks was not called"),
        ),
        "hostDevices[0], not hostDevices[1]": (
            vmis("validate", "hostdev"),
            (["spec.domain.devices.hostDevices[0]"], f"'{L40S}' {RAW}"),
        ),
        "limits and requests": (
            vmis("validate", "limits"),
            ([f"spec.domain.resources.{key}[{H200}]" for key in ("requests", "limits")], f"'{H200}' {RAW}"),
        ),
        "a gpus entry": (vmis("validate", "dra"), (["spec.domain.devices.gpus[0]"], "for a GPU by a resource claim")),
        "a GPU": (["raw-gpu.validate.create.pods.admin.*"], ([f"spec.containers[0].resources.limits[{H200}]"], RAW)),
        "GPUs and no label": (launchers("validate", "train", "hostdev", "limits"), ([LABEL], "by raw name")),
        "an edit that adds the label": ([LABEL_EDIT], ([LABEL], EDITED)),
    }
)
async def test_refused_as_recorded(pair: Served, asking: Asking, right: tuple[list[str], str]) -> None:
    reply = await pair.ask(asking)

    assert_refused(reply, *right[0], message=right[1])


@each(
    *vmis("validate", "vgpu"),
    *launchers("validate", "farm", "it-template", "dra"),
    "plain.validate.create.pods.admin.*",
)
async def test_vgpu_is_let_in_with_its_device_there_and_so_are_pods_without_gpus(pair: Served, asking: Asking) -> None:
    reply = await pair.ask(asking)

    assert_untouched(reply)


@each(*vmis("validate", "vgpu"))
async def test_vgpu_is_refused_without_its_device(pair: Served, catalog: InMemoryCatalog, asking: Asking) -> None:
    catalog.remove(names.GPU_DEVICE, "tenant-a", "desk-gpu")

    reply = await pair.ask(asking)

    assert_refused(reply, LABEL, code=422, message="there is no GPUDevice 'desk-gpu' in namespace 'tenant-a'")


async def test_dras_pod_is_refused_where_its_claim_template_asks_for_a_gpu_class(
    pair: Served, catalog: InMemoryCatalog
) -> None:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    named = {"kind": "ResourceClaimTemplate", "metadata": {"name": "gpu-claim", "namespace": "tenant-a"}}
    catalog.add({**named, "spec": {"spec": {"devices": {"requests": [request]}}}})

    reply = await pair.ask(Asking("dra.validate.create.pods.kubevirt-controller.1"))

    assert_refused(reply, "spec.resourceClaims[0]", message="'gpu-claim' asks for the DeviceClass 'gpu.nvidia.com'")


@each(*launchers("*", "vgpu"))
async def test_vgpus_pod_is_refused_on_both_paths_while_its_device_is_not_held(pair: Served, asking: Asking) -> None:
    reply = await pair.ask(asking)

    assert_refused(reply, message="GPUDevice 'desk-gpu' is not held yet")


@pytest.mark.parametrize(
    ("vmi", "code", "message"),
    [
        (None, 403, "is held, but not bound to this VMI yet"),
        ({"metadata": {"name": "desk", "uid": str(uuid4())}}, 409, "is bound to VirtualMachineInstance 'desk'"),
    ],
    ids=["bound to none", "bound to another VMI"],
)
async def test_vgpus_pod_is_refused_where_its_device_is(
    pair: Served, catalog: InMemoryCatalog, vmi: dict[str, Any] | None, code: int, message: str
) -> None:
    catalog.hold("tenant-a", "desk-gpu", node="gpu-node-2", vmi=vmi)

    reply = await pair.ask(VGPU_POD)

    assert_refused(reply, code=code, message=message)


async def test_vgpus_pod_is_refused_as_recorded_even_with_its_device_since_no_term_names_a_node(
    pair: Served, catalog: InMemoryCatalog
) -> None:
    catalog.hold("tenant-a", "desk-gpu", node="gpu-node-2", vmi=VGPU.obj)

    reply = await pair.ask(VGPU_POD)

    assert_refused(reply, AFFINITY, message="does not hold the pod to node 'gpu-node-2' in every term")


async def test_vgpus_pod_is_let_in_with_its_device_once_the_mutating_path_has_pinned_it(
    pair: Served, catalog: InMemoryCatalog
) -> None:
    catalog.hold("tenant-a", "desk-gpu", node="gpu-node-2", vmi=VGPU.obj)
    asking = Asking("vgpu.mutate.create.pods.kubevirt-controller.1")

    mutated = await pair.ask(asking)

    patched = assert_patched(mutated, asking.obj, pinned(asking.obj, "gpu-node-2"))
    assert_untouched(await pair.post("validate", validating(asking, patched)))


async def test_trains_pod_is_let_in_with_the_label_of_its_mutated_vmi_once_its_device_is_held(
    pair: Served, catalog: InMemoryCatalog
) -> None:
    creation = Asking("train.mutate.create.virtualmachineinstances.kubevirt-controller.1")
    vmi = validating(creation, (await pair.ask(creation)).applied_to(creation.obj))["request"]["object"]
    (device,) = built(catalog)
    catalog.hold("tenant-a", device, node="gpu-node-1", vmi=vmi)
    asking = Asking("train.mutate.create.pods.kubevirt-controller.1")
    review = asking.review
    pod = review["request"]["object"]
    pod["metadata"]["labels"][names.DEVICE_REFERENCE] = device

    mutated = await pair.post("mutate", review)

    patched = assert_patched(mutated, pod, pinned(pod, "gpu-node-1"))
    assert_untouched(await pair.post("validate", validating(asking, patched)))


@each(
    *("*.mutate.update.*", "*.validate.update.virtualmachineinstance*", "*.validate.update.pods.*"),
    *("*.validate.update.virtualmachines.status.*", "*.delete.*", "*.connect.*"),
    *("*.create.pods.binding.*", "*.create.pods.eviction.*"),
    but=LABEL_EDIT,
)
async def test_updates_status_writes_deletes_and_what_is_done_to_a_pod_that_exists_are_let_in(
    pair: Served, catalog: InMemoryCatalog, asking: Asking
) -> None:
    reply = await pair.ask(asking)

    assert_untouched(reply)
    assert (reply.warnings, built(catalog)) == ((), {})


@pytest.mark.parametrize("value", ["another", None], ids=["changed", "dropped"])
@pytest.mark.parametrize(
    ("kind", "key", "field"),
    [("labels", names.DEVICE_REFERENCE, LABEL), ("annotations", names.DEVICE_TEMPLATE, ANNOTATION)],
    ids=["the label", "the annotation"],
)
async def test_a_users_edit_is_refused_where_it_leaves(
    pair: Served, value: str | None, kind: str, key: str, field: str
) -> None:
    review = recorded("train.validate.update.virtualmachineinstances.admin.2")
    marks = review["request"]["object"]["metadata"][kind]
    del marks[key]
    marks |= {key: value} if value else {}

    reply = await pair.post("validate", review)

    assert_refused(reply, field, message=EDITED)


@each(
    *("*.create.virtualmachines.*", "*.create.virtualmachineinstancereplicasets.*"),
    "*.validate.update.virtualmachines.*",
)
async def test_what_vmis_are_made_from_is_let_in_and_not_told_that_they_would_be_refused(
    pair: Served, catalog: InMemoryCatalog, asking: Asking
) -> None:
    reply = await pair.ask(asking)

    assert_untouched(reply)
    assert ("refused" in " ".join(reply.warnings), built(catalog)) == (False, {})


@each("train.validate.create.virtualmachines.*")
async def test_trains_author_is_told_that_a_long_stop_gives_the_gpu_back(pair: Served, asking: Asking) -> None:
    reply = await pair.ask(asking)

    (warning,) = reply.warnings
    assert "a stop of over 15 s gives the GPU back" in warning


def test_the_right_answer_to_every_recorded_review_is_asserted_here() -> None:
    assert not RECORDED - _asked
