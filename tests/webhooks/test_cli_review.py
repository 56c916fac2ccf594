"""``gpu-webhooks review``: verdicts, reasons with their lines, devices, differences, and the exit status."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from webhooks.cli import main

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = Path("examples")
H200 = "nvidia.com/GH100_H200_SXM_141GB"
L40S = "nvidia.com/L40S-24Q"
REFERENCE = "gpu.cozystack.io/device-reference"
TEMPLATE = "gpu.cozystack.io/device-template"
BY_CLASS = '{"className":"h200","count":2}'


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def run(*arguments: object, stdin: str | None = None) -> Result:
    """What a review on the examples' catalog came to; it never ends by another exception than its exit status."""
    command = ["review", "--catalog", "examples/catalog", *map(str, arguments)]
    result = CliRunner().invoke(main, command, input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def objects(*arguments: object, stdin: str | None = None) -> list[dict[str, Any]]:
    """The outcomes as a program gets them."""
    found: list[dict[str, Any]] = json.loads(run("-o", "json", *arguments, stdin=stdin).stdout)["objects"]
    return found


def one(obj: dict[str, Any], *arguments: object) -> dict[str, Any]:
    """The outcome of an object."""
    (outcome,) = objects("-", *arguments, stdin=json.dumps(obj, indent=1))
    return outcome


def a_vm(name: str = "vm", *, kind: str = "VirtualMachine", **template: Any) -> dict[str, Any]:
    """A VM, or another of its family, in tenant-a."""
    spec: dict[str, Any] = {"template": template}
    if kind == "VirtualMachinePool":
        spec = {"virtualMachineTemplate": {"spec": spec}}
    group = "pool.kubevirt.io/v1beta1" if kind == "VirtualMachinePool" else "kubevirt.io/v1"
    return {"apiVersion": group, "kind": kind, "metadata": {"name": name, "namespace": "tenant-a"}, "spec": spec}


def marked(label: str | None = None, annotation: str | None = None, *gpus: str) -> dict[str, Any]:
    """A VM's template with a label, an annotation, and GPUs by raw name."""
    entries = [{"name": f"gpu-{index}", "deviceName": name} for index, name in enumerate(gpus)]
    labels = {REFERENCE: label} if label else {}
    annotations = {TEMPLATE: annotation} if annotation else {}
    return {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": {"domain": {"devices": {"gpus": entries}}},
    }


def a_device(name: str, class_name: str = "h200", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "gpu.cozystack.io/v1alpha1",
        "kind": "GPUDevice",
        "metadata": {"name": name, "namespace": "tenant-a", **metadata},
        "spec": {"className": class_name},
    }


def a_class(name: str, **spec: Any) -> dict[str, Any]:
    source = {"devicePlugin": {"resourceName": f"acme.example/{name}", "nodeSelector": {}}}
    known = {"vendor": "Acme", "model": name, "mode": "Passthrough", "memory": "8Gi", "maxCount": 2, "source": source}
    return {
        "apiVersion": "gpu.cozystack.io/v1alpha1",
        "kind": "GPUClass",
        "metadata": {"name": name},
        "spec": known | spec,
    }


def documents(*objs: dict[str, Any]) -> str:
    return "---\n".join(yaml.safe_dump(obj, sort_keys=False) for obj in objs)


class TestExamples:
    @pytest.mark.parametrize(
        ("file", "status", "verdicts"),
        [
            ("catalog/gpuclasses.yaml", 0, ["admitted", "admitted"]),
            ("catalog/settings.yaml", 2, ["counted"]),
            ("catalog/tenant-a.yaml", 1, ["refused", "admitted", "refused", "admitted", "refused"]),
            ("devices/my-gpu.yaml", 0, ["admitted"]),
            ("pods/launcher-held.yaml", 0, ["admitted"]),
            ("pods/launcher-waiting.yaml", 1, ["refused"]),
            ("pods/raw.yaml", 1, ["refused"]),
            ("vms/by-reference.yaml", 0, ["admitted"]),
            ("vms/by-template.yaml", 0, ["admitted"]),
            ("vms/raw-gpus.yaml", 1, ["refused"]),
            ("vms/raw-hostdevices.yaml", 1, ["refused"]),
            ("vms/replicas.yaml", 0, ["admitted"]),
            ("vms/rewritten.yaml", 0, ["admitted"]),
        ],
    )
    @pytest.mark.parametrize("output", ["text", "json", "github"])
    def test_each_meets_its_verdict(self, file: str, status: int, verdicts: list[str], output: str) -> None:
        result = run(EXAMPLES / file, "-o", output)

        assert result.exit_code == status
        assert [outcome["verdict"] for outcome in objects(EXAMPLES / file)] == verdicts

    def test_no_file_of_them_is_left_out(self) -> None:
        seen = {outcome["file"] for outcome in objects(EXAMPLES)}

        assert seen == {str(file.relative_to(ROOT)) for file in (ROOT / EXAMPLES).rglob("*.yaml")}

    def test_what_the_platform_alone_may_set_it_may_set(self) -> None:
        assert run(EXAMPLES / "catalog/tenant-a.yaml", "--as-group", "system:masters").exit_code == 0


class TestText:
    def test_an_admitted_vm_shows_its_devices_warnings_and_what_is_changed(self) -> None:
        lines = run(EXAMPLES / "vms/by-template.yaml").stdout.splitlines()

        assert lines[0] == "examples/vms/by-template.yaml:2: VirtualMachine tenant-a/train: admitted"
        assert re.fullmatch(r"  builds GPUDevice train-[0-9a-f]{8}: 2 of class h200", lines[1])
        assert lines[2].startswith("  examples/vms/by-template.yaml:12: warning: spec.template.metadata.annotations")
        assert lines[3] == f"  changes: spec.domain.devices.gpus: added 2 of {H200}"
        assert lines[4:6] == [
            "  | --- VirtualMachineInstance as asked",
            "  | +++ VirtualMachineInstance as admitted",
        ]
        assert f"  | +        deviceName: {H200}" in lines
        assert lines[-1] == "1 admitted"

    def test_a_refused_vm_shows_each_reason_with_its_line_and_what_to_do(self) -> None:
        lines = run(EXAMPLES / "vms/raw-gpus.yaml").stdout.splitlines()

        field = "spec.template.spec.domain.devices.gpus[0]"
        order = f"order a GPUDevice and refer to it by the label {REFERENCE}"
        advice = f"{order}, or set the annotation {TEMPLATE} on the VM's template"
        assert lines == [
            "examples/vms/raw-gpus.yaml:2: VirtualMachine tenant-a/greedy: refused (403)",
            f"  examples/vms/raw-gpus.yaml:17: {field}: asks for '{H200}' by its raw name",
            f"  to do: {advice}",
            "1 refused",
        ]

    def test_what_would_be_refused_is_not_told_a_second_time_as_a_warning(self) -> None:
        raw, wrong = one(a_vm(**marked(None, None, H200))), one(a_vm(spec=[1]))

        assert (raw["warnings"], wrong["warnings"]) == ([], [])
        assert [reason["field"] for reason in wrong["reasons"]] == ["spec.template.spec"]

    def test_two_runs_say_the_same(self) -> None:
        first, second = run(EXAMPLES), run(EXAMPLES)

        assert first.stdout == second.stdout

    def test_other_kinds_are_passed_over_with_a_line_each(self) -> None:
        others = [
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}},
            {"apiVersion": "compute.example/v1", "kind": "VirtualMachine", "metadata": {"name": "other"}, "spec": []},
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "x"}},
        ]

        result = run("-", stdin=documents(*others, a_vm()))

        assert result.exit_code == 0
        assert result.stdout.splitlines() == [
            "-:1: Deployment web: skipped (admission does not look at it)",
            "-:6: VirtualMachine default/other: skipped (admission does not look at it)",
            "-:12: ConfigMap x/settings: skipped (admission does not look at it)",
            "-:18: VirtualMachine tenant-a/vm: admitted",
            "1 admitted, 3 skipped",
        ]

    def test_it_is_coloured_on_a_terminal_only(self) -> None:
        command = ["review", "--catalog", "examples/catalog", "examples/vms/by-template.yaml"]

        assert "\x1b[32m+" in CliRunner().invoke(main, command, color=True).stdout
        assert "\x1b" not in CliRunner().invoke(main, command).stdout


class TestLines:
    TEXT = f"""\
# two machines
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {{name: first, namespace: tenant-a}}
spec: &spec
  template:
    metadata:
      annotations: {{}}
---
# the second
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {{name: second, namespace: tenant-a}}
spec:
  template:
    metadata:
      labels:
        {REFERENCE}: nope
---
apiVersion: pool.kubevirt.io/v1beta1
kind: VirtualMachinePool
metadata: {{name: third, namespace: tenant-a}}
spec:
  virtualMachineTemplate:
    spec:
      template:
        spec:
          domain:
            devices:
              hostDevices:
              - {{name: a, deviceName: intel.com/qat}}
              - {{name: b, deviceName: {L40S}}}
            resources:
              limits:
                {H200}: 1
"""

    def test_they_are_right_in_several_documents(self) -> None:
        first, second, third = objects("-", stdin=self.TEXT)

        assert [outcome["line"] for outcome in (first, second, third)] == [2, 11, 20]
        assert first["verdict"] == "admitted"
        assert [(reason["line"], reason["field"]) for reason in second["reasons"]] == [
            (18, f"spec.template.metadata.labels[{REFERENCE}]")
        ]
        inside = "spec.virtualMachineTemplate.spec.template.spec.domain"
        assert [(reason["line"], reason["field"]) for reason in third["reasons"]] == [
            (32, f"{inside}.devices.hostDevices[1]"),
            (35, f"{inside}.resources.limits[{H200}]"),
        ]

    def test_they_are_right_in_json_and_lists(self) -> None:
        text = json.dumps({"kind": "List", "items": [a_vm("a"), a_vm("b", **marked("nope"))]}, indent=1)

        (_, refused) = objects("-", stdin=text)

        assert text.splitlines()[refused["line"] - 1] == "  {"
        assert text.splitlines()[refused["reasons"][0]["line"] - 1].strip() == f'"{REFERENCE}": "nope"'


class TestGitHub:
    def test_reasons_warnings_and_changes_are_annotations(self) -> None:
        result = run(EXAMPLES / "vms", "-o", "github")

        lines = result.stdout.splitlines()
        assert result.exit_code == 1
        assert [line.split(" ")[0] for line in lines[:-1]] == [
            "::notice", "::warning", "::notice", "::error", "::error", "::notice", "::warning", "::notice", "::notice"
        ]  # fmt: skip
        assert lines[3].startswith(
            "::error file=examples/vms/raw-gpus.yaml,line=17,title=VirtualMachine tenant-a/greedy refused::"
            "spec.template.spec.domain.devices.gpus[0]: asks for"
        )
        assert lines[-1] == "4 admitted, 2 refused"

    def test_a_file_is_named_from_the_working_directory(self) -> None:
        result = run((EXAMPLES / "vms/raw-gpus.yaml").resolve(), "-o", "github")

        assert result.stdout.startswith("::error file=examples/vms/raw-gpus.yaml,")

    def test_what_a_file_holds_can_break_out_of_no_annotation(self, tmp_path: Path) -> None:
        file = tmp_path / "a,b:c%.yaml"
        file.write_text(documents(a_vm("x\r\n::stop-commands::%0A", **marked("a%\n::error::b"))) + "---\nkind: [\n")

        lines = run(file, "-o", "github").stdout.splitlines()

        assert len(lines) == 3
        start = f"::error file={tmp_path}/a%2Cb%3Ac%25.yaml,line="
        assert lines[0].startswith(
            f"{start}10,title=VirtualMachine tenant-a/x??%3A%3Astop-commands%3A%3A%250A refused::"
        )
        assert "'a%25\\n::error::b'" in lines[0]
        assert lines[1].startswith(f"{start}19::")

    def test_an_input_that_cannot_be_used_is_an_error(self, tmp_path: Path) -> None:
        result = run(tmp_path / "none.yaml", "-o", "github")

        assert (result.exit_code, result.stderr) == (2, "")
        assert result.stdout == f"::error file={tmp_path}/none.yaml::no such file or directory\n"


class TestWhoAsksWhat:
    def test_a_launcher_pod_is_asked_for_by_virt_controller_unless_it_is_said_otherwise(self) -> None:
        file = EXAMPLES / "pods/launcher-held.yaml"

        by_itself, by_jane = run(file), run(file, "--as", "jane")

        assert "virt-launcher-desk-x7k2p, asked by virt-controller: admitted" in by_itself.stdout
        assert (by_jane.exit_code, "by its raw name" in by_jane.stdout) == (1, True)

    def test_virt_controller_is_that_of_its_namespace(self) -> None:
        file, user = EXAMPLES / "pods/launcher-held.yaml", "system:serviceaccount:virt:kubevirt-controller"

        assert run(file, "--kubevirt-namespace", "virt").exit_code == 0
        assert run(file, "--kubevirt-namespace", "virt", "--as", user).exit_code == 0
        assert run(file, "--as", user).exit_code == 1

    def test_a_service_account_has_the_groups_that_the_api_server_gives(self) -> None:
        device = a_device("new", finalizers=["gpu.cozystack.io/device"])

        assert one(device)["verdict"] == "refused"
        assert one(device, "--as", "system:serviceaccount:kube-system:x")["verdict"] == "admitted"
        assert one(device, "--as", "jane", "--as-group", "a", "--as-group", "system:masters")["verdict"] == "admitted"

    def test_a_vms_vmi_is_asked_for_by_virt_controller_whoever_asks_for_the_vm(self) -> None:
        assert run(EXAMPLES / "vms/by-template.yaml", "--as", "jane").exit_code == 0

    @pytest.mark.parametrize("file", ["vms", "pods", "devices", "catalog"])
    def test_everything_can_be_deleted(self, file: str) -> None:
        result = run(EXAMPLES / file, "--operation", "DELETE")

        assert result.exit_code == 0
        assert " refused" not in result.stdout

    def test_an_update_is_one_of_what_the_catalog_has(self, tmp_path: Path) -> None:
        (tmp_path / "vms.yaml").write_text(documents(a_vm("known", **marked("my-gpu"))))
        vmi = yaml.safe_load((EXAMPLES / "catalog/tenant-a.yaml").read_text().split("---\n")[1])
        relabelled = {**vmi, "metadata": {**vmi["metadata"], "labels": {REFERENCE: "my-gpu"}}}
        text = documents(vmi, relabelled, a_vm("known", **marked(None, None, H200)), a_vm("new"))

        same, changed, _, new = objects("-", "--operation", "UPDATE", stdin=text)
        known = objects("-", "--operation", "UPDATE", "--catalog", tmp_path, stdin=text)[2]

        assert (same["verdict"], changed["verdict"], known["verdict"]) == ("admitted", "refused", "refused")
        assert changed["reasons"][0]["field"] == f"metadata.labels[{REFERENCE}]"
        assert known["reasons"][0]["field"] == "spec.template.spec.domain.devices.gpus[0]"
        assert new["verdict"] == "unusable"
        assert new["reasons"][0]["message"] == "the catalog has no object of this name that could be updated"
        assert run("-", "--operation", "UPDATE", stdin=text).exit_code == 2


class TestWhatCountsForTheRest:
    def test_classes_devices_and_vmis_count_whatever_the_order(self) -> None:
        vm = a_vm("early", **marked("new"))
        user = {**a_vm("late"), "kind": "VirtualMachineInstance", "spec": {}}
        taken = a_device("desk", "new-class")
        by_annotation = a_vm("other", **marked(None, '{"className":"new-class"}'))

        found = objects(
            "-", stdin=documents(vm, by_annotation, user, a_device("new", "new-class"), taken, a_class("new-class"))
        )

        assert {outcome["verdict"] for outcome in found} == {"admitted"}
        assert "acme.example/new-class" in found[0]["diff"]

    def test_a_refused_device_does_not_count(self) -> None:
        vm, device = objects("-", stdin=documents(a_vm(**marked("new")), a_device("new", "no-class")))

        assert (vm["verdict"], device["verdict"]) == ("refused", "refused")
        assert device["reasons"][0]["field"] == "spec.className"

    def test_the_catalogs_device_counts_before_the_manifest_of_its_order(self) -> None:
        same, other = objects("-", stdin=documents(a_device("my-gpu"), a_device("my-gpu", "l40s-24q")))

        assert (same["warnings"], other["verdict"]) == ([], "admitted")
        assert other["warnings"] == [
            "spec: the catalog has this device with another spec, which never changes; that one counts"
        ]

    def test_names_that_the_settings_among_the_files_list_are_gpus(self) -> None:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "a"},
            "spec": {"containers": [{"resources": {"limits": {"acme.example/gpu": "1"}}}]},
        }
        settings = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "gpu-settings", "namespace": "gpu-system"},
            "data": {"resourceNames": "acme.example/gpu"},
        }

        alone, (with_settings, counted) = one(pod), objects("-", stdin=documents(pod, settings))

        assert (alone["verdict"], with_settings["verdict"], counted["verdict"]) == ("admitted", "refused", "counted")

    def test_a_quota_among_the_files_is_kept(self) -> None:
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "gpus", "namespace": "tenant-a"},
            "spec": {"hard": {"count/gpudevices.gpu.cozystack.io": "3"}},
        }

        refused = objects("-", stdin=documents(a_vm(**marked(None, BY_CLASS)), quota))[0]

        assert refused["code"] == 403
        assert "exceeded quota: gpus" in refused["reasons"][0]["message"]

    def test_a_claim_among_the_files_tells_what_a_pod_asks_for(self) -> None:
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "raw"},
            "spec": {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}},
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "a"},
            "spec": {"resourceClaims": [{"name": "a", "resourceClaimName": "raw"}]},
        }

        refused = objects("-", stdin=documents(pod, claim))[0]

        assert refused["reasons"][0]["field"] == "spec.resourceClaims[0]"

    def test_many_vms_with_a_template_are_no_idle_devices(self) -> None:
        result = run("-", stdin=documents(*(a_vm(f"vm-{number}", **marked(None, BY_CLASS)) for number in range(70))))

        assert result.stdout.splitlines()[-1] == "70 admitted"

    def test_a_vm_that_runs_with_its_device_is_not_in_its_own_way(self) -> None:
        desk, other = a_vm("desk", **marked("desk-gpu")), a_vm("other", **marked("desk-gpu"))

        mine, theirs = objects("-", stdin=documents(desk, other))

        assert (mine["verdict"], theirs["code"]) == ("admitted", 409)

    def test_manifests_without_a_namespace_are_in_the_one_that_is_given(self) -> None:
        vm = a_vm(**marked("my-gpu"))
        del vm["metadata"]["namespace"]

        assert one(vm)["verdict"] == "refused"
        assert one(vm, "-n", "tenant-a")["verdict"] == "admitted"


class TestKinds:
    @pytest.mark.parametrize("kind", ["VirtualMachineInstanceReplicaSet", "VirtualMachinePool"])
    def test_a_set_builds_a_device_for_each_replica(self, kind: str) -> None:
        outcome = one(a_vm("farm", kind=kind, **marked(None, BY_CLASS)))

        assert outcome["verdict"] == "admitted"
        assert re.fullmatch(r"GPUDevice farm-[0-9a-f]{8}: 2 of class h200, for each replica", outcome["devices"][0])

    @pytest.mark.parametrize("kind", ["VirtualMachine", "VirtualMachineInstanceReplicaSet", "VirtualMachinePool"])
    def test_one_without_a_template_is_told_so(self, kind: str) -> None:
        vm = a_vm(kind=kind)
        vm["spec"] = {}

        (warning,) = one(vm)["warnings"]

        assert warning.endswith("emplate: is missing, so that there is no VMI to review")

    def test_a_vmi_by_itself_goes_through_both_paths(self) -> None:
        template = marked("my-gpu")
        vmi = {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": {"generateName": "vm-", "namespace": "tenant-a", **template["metadata"]},
            "spec": template["spec"],
        }

        outcome = one(vmi)

        assert (outcome["name"], outcome["verdict"]) == ("vm-", "admitted")
        assert f"+        deviceName: {H200}" in outcome["diff"].splitlines() or H200 in outcome["diff"]

    def test_a_malformed_class_is_refused_with_its_field_and_line(self) -> None:
        outcome = one(a_class("acme", mode="Half"))

        (reason,) = outcome["reasons"]
        assert (outcome["code"], reason["field"], reason["line"]) == (422, "spec.mode", 10)

    def test_a_class_keeps_the_names_that_it_sold_when_its_manifest_is_reviewed(self, tmp_path: Path) -> None:
        sold = {**a_class("acme"), "status": {"resourceNames": ["acme.example/old"]}}
        (tmp_path / "acme.yaml").write_text(documents(sold))

        vm = objects(
            "-", "--catalog", tmp_path, stdin=documents(a_class("acme"), a_vm(spec={"domain": {"devices": {
                "hostDevices": [{"name": "a", "deviceName": "acme.example/old"}]}}}))
        )[1]  # fmt: skip

        assert vm["verdict"] == "refused"

    def test_amounts_under_an_alias_are_rewritten_once_each(self) -> None:
        text = f"""\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {{name: vm, namespace: tenant-a}}
spec:
  template:
    metadata: {{labels: {{{REFERENCE}: my-gpu}}}}
    spec:
      domain:
        devices: {{}}
        resources:
          requests: &amounts {{{H200}: 1}}
          limits: *amounts
"""

        (outcome,) = objects("-", stdin=text)

        assert outcome["verdict"] == "admitted"
        assert len(outcome["changes"]) == 3
