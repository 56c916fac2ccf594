"""``gpu-webhooks review`` of VMs that name an instancetype or a preference: what KubeVirt copies of them counts."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from webhooks.cli import main

CATALOG = Path(__file__).parent.parent.parent / "examples" / "catalog"
L40S = "nvidia.com/L40S-24Q"
TEMPLATE = "gpu.cozystack.io/device-template"
CLUSTER = "VirtualMachineClusterInstancetype"
NAMESPACED = "VirtualMachineInstancetype"
BY_CLASS = {"annotations": {TEMPLATE: '{"className":"l40s-24q"}'}}
RAW = {"gpus": [{"name": "g", "deviceName": L40S}]}
RAW_HOSTED = {"hostDevices": [{"name": "q", "deviceName": "intel.com/qat"}, {"name": "g", "deviceName": L40S}]}


def an_instancetype(spec: dict[str, Any], *, kind: str = CLUSTER, namespace: str | None = None) -> dict[str, Any]:
    metadata = {"name": "large"} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": kind, "metadata": metadata, "spec": spec}


def a_vm(
    named: Any, template: dict[str, Any] | None = None, *, kind: str = "VirtualMachine", matcher: str = "instancetype"
) -> dict[str, Any]:
    """A VM, or a pool, that names an instancetype."""
    spec: dict[str, Any] = {"template": {"spec": {"domain": {"devices": {}}}} | (template or {}), matcher: named}
    if kind == "VirtualMachinePool":
        spec = {"virtualMachineTemplate": {"spec": spec}}
    group = "pool.kubevirt.io/v1beta1" if kind == "VirtualMachinePool" else "kubevirt.io/v1"
    return {"apiVersion": group, "kind": kind, "metadata": {"name": "vm", "namespace": "tenant-a"}, "spec": spec}


def reviewed(*objs: dict[str, Any], catalog: Path = CATALOG) -> dict[str, Any]:
    """The outcome of the first."""
    text = "---\n".join(yaml.safe_dump(obj, sort_keys=False) for obj in objs)
    command = ["review", "--catalog", str(catalog), "-o", "json", "-"]
    result = CliRunner().invoke(main, command, input=text)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    outcome: dict[str, Any] = json.loads(result.stdout)["objects"][0]
    return outcome


@pytest.mark.parametrize("kind", ["VirtualMachine", "VirtualMachinePool"])
@pytest.mark.parametrize(
    ("named", "instancetype"),
    [
        ({"name": "large"}, an_instancetype(BY_CLASS)),
        ({"name": "large", "kind": CLUSTER}, an_instancetype(BY_CLASS)),
        ({"name": "large", "kind": "virtualmachineclusterinstancetypes"}, an_instancetype(BY_CLASS)),
        ({"name": "large", "kind": NAMESPACED}, an_instancetype(BY_CLASS, kind=NAMESPACED, namespace="tenant-a")),
    ],
    ids=["no kind", "cluster", "plural", "namespaced"],
)
def test_its_annotation_has_a_device_built(kind: str, named: dict[str, Any], instancetype: dict[str, Any]) -> None:
    outcome = reviewed(a_vm(named, kind=kind), instancetype)

    assert (outcome["verdict"], outcome["warnings"]) == ("admitted", [])
    assert "1 of class l40s-24q" in outcome["devices"][0]


def test_a_preferences_annotation_counts_and_gives_way() -> None:
    preference = {**an_instancetype(BY_CLASS), "kind": "VirtualMachineClusterPreference"}
    own = {"metadata": {"annotations": {TEMPLATE: '{"className":"h200"}'}}}

    alone = reviewed(a_vm({"name": "large"}, matcher="preference"), preference)
    beside = reviewed(a_vm({"name": "large"}, own, matcher="preference"), preference)

    assert "1 of class l40s-24q" in alone["devices"][0]
    assert "1 of class h200" in beside["devices"][0]


@pytest.mark.parametrize(("spec", "field"), [(RAW, "gpus[0]"), (RAW_HOSTED, "hostDevices[1]")], ids=["gpus", "hosted"])
def test_its_gpu_by_raw_name_is_refused_with_the_line_in_its_own_manifest(spec: dict[str, Any], field: str) -> None:
    outcome = reviewed(a_vm({"name": "large"}), an_instancetype(spec))

    (reason,) = outcome["reasons"]
    assert (outcome["verdict"], outcome["line"]) == ("refused", 1)
    assert (reason["field"], reason["of"]) == (f"spec.{field}", f"{CLUSTER} large")
    assert reason["line"] == {"gpus[0]": 20, "hostDevices[1]": 22}[field]


def test_one_of_the_catalog_counts_and_the_line_is_that_of_what_names_it(tmp_path: Path) -> None:
    (tmp_path / "large.yaml").write_text(yaml.safe_dump(an_instancetype(RAW)))

    outcome = reviewed(a_vm({"name": "large"}), catalog=tmp_path)

    (reason,) = outcome["reasons"]
    assert (reason["field"], reason["of"], reason["line"]) == ("spec.gpus[0]", f"{CLUSTER} large", 11)


@pytest.mark.parametrize("name", ["gpus", "hostDevices"])
def test_devices_of_both_are_a_conflict_that_kubevirt_refuses(name: str) -> None:
    own = {"spec": {"domain": {"devices": {name: [{"name": "a", "deviceName": "acme.example/x"}]}}}}

    outcome = reviewed(a_vm({"name": "large"}, own), an_instancetype({name: RAW["gpus"]}))

    (reason,) = outcome["reasons"]
    assert (outcome["verdict"], outcome["code"]) == ("refused", 422)
    assert reason["field"] == f"spec.template.spec.domain.devices.{name}"
    assert reason["message"] == f"is set by {CLUSTER} 'large' too, and KubeVirt refuses a VM with both"


def test_another_value_of_its_annotation_is_a_conflict_and_the_same_is_none() -> None:
    other = {"metadata": {"annotations": {TEMPLATE: '{"className":"h200"}'}}}

    conflict = reviewed(a_vm({"name": "large"}, other), an_instancetype(BY_CLASS))
    same = reviewed(a_vm({"name": "large"}, {"metadata": BY_CLASS}), an_instancetype(BY_CLASS))

    assert (conflict["verdict"], same["verdict"]) == ("refused", "admitted")
    assert conflict["reasons"][0]["field"] == f"spec.template.metadata.annotations[{TEMPLATE}]"


@pytest.mark.parametrize(
    ("named", "instancetype", "told"),
    [
        ({"name": "small"}, an_instancetype(RAW), f"{CLUSTER} 'small' is neither given nor in the catalog"),
        (
            {"name": "large", "kind": NAMESPACED},
            an_instancetype(RAW, kind=NAMESPACED, namespace="other"),
            "is neither given nor",
        ),
        ({"inferFromVolume": "root"}, an_instancetype(RAW), "is inferred from a volume"),
    ],
    ids=["unknown", "another namespace's", "inferred"],
)
def test_one_that_is_not_given_is_warned_of(named: dict[str, Any], instancetype: dict[str, Any], told: str) -> None:
    outcome = reviewed(a_vm(named), instancetype)

    assert outcome["verdict"] == "admitted"
    assert outcome["warnings"][0].startswith("spec.instancetype: ")
    assert told in outcome["warnings"][0]


def test_a_replica_set_has_none() -> None:
    vm = a_vm({"name": "large"}, kind="VirtualMachineInstanceReplicaSet")

    assert reviewed(vm, an_instancetype(RAW))["verdict"] == "admitted"


@pytest.mark.parametrize(
    ("named", "field"),
    [
        (5, "spec.instancetype"),
        ({"name": 5}, "spec.instancetype.name"),
        ({"name": "a", "kind": []}, "spec.instancetype.kind"),
        ({"name": "a", "kind": "Pod"}, "spec.instancetype.kind"),
    ],
)
def test_a_malformed_matcher_is_refused_with_its_field(named: Any, field: str) -> None:
    outcome = reviewed(a_vm(named))

    assert (outcome["verdict"], [reason["field"] for reason in outcome["reasons"]]) == ("refused", [field])


def test_a_malformed_one_is_unusable_with_its_field_and_line() -> None:
    outcome = reviewed(an_instancetype({"gpus": [{"name": "a"}, 5]}), a_vm({"name": "large"}))

    (reason,) = outcome["reasons"]
    assert (outcome["verdict"], reason["field"], reason["line"]) == ("unusable", "spec.gpus[1]", 8)


def test_a_malformed_one_of_the_catalog_is_told_where_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "large.yaml").write_text(yaml.safe_dump(an_instancetype({"gpus": 5})))

    (reason,) = reviewed(a_vm({"name": "large"}), catalog=tmp_path)["reasons"]

    assert reason["field"] == "spec.instancetype"
    assert reason["message"] == f"{CLUSTER} 'large' can't be read: spec.gpus: must be a list, not a whole number"
