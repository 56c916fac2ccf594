"""``gpu-webhooks audit``: what is in a cluster and would be refused once the pair is switched on."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from webhooks.cli import main
from webhooks.testing import persisted
from webhooks.virtcontroller import launcher_of, vmi_of

CATALOG = Path(__file__).parent.parent.parent / "examples" / "catalog"
H200 = "nvidia.com/GH100_H200_SXM_141GB"
RAW = {"spec": {"domain": {"devices": {"gpus": [{"name": "a", "deviceName": H200}]}}}}
BY_CLASS = {"metadata": {"annotations": {"gpu.cozystack.io/device-template": '{"className":"h200"}'}}}
SERVER = {
    "resourceVersion": "17",
    "creationTimestamp": "2026-11-01T08:00:00Z",
    "managedFields": [{"manager": "kubectl"}],
}


def run(*arguments: object, stdin: str | None = None) -> Result:
    command = ["audit", "--catalog", str(CATALOG), *map(str, arguments)]
    result = CliRunner().invoke(main, command, input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def listed(*objs: dict[str, Any]) -> str:
    """What ``kubectl get -o yaml`` prints."""
    return yaml.safe_dump(
        {"apiVersion": "v1", "kind": "List", "items": list(objs), "metadata": {"resourceVersion": ""}}
    )


def report(*objs: dict[str, Any], arguments: tuple[str, ...] = ()) -> dict[str, Any]:
    result = run("-", "-o", "json", *arguments, stdin=listed(*objs))
    found: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (2 if found["problems"] else int(found["refused"] > 0))
    return found


def refused(*objs: dict[str, Any], arguments: tuple[str, ...] = ()) -> dict[str, list[str]]:
    """The names of what is listed, by namespace."""
    found = report(*objs, arguments=arguments)["namespaces"]
    return {space["namespace"]: [entry["name"] for entry in space["refused"]] for space in found}


def stored(obj: dict[str, Any], status: dict[str, Any] | None = None) -> dict[str, Any]:
    """An object as the API server gives it."""
    given = persisted(obj)
    return {**given, "metadata": {**given["metadata"], **SERVER}, "status": status or {}}


def a_vm(
    name: str, template: dict[str, Any], *, namespace: str = "tenant-a", kind: str = "VirtualMachine"
) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return stored({"apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": metadata, "spec": {"template": template}})


def vmi_for(vm: dict[str, Any], phase: str = "Running") -> dict[str, Any]:
    return stored(vmi_of(vm, namespace=vm["metadata"]["namespace"]), {"phase": phase})


def pod_for(vmi: dict[str, Any], phase: str = "Running") -> dict[str, Any]:
    return stored(launcher_of(vmi), {"phase": phase})


def a_pod(name: str, *, namespace: str = "tenant-a", phase: str = "Running", **metadata: Any) -> dict[str, Any]:
    """A tenant's own pod with a GPU."""
    containers = [{"name": "a", "resources": {"limits": {H200: "1"}}}]
    given = {"name": name, "namespace": namespace, **metadata}
    return stored(
        {"apiVersion": "v1", "kind": "Pod", "metadata": given, "spec": {"containers": containers}}, {"phase": phase}
    )


def a_namespace(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


class TestWhatIsListed:
    def test_a_vm_by_raw_name_with_the_vmi_and_the_pod_that_it_runs_as(self) -> None:
        vm = a_vm("greedy", RAW)
        vmi = vmi_for(vm)

        found = report(pod_for(vmi), vmi, vm)

        (space,) = found["namespaces"]
        (entry,) = space["refused"]
        assert (found["refused"], found["objects"], space["namespace"]) == (3, 3, "tenant-a")
        assert (entry["kind"], entry["name"], entry["code"]) == ("VirtualMachine", "greedy", 403)
        assert entry["reasons"][0]["field"] == "spec.template.spec.domain.devices.gpus[0]"
        assert [(run["kind"], run["state"]) for run in entry["runsAs"]] == [
            ("Pod", "Running"),
            ("VirtualMachineInstance", "Running"),
        ]

    def test_a_pod_is_listed_under_its_vm_also_where_the_vmi_is_not_given(self) -> None:
        vm = a_vm("greedy", RAW)

        assert refused(vm, pod_for(vmi_for(vm))) == {"tenant-a": ["greedy"]}

    def test_a_vm_that_is_stopped_is_listed_as_it_cannot_start(self) -> None:
        vm = {**a_vm("stopped", RAW), "status": {"printableStatus": "Stopped"}}

        assert report(vm)["namespaces"][0]["refused"][0]["state"] == "Stopped"

    def test_a_vmi_that_is_older_than_the_template_of_its_vm_is_listed_by_itself(self) -> None:
        vmi = vmi_for(a_vm("moved", RAW))

        assert refused(a_vm("moved", BY_CLASS), vmi, pod_for(vmi)) == {"tenant-a": ["moved"]}

    def test_a_set_with_its_vmis(self) -> None:
        replicas = a_vm("farm", RAW, kind="VirtualMachineInstanceReplicaSet")
        vmis = [vmi_for(replicas), vmi_for(replicas)]

        found = report(replicas, *vmis, *map(pod_for, vmis))["namespaces"]

        assert [len(entry["runsAs"]) for entry in found[0]["refused"]] == [4]

    def test_a_pod_of_nobody(self) -> None:
        assert refused(a_pod("cuda")) == {"tenant-a": ["cuda"]}

    def test_what_asks_for_no_gpu_or_by_a_device_is_not_listed(self) -> None:
        plain = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "tenant-a"}, "spec": {}}
        vm = a_vm("train", BY_CLASS)

        found = report(stored(plain), vm, vmi_for(vm), a_vm("none", {}))

        assert (found["refused"], found["objects"], found["namespaces"]) == (0, 4, [])

    def test_owners_in_a_ring_are_listed_all_the_same(self) -> None:
        ring = [a_pod(name, ownerReferences=[{"kind": "Pod", "name": other, "controller": True}])
                for name, other in (("a", "b"), ("b", "a"))]  # fmt: skip

        result = run("-", stdin=listed(*ring))

        assert result.exit_code == 1


class TestWhatIsLeftOut:
    def test_namespaces_without_the_label_of_tenants(self) -> None:
        spaces = [a_namespace("infra"), a_namespace("tenant-a", **{"namespace.cozystack.io/host": "x"})]

        found = refused(*spaces, a_pod("a", namespace="infra"), a_pod("b"), a_pod("c", namespace="not-given"))

        assert found == {"not-given": ["c"], "tenant-a": ["b"]}

    @pytest.mark.parametrize(("label", "left"), [("team", ["a", "b"]), ("team=red", ["a"]), ("team=", [])])
    def test_by_a_label_of_ones_own(self, label: str, left: list[str]) -> None:
        spaces = [a_namespace("a", team="red"), a_namespace("b", team="blue"), a_namespace("c")]
        pods = [a_pod("x", namespace=space) for space in "abc"]

        assert list(refused(*spaces, *pods, arguments=("--tenant-label", label))) == left

    def test_the_clusters_own_namespaces(self) -> None:
        pods = [a_pod("x", namespace=space) for space in ("kube-system", "kubevirt", "virt")]

        assert list(refused(*pods)) == ["virt"]
        assert list(refused(*pods, arguments=("--kubevirt-namespace", "virt"))) == ["kubevirt"]

    def test_what_is_finished_or_being_deleted(self) -> None:
        vm = a_vm("greedy", RAW)
        gone = a_pod("gone", deletionTimestamp="2026-11-01T08:00:00Z")

        found = report(a_pod("a", phase="Succeeded"), a_pod("b", phase="Failed"), vmi_for(vm, "Failed"), gone)

        assert (found["objects"], found["refused"]) == (0, 0)
        assert found["leftOut"] == {"finished": 3, "deleted": 1}


class TestAfterTheInstallation:
    def test_devices_and_vmis_that_are_there_count_as_they_are(self) -> None:
        vm = a_vm("mine", {"metadata": {"labels": {"gpu.cozystack.io/device-reference": "held"}}})
        vmi = vmi_for(vm)
        vmi["spec"] = RAW["spec"]
        status = {
            "phase": "InUse",
            "resourceName": H200,
            "nodeName": "n",
            "binding": {"name": "mine", "uid": vmi["metadata"]["uid"]},
        }
        metadata = {"name": "held", "namespace": "tenant-a", "finalizers": ["gpu.cozystack.io/device"]}
        device = {"apiVersion": "gpu.cozystack.io/v1alpha1", "kind": "GPUDevice", "metadata": metadata,
                  "spec": {"className": "h200"}, "status": status}  # fmt: skip
        other = a_vm("other", {"metadata": {"labels": {"gpu.cozystack.io/device-reference": "held"}}})

        found = refused(other, pod_for(vmi), vmi, vm, device)

        assert found == {"tenant-a": ["other"]}

    def test_a_set_on_one_device_is_no_news(self) -> None:
        template = {"metadata": {"labels": {"gpu.cozystack.io/device-reference": "desk-gpu"}}}
        replicas = a_vm("desk", template, kind="VirtualMachineInstanceReplicaSet")

        assert refused(replicas) == {}


class TestText:
    def test_it_is_by_namespace_with_lines_and_what_to_do_once(self, tmp_path: Path) -> None:
        vm, file = a_vm("greedy", RAW), tmp_path / "cluster.yaml"
        done = a_pod("done", phase="Succeeded")
        file.write_text(listed(vm, vmi_for(vm), a_pod("cuda", namespace="tenant-b"), a_vm("again", RAW), done))

        result = run(file)

        lines = result.stdout.splitlines()
        line = file.read_text().splitlines().index(f"          {H200}: '1'") + 1
        assert result.exit_code == 1
        assert [line for line in lines if not line.startswith("    ")] == [
            "tenant-a",
            f"  {file}:3: VirtualMachine greedy",
            lines[4],
            "tenant-b",
            lines[7],
            lines[9],
            lines[10],
            "4 of 4 objects in 2 namespaces would be refused",
            "left out: 1 finished",
        ]
        assert lines[3] == "    runs as VirtualMachineInstance greedy (Running)"
        assert lines[4].endswith(": VirtualMachine again")
        assert lines[7].endswith(": Pod cuda (Running)")
        assert lines[8] == (
            f"    {file}:{line}: spec.containers[0].resources.limits[{H200}]: asks for '{H200}' by its raw name"
        )
        assert lines[9].startswith("to do: order a GPUDevice")
        assert lines[10].startswith("to do: run a VM")

    def test_a_cluster_without_gpus_is_fine(self) -> None:
        result = run("-", stdin=listed())

        assert (result.exit_code, result.stdout) == (0, "0 of 0 objects would be refused\n")

    def test_where_nothing_is_audited_it_is_said(self) -> None:
        result = run("-", stdin=listed(a_namespace("a")))

        assert result.exit_code == 2
        assert "nothing to audit" in result.stderr

    def test_what_cannot_be_used_does_not_hide_the_rest(self, tmp_path: Path) -> None:
        (tmp_path / "a.yaml").write_text("kind: [")
        odd = [{**a_pod("a"), "apiVersion": None}, {"apiVersion": "gpu.cozystack.io/v1alpha1", "kind": "GPUClass"}]

        result = run(tmp_path / "a.yaml", "-", stdin=listed(a_pod("cuda"), *odd))

        assert result.exit_code == 2
        assert "1 of 2 objects in 1 namespace would be refused" in result.stdout
        assert [line.split(": ", 1)[1] for line in result.stderr.splitlines()] == [
            "did not find expected node content",
            "metadata: is required",
            "apiVersion: must be a group and a version, not null",
        ]
