"""KubeVirt's kinds as the tests have them: they take what a real virt-controller wrote, and prune the rest."""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from actors import MakeNamespace, Tenant
from controlplane.client import Client, ref
from controlplane.errors import APIError

REVIEWS = Path(__file__).parents[1] / "reviews"
VMI = "VirtualMachineInstance"


def recorded() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of KubeVirt's kinds that was recorded, by the file that it is in."""
    for path in sorted(REVIEWS.glob("*.virtualmachine*.json")):
        obj = json.loads(path.read_bytes())["request"].get("object")
        if obj and obj["apiVersion"].startswith("kubevirt.io/"):
            yield path.name, obj


async def stored(kube: Client, obj: dict[str, Any], namespace: str) -> dict[str, Any]:
    """What becomes of an object and its status when they are written to a namespace."""
    metadata = {key: obj["metadata"].get(key) or {} for key in ("labels", "annotations")}
    new = {**obj, "metadata": {**metadata, "generateName": "recorded-", "namespace": namespace}}
    found = await kube.create(new)
    if "status" in obj and obj["kind"] != VMI:
        found = await kube.update({**found, "status": obj["status"]}, subresource="status")
    return found


async def test_recorded_objects_are_stored_whole(kube: Client, make_namespace: MakeNamespace) -> None:
    namespace = await make_namespace()
    changed = {}
    kinds = set()

    for name, obj in recorded():
        found = await stored(kube, obj, namespace)
        kinds.add(obj["kind"])
        parts = [part for part in ("spec", "status") if found.get(part) != obj.get(part)]
        if parts:
            changed[name] = {part: (obj.get(part), found.get(part)) for part in parts}

    assert not changed
    assert kinds == {VMI, "VirtualMachine", "VirtualMachineInstanceReplicaSet"}


async def test_unknown_fields_are_pruned_and_known_ones_are_not(kube: Client, tenant: Tenant) -> None:
    gpu = {"name": "gpu-0", "deviceName": "nvidia.com/GPU", "claimName": "c", "requestName": "r", "tag": "t"}
    requests = {"memory": "1Gi", "nvidia.com/GPU": 1}
    kept: dict[str, Any] = {
        "domain": {"devices": {"gpus": [gpu], "hostDevices": [gpu]}, "resources": {"requests": requests}},
        "networks": [{"name": "n", "resourceClaim": {"claimName": "c", "requestName": "r"}}],
    }
    asked = deepcopy(kept)
    asked["unknown"] = asked["domain"]["unknown"] = asked["domain"]["devices"]["unknown"] = {"a": 1}
    asked["domain"]["devices"]["gpus"][0]["unknown"] = 1

    found = await kube.create({**ref("kubevirt.io/v1", VMI, "pruned", tenant.namespace), "spec": asked})

    assert found["spec"] == kept


async def test_the_status_of_a_vmi_is_written_by_an_update_of_the_vmi(kube: Client, tenant: Tenant) -> None:
    made = await kube.create(
        {**ref("kubevirt.io/v1", VMI, "status", tenant.namespace), "spec": {"domain": {"devices": {}}}}
    )

    with pytest.raises(APIError) as refused:
        await kube.update({**made, "status": {"phase": "Running"}}, subresource="status")
    found = await kube.update({**made, "status": {"phase": "Running"}})

    assert refused.value.code == 404
    assert found["status"] == {"phase": "Running"}


async def test_the_status_of_a_vm_is_a_subresource(kube: Client, tenant: Tenant) -> None:
    made = await kube.create(
        {
            **ref("kubevirt.io/v1", "VirtualMachine", "status", tenant.namespace),
            "spec": {"runStrategy": "Halted", "template": {"spec": {"domain": {"devices": {}}}}},
            "status": {"created": True},
        }
    )

    found = await kube.update({**made, "status": {"ready": True}}, subresource="status")

    assert "status" not in made
    assert found["status"] == {"ready": True}


@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1"])
async def test_a_pool_keeps_the_metadata_of_its_templates(tenant: Tenant, version: str) -> None:
    marks = {"labels": {"gpu.cozystack.io/device-reference": "mine"}, "annotations": {"kept": "yes"}}
    template = {"metadata": marks, "spec": {"domain": {"devices": {}}}}

    found = await tenant.kube.create(
        {
            **ref(f"pool.kubevirt.io/{version}", "VirtualMachinePool", f"pool-{version}", tenant.namespace),
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"pool": "a"}},
                "virtualMachineTemplate": {"spec": {"template": template}},
            },
        }
    )

    assert found["spec"]["virtualMachineTemplate"]["spec"]["template"] == template


async def test_gpus_are_applied_as_one_list_and_claims_one_by_one(kube: Client, tenant: Tenant) -> None:
    def applied(name: str) -> dict[str, Any]:
        devices = {"gpus": [{"name": "gpu", "deviceName": f"nvidia.com/{name}"}]}
        return {
            **ref("kubevirt.io/v1", VMI, "applied", tenant.namespace),
            "spec": {"domain": {"devices": devices}, "resourceClaims": [{"name": name, "resourceClaimName": name}]},
        }

    await kube.apply(applied("one"), manager="one")
    with pytest.raises(APIError) as refused:
        await kube.apply(applied("two"), manager="two")
    found = await kube.apply(applied("two"), manager="two", force=True)

    assert [cause["field"] for cause in refused.value.causes] == [".spec.domain.devices.gpus"]
    assert [gpu["deviceName"] for gpu in found["spec"]["domain"]["devices"]["gpus"]] == ["nvidia.com/two"]
    assert [claim["name"] for claim in found["spec"]["resourceClaims"]] == ["one", "two"]


async def test_kubevirt_says_what_it_permits(kube: Client, make_namespace: MakeNamespace) -> None:
    permitted = {"pciHostDevices": [{"pciVendorSelector": "10DE:2330", "resourceName": "nvidia.com/GPU"}]}
    configuration = {"developerConfiguration": {"featureGates": ["GPU"]}, "permittedHostDevices": permitted}
    namespace = await make_namespace(tenant=False)

    found = await kube.create(
        {
            **ref("kubevirt.io/v1", "KubeVirt", "kubevirt", namespace),
            "spec": {"configuration": configuration},
        }
    )

    assert found["spec"]["configuration"] == configuration


async def test_usage_records_are_kept(kube: Client, tenant: Tenant) -> None:
    usage = {"kind": "gpu", "type": "h200", "operational": True, "resources": {"h200.gpuclass/requests.devices": "1"}}
    made = await kube.create(ref("cozystack.io/v1alpha1", "Workload", "gpu-mine", tenant.namespace))

    found = await kube.update({**made, "status": usage}, subresource="status")

    assert found["status"] == usage
