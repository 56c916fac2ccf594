"""The rewrite of a VMI's GPU requests to what its device grants, on every road."""

from copy import deepcopy
from typing import Any

import pytest

from webhooks.testing import InMemoryCatalog, Pair, Reply, assert_patched, review

REFERENCE = "gpu.cozystack.io/device-reference"
TEMPLATE = "gpu.cozystack.io/device-template"
H200 = "nvidia.com/GH100_H200_SXM_141GB"
L40S = "nvidia.com/L40S-24Q"
RETIRED = "nvidia.com/GA100_A100_PCIE_40GB"
NIC = "intel.com/nic"


def vmi(spec: dict[str, Any], *, count: int = 1, label: str = "ordered") -> dict[str, Any]:
    """A VMI that uses ``count`` GPUs of the class h200; the fixture ``ordered`` has the device."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "vm", "namespace": "tenant-a", "labels": {REFERENCE: f"{label}-{count}"}},
        "spec": spec,
    }


def devices(**lists: list[dict[str, Any]]) -> dict[str, Any]:
    return {"domain": {"devices": lists}}


@pytest.fixture
def gpu_catalog(gpu_catalog: InMemoryCatalog) -> InMemoryCatalog:
    for count in (1, 2, 3, 4, 8, 16):
        gpu_catalog.add(
            {
                "kind": "GPUDevice",
                "metadata": {"name": f"ordered-{count}", "namespace": "tenant-a"},
                "spec": {"className": "h200", "count": count},
            }
        )
    return gpu_catalog


async def rewritten(pair: Pair, before: dict[str, Any], after: dict[str, Any]) -> Reply:
    """Assert what becomes of it, that the validating path lets that in, and that it is left alone from then on."""
    reply = await pair.mutate(review(before))
    patched = assert_patched(reply, before, after)
    again = await pair.mutate(review(patched))
    assert (again.patch, again.warnings) == ((), ())
    validated = await pair.validate(review({**patched, "metadata": {**patched["metadata"], "uid": "v-1"}}))
    assert validated.allowed, validated.message
    return reply


async def test_each_entry_keeps_its_place_its_name_its_tag_and_its_options(gpu_pair: Pair) -> None:
    options = {"display": {"enabled": True, "ramFB": {"enabled": False}}}
    first = {"name": "left", "deviceName": L40S, "tag": "a", "virtualGPUOptions": options, "futureField": [1]}
    second = {"name": "right", "deviceName": "whatever.example/gpu"}
    before = vmi(devices(gpus=[first, second]), count=2)

    after = vmi(devices(gpus=[{**first, "deviceName": H200}, {**second, "deviceName": H200}]), count=2)
    await rewritten(gpu_pair, before, after)


async def test_an_entry_that_asks_for_the_granted_one_is_left_alone(gpu_pair: Pair) -> None:
    obj = vmi(devices(gpus=[{"name": "g", "deviceName": H200}]))

    reply = await rewritten(gpu_pair, obj, obj)

    assert (reply.patch, reply.warnings) == ((), ())


async def test_an_entry_without_a_device_name_is_given_one(gpu_pair: Pair) -> None:
    before = vmi(devices(gpus=[{"name": "a"}, {"name": "b", "deviceName": None}]), count=2)

    named = [{"name": "a", "deviceName": H200}, {"name": "b", "deviceName": H200}]
    await rewritten(gpu_pair, before, vmi(devices(gpus=named), count=2))


async def test_host_devices_that_name_a_gpu_are_rewritten_in_place(gpu_pair: Pair) -> None:
    nic = {"name": "nic", "deviceName": NIC, "tag": "n"}
    before = vmi(
        devices(hostDevices=[{"name": "a", "deviceName": RETIRED, "tag": "t"}, nic, {"name": "b", "deviceName": L40S}]),
        count=2,
    )

    after = vmi(
        devices(hostDevices=[{"name": "a", "deviceName": H200, "tag": "t"}, nic, {"name": "b", "deviceName": H200}]),
        count=2,
    )
    await rewritten(gpu_pair, before, after)


async def test_other_host_devices_are_untouched(gpu_pair: Pair) -> None:
    others = [
        {"name": "nic", "deviceName": NIC},
        {"name": "claimed", "claimName": "nic-claim", "requestName": "r"},
        {"name": "gpu", "deviceName": "nvidia.com/not-published"},
    ]
    before = vmi(devices(hostDevices=others))

    after = vmi(devices(hostDevices=others, gpus=[{"name": "gpu-0", "deviceName": H200}]))
    await rewritten(gpu_pair, before, after)


@pytest.mark.parametrize(
    "claim",
    [
        {"claimName": "c", "requestName": "r"},
        {"claimName": "c"},
        {"requestName": "r"},
        {"claimName": "c", "deviceName": H200},
        {"claimName": None, "requestName": ""},
    ],
    ids=["both", "claim", "request", "beside a name", "null and empty"],
)
async def test_claims_go_from_gpu_entries(gpu_pair: Pair, claim: dict[str, Any]) -> None:
    before = vmi(devices(gpus=[{"name": "g", **claim}]))

    await rewritten(gpu_pair, before, vmi(devices(gpus=[{"name": "g", "deviceName": H200}])))


async def test_claims_go_from_host_devices_that_name_a_gpu(gpu_pair: Pair) -> None:
    spec = devices(hostDevices=[{"name": "g", "deviceName": L40S, "claimName": "c", "requestName": "r"}])
    before = vmi({**spec, "resourceClaims": [{"name": "c"}]})

    after = devices(hostDevices=[{"name": "g", "deviceName": H200}])
    await rewritten(gpu_pair, before, vmi({**after, "resourceClaims": []}))


GPU_CLAIM = {"name": "gpu-claim", "resourceClaimTemplateName": "t"}
NET_CLAIM = {"name": "net-claim", "resourceClaimName": "n"}


async def test_a_claim_that_nothing_refers_to_any_more_is_dropped(gpu_pair: Pair) -> None:
    claimed = devices(gpus=[{"name": "g", "claimName": "gpu-claim", "requestName": "r"}])
    idle = {"name": "never-used", "resourceClaimName": "i"}
    before = vmi({**claimed, "resourceClaims": [idle, GPU_CLAIM, GPU_CLAIM, NET_CLAIM]})

    named = devices(gpus=[{"name": "g", "deviceName": H200}])
    reply = await rewritten(gpu_pair, before, vmi({**named, "resourceClaims": [idle, NET_CLAIM]}))

    assert "spec.resourceClaims: dropped gpu-claim" in reply.warnings


async def test_a_claim_of_two_gpu_entries_is_dropped_once_both_are_rewritten(gpu_pair: Pair) -> None:
    claimed = [{"name": name, "claimName": "gpu-claim", "requestName": name} for name in ("a", "b")]
    before = vmi({**devices(gpus=claimed), "resourceClaims": [GPU_CLAIM]}, count=2)

    named = [{"name": name, "deviceName": H200} for name in ("a", "b")]
    await rewritten(gpu_pair, before, vmi({**devices(gpus=named), "resourceClaims": []}, count=2))


async def test_a_claim_that_another_host_device_refers_to_stays(gpu_pair: Pair) -> None:
    other = {"name": "o", "claimName": "gpu-claim", "requestName": "other"}
    claimed = devices(gpus=[{"name": "g", "claimName": "gpu-claim", "requestName": "r"}], hostDevices=[other])
    before = vmi({**claimed, "resourceClaims": [GPU_CLAIM]})

    named = devices(gpus=[{"name": "g", "deviceName": H200}], hostDevices=[other])
    await rewritten(gpu_pair, before, vmi({**named, "resourceClaims": [GPU_CLAIM]}))


async def test_a_claim_that_a_network_refers_to_stays(gpu_pair: Pair) -> None:
    networks = [{"name": "pod", "pod": {}}, {"name": "n", "resourceClaim": {"claimName": "gpu-claim"}}]
    claimed = devices(gpus=[{"name": "g", "claimName": "gpu-claim", "requestName": "r"}])
    before = vmi({**claimed, "resourceClaims": [GPU_CLAIM], "networks": networks})

    named = devices(gpus=[{"name": "g", "deviceName": H200}])
    await rewritten(gpu_pair, before, vmi({**named, "resourceClaims": [GPU_CLAIM], "networks": networks}))


async def test_missing_entries_are_added_behind_those_there_are(gpu_pair: Pair) -> None:
    before = vmi(devices(gpus=[{"name": "mine", "deviceName": L40S}]), count=3)

    reply = await gpu_pair.mutate(review(before))

    added = [{"name": name, "deviceName": H200} for name in ("mine", "gpu-0", "gpu-1")]
    assert_patched(reply, before, vmi(devices(gpus=added), count=3))
    assert f"spec.domain.devices.gpus: added 2 of {H200}" in reply.warnings


async def test_entries_in_host_devices_count_for_what_is_missing(gpu_pair: Pair) -> None:
    before = vmi(devices(hostDevices=[{"name": "h", "deviceName": H200}]), count=2)

    lists = {"hostDevices": [{"name": "h", "deviceName": H200}], "gpus": [{"name": "gpu-0", "deviceName": H200}]}
    await rewritten(gpu_pair, before, vmi(devices(**lists), count=2))


async def test_names_of_added_entries_are_unique_over_both_lists(gpu_pair: Pair) -> None:
    lists = {
        "gpus": [{"name": "gpu-1", "deviceName": H200}],
        "hostDevices": [{"name": "gpu-0", "deviceName": NIC}, {"name": "gpu-3", "deviceName": H200}],
    }
    before = vmi(devices(**lists), count=4)

    patched = (await gpu_pair.mutate(review(before))).applied_to(before)

    assert [entry["name"] for entry in patched["spec"]["domain"]["devices"]["gpus"]] == ["gpu-1", "gpu-2", "gpu-4"]


@pytest.mark.parametrize("gpus", [[], None], ids=["empty", "null"])
async def test_sixteen_are_added_to_an_empty_list(gpu_pair: Pair, gpus: list[dict[str, Any]] | None) -> None:
    before = vmi({"domain": {"devices": {"gpus": gpus, "disks": [{"name": "root"}]}}}, count=16)

    added = [{"name": f"gpu-{index}", "deviceName": H200} for index in range(16)]
    after = vmi({"domain": {"devices": {"gpus": added, "disks": [{"name": "root"}]}}}, count=16)
    await rewritten(gpu_pair, before, after)


@pytest.mark.parametrize(
    ("lists", "count", "first_too_many"),
    [
        ({"gpus": [{"name": "a"}, {"name": "b"}]}, 1, "gpus[1]"),
        ({"gpus": [{"name": "a"}], "hostDevices": [{"name": "b", "deviceName": H200}]}, 1, "hostDevices[0]"),
        (
            {
                "gpus": [{"name": "a"}],
                "hostDevices": [
                    {"name": "n", "deviceName": NIC},
                    {"name": "b", "deviceName": RETIRED},
                    {"name": "c", "deviceName": L40S},
                    {"name": "d", "deviceName": H200},
                ],
            },
            2,
            "hostDevices[2]",
        ),
    ],
    ids=["gpus", "both lists", "among others"],
)
async def test_more_entries_than_granted_are_refused_by_the_first_too_many(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog, lists: dict[str, Any], count: int, first_too_many: str
) -> None:
    before = gpu_catalog.devices("tenant-a")
    ordering = vmi(devices(**lists), count=count)
    ordering["metadata"] = {
        "name": "vm",
        "namespace": "tenant-a",
        "annotations": {TEMPLATE: f'{{"className":"h200","count":{count}}}'},
    }

    by_reference = await gpu_pair.mutate(review(vmi(devices(**lists), count=count)))
    by_template = await gpu_pair.mutate(review(ordering))

    for reply in (by_reference, by_template):
        assert (reply.code, reply.fields) == (403, (f"spec.domain.devices.{first_too_many}",))
        assert f"is GPU entry {count + 1} of" in reply.message
        assert f"the device grants {count}" in reply.message
    assert gpu_catalog.devices("tenant-a") == before


async def test_gpu_names_go_from_requests_and_limits_whatever_the_quantity(gpu_pair: Pair) -> None:
    resources = {
        "requests": {"memory": "1Gi", H200: "1", L40S: "0", "a~b/c": "1"},
        "limits": {RETIRED: 0, NIC: "1", "cpu": 2},
        "overcommitGuestOverhead": True,
    }
    before = vmi({"domain": {"resources": resources}})

    kept = {
        "requests": {"memory": "1Gi", "a~b/c": "1"},
        "limits": {NIC: "1", "cpu": 2},
        "overcommitGuestOverhead": True,
    }
    added = {"gpus": [{"name": "gpu-0", "deviceName": H200}]}
    reply = await rewritten(gpu_pair, before, vmi({"domain": {"resources": kept, "devices": added}}))

    assert [warning for warning in reply.warnings if "dropped" in warning] == [
        f"spec.domain.resources.requests: dropped {H200}",
        f"spec.domain.resources.requests: dropped {L40S}",
        f"spec.domain.resources.limits: dropped {RETIRED}",
    ]


async def test_a_name_with_slash_and_tilde_can_be_dropped(gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
    odd = "nvidia.com/a~1b/c~"
    gpu_catalog.add(
        {
            "kind": "ConfigMap",
            "metadata": {"name": "gpu-settings", "namespace": "gpu-system"},
            "data": {"resourceNames": odd},
        }
    )
    before = vmi({"domain": {"resources": {"limits": {odd: "1", "nvidia.com/a": "1"}}}})

    added = {"gpus": [{"name": "gpu-0", "deviceName": H200}]}
    after = vmi({"domain": {"resources": {"limits": {"nvidia.com/a": "1"}}, "devices": added}})
    await rewritten(gpu_pair, before, after)


async def test_what_a_device_holds_counts_as_a_gpu_though_its_name_is_no_longer_published(
    gpu_pair: Pair, gpu_catalog: InMemoryCatalog
) -> None:
    gpu_catalog.hold("tenant-a", "ordered-2", node="gpu-node-1", resourceName="nvidia.com/UNPUBLISHED")
    before = vmi(devices(hostDevices=[{"name": "h", "deviceName": "nvidia.com/UNPUBLISHED"}]), count=2)

    lists = {
        "hostDevices": [{"name": "h", "deviceName": "nvidia.com/UNPUBLISHED"}],
        "gpus": [{"name": "gpu-0", "deviceName": "nvidia.com/UNPUBLISHED"}],
    }
    await rewritten(gpu_pair, before, vmi(devices(**lists), count=2))


async def test_what_was_changed_is_told_in_short_lines(gpu_pair: Pair) -> None:
    claims = [{"name": f"claim\n{index}{'x' * 300}"} for index in range(2)]
    gpus = [{"name": claim["name"], "claimName": claim["name"], "requestName": "r"} for claim in claims]
    before = vmi({**devices(gpus=gpus), "resourceClaims": claims}, count=3)

    reply = await gpu_pair.mutate(review(before))

    assert reply.warnings[:3] == (
        f"spec.domain.devices.gpus[0] now asks for {H200}",
        "spec.domain.devices.gpus[0]: dropped claimName and requestName",
        f"spec.domain.devices.gpus[1] now asks for {H200}",
    )
    assert any(warning.startswith("spec.resourceClaims: dropped claim?1xxx") for warning in reply.warnings)
    assert all(len(warning) <= 120 and warning.isprintable() for warning in reply.warnings)


async def test_everything_else_stays_as_it_is(gpu_pair: Pair) -> None:
    spec: dict[str, Any] = {
        "domain": {
            "devices": {"disks": [{"name": "root", "future": {"x": None}}], "unknown": []},
            "cpu": {"cores": 4},
            "memory": None,
            "resources": {"requests": {}, "limits": None},
        },
        "networks": None,
        "resourceClaims": None,
        "volumes": [],
        "unknown/field~": {"gpus": [{"deviceName": L40S}]},
    }
    before = vmi(spec)
    before["metadata"] |= {"annotations": {"a/b~c": "x"}, "finalizers": [], "unknown": 1}
    before["status"] = {"phase": "Pending"}

    after = deepcopy(before)
    after["spec"]["domain"]["devices"]["gpus"] = [{"name": "gpu-0", "deviceName": H200}]
    await rewritten(gpu_pair, before, after)
