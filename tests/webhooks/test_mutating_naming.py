"""A retry and a restarted VM come to their device again; what is another's is left alone."""

import re
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import pytest

from gpu.errors import Changed
from gpu.gpudevice import GPUDevice
from webhooks.app import make_app
from webhooks.testing import VIRT_CONTROLLER, InMemoryCatalog, Pair, persisted, review
from webhooks.virtcontroller import launcher_of, vmi_of

REFERENCE = "gpu.cozystack.io/device-reference"
TEMPLATE = "gpu.cozystack.io/device-template"
TEMPLATE_DEVICE = "gpu.cozystack.io/template-device"
OTHERS = {"desk-gpu", "lab-gpu", "my-gpu"}
DELETED = "2026-01-01T00:00:00Z"


def vmi(*, name: str = "train", kind: str = "VirtualMachine", owner: str = "vm-uid", count: int = 1) -> dict[str, Any]:
    template = {"metadata": {"annotations": {TEMPLATE: f'{{"className":"h200","count":{count}}}'}}, "spec": {}}
    maker = {"apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": {"name": name, "uid": owner}}
    return vmi_of({**maker, "spec": {"template": template}}, namespace="tenant-a")


def built(catalog: InMemoryCatalog) -> dict[str, GPUDevice]:
    return {device.name: device for device in catalog.devices("tenant-a") if device.name not in OTHERS}


async def start(pair: Pair, obj: dict[str, Any]) -> dict[str, Any]:
    """Take it through both paths; the VMI as it is stored then."""
    admitted = await pair.admit(obj, user=VIRT_CONTROLLER)
    assert admitted.allowed, admitted.refusal.message
    return admitted.obj


def reference(obj: dict[str, Any]) -> str:
    return str(obj["metadata"]["labels"][REFERENCE])


def own_device(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "gpu.cozystack.io/v1alpha1",
        "kind": "GPUDevice",
        "metadata": {"name": name, "namespace": "tenant-a", **metadata},
        "spec": {"className": "h200", "count": 1},
    }


def template_device(name: str, **metadata: Any) -> dict[str, Any]:
    return own_device(name, labels={TEMPLATE_DEVICE: "true"}, **metadata)


async def first_name(pair: Pair) -> str:
    """The name that the device of ``vmi()`` gets where nothing is in its way."""
    reply = await pair.mutate(review(vmi(), dry_run=True))
    return reference(reply.applied_to(review(vmi())["request"]["object"]))


async def test_the_name_is_the_vmis_with_8_hex_digits(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    await start(gpu_pair, vmi())

    (name,) = built(gpu_catalog)
    assert re.fullmatch("train-[0-9a-f]{8}", name)


async def test_a_retry_comes_to_the_same_device(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    first = await gpu_pair.mutate(review(vmi(), user=VIRT_CONTROLLER))
    retry = await gpu_pair.mutate(review(vmi(), user=VIRT_CONTROLLER))

    assert retry.patch == first.patch
    assert retry.warnings[0].startswith("took over GPUDevice train-")
    assert len(built(gpu_catalog)) == 1


async def test_a_retry_that_memory_does_not_know_the_device_of_comes_to_it_too(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    with gpu_catalog.stale():
        first = await gpu_pair.mutate(review(vmi()))
        retry = await gpu_pair.mutate(review(vmi()))

    assert retry.patch == first.patch
    assert len(built(gpu_catalog)) == 1


async def test_replicas_get_a_device_each(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    replica = vmi(name="farm", kind="VirtualMachineInstanceReplicaSet")

    references = {reference(await start(gpu_pair, replica)) for _ in range(3)}

    assert references == set(built(gpu_catalog))
    assert len(references) == 3


async def test_the_same_request_for_a_replica_comes_to_the_same_device(gpu_pair: Pair) -> None:
    body = review(vmi(name="farm", kind="VirtualMachineInstanceReplicaSet"))

    assert (await gpu_pair.mutate(body)).patch == (await gpu_pair.mutate(body)).patch


@pytest.mark.parametrize(
    "change", [{"owner": "other"}, {"name": "train2"}, {"count": 2}], ids=["owner", "name", "count"]
)
async def test_another_vm_gets_another_device(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog, change: dict[str, Any]
) -> None:
    first = await start(gpu_pair, vmi())
    second = await start(gpu_pair, vmi(**change))

    assert built(gpu_catalog).keys() == {reference(first), reference(second)}
    assert reference(first) != reference(second)


async def test_a_restarted_vm_takes_its_device_over_by_a_write(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    old = await start(gpu_pair, vmi())
    gpu_catalog.hold("tenant-a", reference(old), node="gpu-node-1", vmi=old)
    before = built(gpu_catalog)[reference(old)]

    new = await start(gpu_pair, vmi())

    after = built(gpu_catalog)[reference(new)]
    assert reference(new) == reference(old)
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert after.resource_version != before.resource_version
    assert after.touched is not None
    assert (after.binding, after.node_name, after.held) == (before.binding, before.node_name, True)
    assert len(built(gpu_catalog)) == 1


async def test_a_restarted_vm_takes_over_what_memory_thinks_its_old_vmi_still_uses(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    old = await start(gpu_pair, vmi())
    gpu_catalog.add(old)
    gpu_catalog.hold("tenant-a", reference(old), node="gpu-node-1", vmi=old)
    pod = launcher_of(old)
    gpu_catalog.add(pod)

    with gpu_catalog.stale():
        gpu_catalog.remove("VirtualMachineInstance", "tenant-a", "train")
        gpu_catalog.remove("Pod", "tenant-a", pod["metadata"]["name"])
        new = await start(gpu_pair, vmi())

    assert reference(new) == reference(old)
    assert len(built(gpu_catalog)) == 1


async def test_a_pod_of_the_old_vmi_that_still_runs_counts_while_memory_has_that_vmi(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    old = await start(gpu_pair, vmi())
    gpu_catalog.add(old)
    gpu_catalog.hold("tenant-a", reference(old), node="gpu-node-1", vmi=old)
    gpu_catalog.add(launcher_of(old))

    with gpu_catalog.stale():
        gpu_catalog.remove("VirtualMachineInstance", "tenant-a", "train")
        new = await start(gpu_pair, vmi())

    assert reference(new) != reference(old)


async def test_while_a_pod_of_the_old_vmi_still_runs_another_device_is_built(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    old = await start(gpu_pair, vmi())
    gpu_catalog.hold("tenant-a", reference(old), node="gpu-node-1", vmi=old)
    before = built(gpu_catalog)[reference(old)]
    gpu_catalog.add(launcher_of(old))

    new = await start(gpu_pair, vmi())

    assert reference(new) != reference(old)
    assert built(gpu_catalog).keys() == {reference(old), reference(new)}
    assert built(gpu_catalog)[reference(old)] == before


async def test_a_name_taken_by_a_tenants_own_device_is_passed_over(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    taken = await first_name(gpu_pair)
    gpu_catalog.add(own_device(taken))
    before = gpu_catalog.device("tenant-a", taken)

    new = await start(gpu_pair, vmi())

    assert reference(new) != taken
    assert built(gpu_catalog)[reference(new)].from_template
    assert gpu_catalog.device("tenant-a", taken) == before


async def test_a_device_that_another_vmi_refers_to_is_passed_over(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    taken = await first_name(gpu_pair)
    gpu_catalog.add(template_device(taken))
    other = {"name": "other", "namespace": "tenant-a", "uid": "v-other", "labels": {REFERENCE: taken}}
    gpu_catalog.add({**vmi(), "metadata": other})

    new = await start(gpu_pair, vmi())

    assert reference(new) != taken
    assert len(built(gpu_catalog)) == 2


async def test_a_device_that_another_vmi_uses_is_passed_over(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    taken = await first_name(gpu_pair)
    other = persisted({**vmi(), "metadata": {"name": "other", "namespace": "tenant-a"}})
    gpu_catalog.add(template_device(taken))
    gpu_catalog.add(other)
    gpu_catalog.hold("tenant-a", taken, node="gpu-node-1", vmi=other)

    assert reference(await start(gpu_pair, vmi())) != taken


@pytest.mark.parametrize(
    "taken_by",
    [
        lambda name: template_device(name, deletionTimestamp=DELETED),
        lambda name: {**template_device(name), "spec": {"className": "l40s-24q"}},
        lambda name: {**template_device(name), "spec": {"className": "h200", "count": 2}},
    ],
    ids=["being deleted", "another class", "another count"],
)
async def test_a_template_device_that_does_not_serve_is_passed_over(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog, taken_by: Callable[[str], dict[str, Any]]
) -> None:
    taken = await first_name(gpu_pair)
    gpu_catalog.add(taken_by(taken))

    new = await start(gpu_pair, vmi())

    assert reference(new) != taken
    assert len(built(gpu_catalog)) == 2


async def test_two_names_in_the_way_are_both_passed_over(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    for _ in range(2):
        gpu_catalog.add(own_device(await first_name(gpu_pair)))

    new = await start(gpu_pair, vmi())

    assert len(built(gpu_catalog)) == 3
    assert built(gpu_catalog)[reference(new)].from_template


async def test_a_name_that_is_taken_without_memory_knowing_is_passed_over(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    taken = await first_name(gpu_pair)
    with gpu_catalog.stale():
        gpu_catalog.add(own_device(taken))
        new = await start(gpu_pair, vmi())

    assert reference(new) != taken


async def test_a_device_that_changed_under_our_hands_is_read_again_and_taken_over(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    old = await start(gpu_pair, vmi())

    with gpu_catalog.stale():
        gpu_catalog.hold("tenant-a", reference(old), node="gpu-node-1", vmi=old)
        new = await start(gpu_pair, vmi())

    assert reference(new) == reference(old)
    assert built(gpu_catalog)[reference(new)].node_name == "gpu-node-1"


async def test_a_device_that_came_to_be_deleted_under_our_hands_is_passed_over(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    old = await start(gpu_pair, vmi())

    with gpu_catalog.stale():
        gpu_catalog.add(template_device(reference(old), deletionTimestamp=DELETED))
        new = await start(gpu_pair, vmi())

    assert reference(new) != reference(old)


async def test_a_device_that_went_under_our_hands_is_built_anew(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    old = await start(gpu_pair, vmi())
    before = built(gpu_catalog)[reference(old)]

    with gpu_catalog.stale():
        gpu_catalog.remove("GPUDevice", "tenant-a", reference(old))
        new = await start(gpu_pair, vmi())

    assert reference(new) == reference(old)
    assert built(gpu_catalog)[reference(new)].uid != before.uid


class Restless(InMemoryCatalog):
    """A catalog whose devices always change before they are written on."""

    async def take_over(self, device: GPUDevice, *, at: datetime) -> GPUDevice:
        raise Changed(f"GPUDevice {device.name!r} was changed at {at}")


async def test_a_device_that_never_rests_is_worth_a_retry(
    aiohttp_client: Callable[[Any], Awaitable[Any]], gpu_catalog: InMemoryCatalog
) -> None:
    restless = Restless()
    for name, gpu_class in gpu_catalog.offer.classes.items():
        source = {"devicePlugin": {"resourceName": gpu_class.resource_name}}
        spec = {"vendor": "v", "model": "m", "mode": "Passthrough", "memory": "1Gi", "maxCount": 8, "source": source}
        restless.add({"kind": "GPUClass", "metadata": {"name": name}, "spec": spec})
    pair = Pair(await aiohttp_client(make_app(catalog=restless)))
    await pair.mutate(review(vmi()))

    reply = await pair.mutate(review(vmi()))

    assert (reply.code, reply.reason) == (503, "ServiceUnavailable")
    assert "was changed by others in 16 tries to take it over" in reply.message
    assert len(restless.devices("tenant-a")) == 1


async def test_a_restored_vmi_gets_a_device_in_place_of_the_gone_one(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    restored = await start(gpu_pair, vmi())
    gpu_catalog.remove("GPUDevice", "tenant-a", reference(restored))
    moved = {**restored, "metadata": {**restored["metadata"], "name": "restored"}}
    del moved["metadata"]["uid"]

    new = await start(gpu_pair, moved)

    assert reference(new).startswith("restored-")
    assert built(gpu_catalog).keys() == {reference(new)}
    assert new["spec"] == restored["spec"]


async def test_a_dry_run_takes_nothing_over(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    old = await start(gpu_pair, vmi())
    before = built(gpu_catalog)

    reply = await gpu_pair.mutate(review(vmi(), dry_run=True))

    assert reply.warnings[0] == f"would have taken over GPUDevice {reference(old)}: 1 of class h200"
    assert built(gpu_catalog) == before
