"""``gpu-webhooks review`` of what can't be used: a clear line each, and the right exit status."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from webhooks.cli import main

CATALOG = Path(__file__).parent.parent.parent / "examples" / "catalog"
VM = "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: vm}\nspec: {template: {}}\n"
RAW = VM.replace("{}", "{spec: {domain: {devices: {gpus: [{name: a, deviceName: nvidia.com/L40S-24Q}]}}}}")


def run(*arguments: object, stdin: str | bytes | None = None) -> Result:
    command = ["review", "--catalog", str(CATALOG), *map(str, arguments)]
    result = CliRunner().invoke(main, command, input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


class TestFiles:
    @pytest.mark.parametrize(
        ("content", "told"),
        [
            (b"", ": holds no manifest"),
            (b"---\n# nothing\n---\n", ": holds no manifest"),
            (b"kind: [\n", ":1: did not find expected node content"),
            (b"kind: Pod\n\tx: 1\n", ":2: found a tab character that violates indentation"),
            (b"a: \x00", ":1: not YAML: control characters are not allowed"),
            (b"a: b\nc: \xff", ":2: not YAML: invalid leading UTF-8 octet"),
            (b"text", ":1: not a Kubernetes object: it has no kind"),
            (b"kind: 3\n", ":1: not a Kubernetes object: it has no kind"),
            (b"kind: List\nitems: 5\n", ":2: items of a List must be a list, not a whole number"),
            (b"kind: Pod\nkind: Pod\n", ":2: the key 'kind' is there twice"),
        ],
    )
    def test_one_that_cannot_be_used_is_one_line_and_two(self, tmp_path: Path, content: bytes, told: str) -> None:
        file = tmp_path / "a.yaml"
        file.write_bytes(content)

        result = run(file)

        assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"{file}{told}\n")

    def test_it_does_not_keep_the_others_from_being_reviewed(self, tmp_path: Path) -> None:
        (tmp_path / "bad.yaml").write_text("kind: [")
        (tmp_path / "good.yaml").write_text(RAW)

        result = run(tmp_path)

        assert result.exit_code == 2
        assert "good.yaml:4: spec.template.spec.domain.devices.gpus[0]: asks for" in result.stdout
        assert result.stderr.startswith(f"{tmp_path}/bad.yaml:")

    def test_symlink_loops_are_a_line_each(self, tmp_path: Path) -> None:
        (tmp_path / "loop.yaml").symlink_to("loop.yaml")
        (tmp_path / "again").symlink_to(tmp_path)
        (tmp_path / "vm.yaml").write_text(VM)

        alone, inside = run(tmp_path / "loop.yaml"), run(tmp_path)

        assert (alone.exit_code, inside.exit_code) == (2, 2)
        assert alone.stderr == inside.stderr == f"{tmp_path}/loop.yaml: Too many levels of symbolic links\n"
        assert "VirtualMachine default/vm: admitted" in inside.stdout

    def test_fifty_megabytes_are_a_line_at_once(self, tmp_path: Path) -> None:
        file = tmp_path / "large.yaml"
        file.write_text(VM + "#" * 50_000_000)
        start = time.perf_counter()

        result = run(file)

        assert (result.exit_code, result.stderr) == (2, f"{file}: is larger than 16 MiB: split it\n")
        assert time.perf_counter() - start < 2

    def test_a_pipe_of_another_command_is_read_and_an_idle_one_is_empty(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "idle")
        command = [sys.executable, "-m", "webhooks", "review", "--catalog", str(CATALOG)]
        shell = " ".join(command) + f" <(sleep 0.5; printf '{VM}') {tmp_path}/idle /dev/null"

        result = subprocess.run(["/bin/bash", "-c", shell], capture_output=True, text=True, timeout=60, check=False)

        assert result.returncode == 2
        assert "VirtualMachine default/vm: admitted" in result.stdout
        assert result.stderr == f"{tmp_path}/idle: holds no manifest\n/dev/null: holds no manifest\n"

    def test_standard_input_is_read(self) -> None:
        assert run("-", stdin=VM).stdout.splitlines()[0] == "-:1: VirtualMachine default/vm: admitted"
        assert run("-", stdin="").stderr == "-: holds no manifest\n"

    @pytest.mark.parametrize("text", ["kind: List\nitems: []\n", "kind: Deployment\n", "kind: ConfigMap\n"])
    def test_where_nothing_is_judged_it_is_said_and_two(self, text: str) -> None:
        result = run("-", stdin=text)

        assert result.exit_code == 2
        assert result.stderr == "nothing to review: no manifest is of a kind that is judged\n"

    def test_the_catalog_has_to_be_there(self, tmp_path: Path) -> None:
        result = run("-", "--catalog", tmp_path / "none", stdin=VM)

        assert result.exit_code == 2
        assert result.stderr == f"Error: the catalog can't be used: {tmp_path}/none: no such file or directory\n"

    def test_problems_are_there_for_a_program(self, tmp_path: Path) -> None:
        result = run("-o", "json", "-", tmp_path / "none", stdin="kind: Pod\n---\nkind: [")

        assert json.loads(result.stdout)["problems"] == [
            {"file": "-", "line": 3, "message": "did not find expected node content"},
            {"file": f"{tmp_path}/none", "line": None, "message": "no such file or directory"},
        ]
        assert result.stderr == ""


def a_vm(**changes: Any) -> dict[str, Any]:
    known = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "vm"}, "spec": {}}
    return known | changes


class TestObjects:
    @pytest.mark.parametrize(
        ("changes", "told", "status"),
        [
            ({"apiVersion": None}, "apiVersion: must be a group and a version, not null", 2),
            ({"apiVersion": 5}, "apiVersion: must be a group and a version, not a whole number", 2),
            ({"metadata": 5}, "metadata: must be an object, not a whole number", 1),
            ({"metadata": None}, "metadata: is required", 1),
            ({"metadata": {}}, "metadata.name: is required, or a generateName", 1),
            ({"metadata": {"name": []}}, "metadata.name: must be a string, not a list", 1),
            ({"metadata": {"name": "a", "namespace": 5}}, "metadata.namespace: must be a string, not a whole", 1),
            ({"metadata": {"name": "a", "uid": {}}, "spec": {"template": {}}}, "must be a string, not an object", 1),
            ({"spec": []}, "spec: must be an object, not a list", 1),
            ({"spec": {"template": 5}}, "spec.template: must be an object, not a whole number", 1),
            ({"spec": {"template": {"metadata": []}}}, "spec.template.metadata: must be an object, not a list", 1),
            ({"spec": {"template": {"spec": 5}}}, "spec.template.spec: must be an object, not a whole number", 1),
            ({"spec": {"template": {"spec": {"x": "a" * 9_000_000}}}}, "is larger than an API server takes", 2),
        ],
    )
    def test_one_of_a_wrong_shape_is_told_with_its_field(self, changes: dict[str, Any], told: str, status: int) -> None:
        result = run("-", stdin=json.dumps(a_vm(**changes)))

        assert result.exit_code == status
        assert told in result.stdout.splitlines()[1]

    def test_unusable_wins_over_refused(self) -> None:
        assert run("-", stdin=f"{RAW}---\n{json.dumps(a_vm(apiVersion=None))}").exit_code == 2

    @pytest.mark.parametrize("kind", ["VirtualMachine", "VirtualMachineInstance", "GPUDevice", "GPUClass", "Pod"])
    def test_a_kind_alone_is_told(self, kind: str) -> None:
        result = run("-", stdin=f"kind: {kind}\n")

        assert result.exit_code == 2
        assert "apiVersion: must be a group and a version, not null" in result.stdout

    @pytest.mark.parametrize("output", ["text", "json", "github"])
    def test_nothing_that_is_printed_controls_a_terminal(self, output: str) -> None:
        evil = "\x1b[2J\x9b31m\u202e\r\n::error::x\x07"
        template = {"metadata": {"labels": {"gpu.cozystack.io/device-reference": evil}, "annotations": {evil: evil}}}
        built = {"metadata": {"annotations": {"gpu.cozystack.io/device-template": '{"className":"h200"}', evil: evil}}}
        objs = [
            a_vm(metadata={"name": evil, "namespace": evil}, spec={"template": template}),
            a_vm(spec={"template": built, "instancetype": {"name": evil}}),
            {"apiVersion": "x/v1", "kind": f"X{evil}", "metadata": {"name": evil}},
            {"kind": f"{evil}List", "items": evil},
        ]

        result = run("-", "-o", output, stdin=json.dumps({"kind": "List", "items": objs}))

        assert result.exit_code == 2
        assert all(char.isprintable() or char == "\n" for char in result.output)
        assert not [
            line for line in result.output.splitlines() if line.lstrip().startswith("::") and output != "github"
        ]

    def test_a_failure_to_parse_an_option_is_two(self) -> None:
        assert run("-", "-o", "xml", stdin=VM).exit_code == 2
