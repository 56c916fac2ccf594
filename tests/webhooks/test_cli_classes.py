"""``gpu-webhooks classes`` and ``gpu-webhooks completion``."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from webhooks.cli import main

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(main, list(map(str, arguments)))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


class TestClasses:
    def test_the_offer_is_a_table(self) -> None:
        result = run("classes", "--catalog", EXAMPLES / "catalog")

        rows = [line.split("  ") for line in result.stdout.splitlines()]
        cells = [[cell.strip() for cell in row if cell.strip()] for row in rows[:3]]
        assert cells == [
            ["NAME", "GPU", "MEMORY", "RESOURCE", "NODES", "PER DEVICE", "PER NAMESPACE", "CAPACITY", "FREE", "HELD",
             "WAITING"],
            ["h200", "NVIDIA H200 SXM", "141Gi", "nvidia.com/GH100_H200_SXM_141GB", "gpu.example.com/pool=h200",
             "1 to 8", "-", "-", "-", "1", "2"],
            ["l40s-24q", "NVIDIA L40S, L40S-24Q", "24Gi", "nvidia.com/L40S-24Q", "gpu.example.com/pool=l40s",
             "1 to 4", "8", "-", "-", "1", "0"],
        ]  # fmt: skip
        assert result.stdout.splitlines()[-1].startswith("GPUs by name as well: deviceclass.resource.kubernetes.io/")

    def test_the_offer_is_there_for_a_program(self) -> None:
        found = json.loads(run("classes", "--catalog", EXAMPLES / "catalog", "-o", "json").stdout)

        assert [row["name"] for row in found["classes"]] == ["h200", "l40s-24q"]
        assert (found["classes"][0]["held"], found["classes"][0]["waiting"]) == (1, 2)
        assert "nvidia.com/GA100_A100_PCIE_40GB" in found["otherNames"]

    def test_a_class_that_goes_or_sells_nothing_here_is_shown_as_such(self, tmp_path: Path) -> None:
        spec = {
            "vendor": "Acme",
            "model": "X",
            "mode": "Passthrough",
            "memory": "8Gi",
            "maxCount": 1,
            "source": {"dra": {}},
        }
        metadata = {"name": "acme", "deletionTimestamp": "2026-11-01T08:00:00Z"}
        (tmp_path / "a.yaml").write_text(yaml.safe_dump({"kind": "GPUClass", "metadata": metadata, "spec": spec}))

        line = run("classes", "--catalog", tmp_path).stdout.splitlines()[1]

        assert line.split("  ")[0] == "acme (being deleted)"
        assert line.split()[-8:] == ["1", "to", "1", "-", "-", "-", "0", "0"]

    def test_an_empty_catalog_is_said(self, tmp_path: Path) -> None:
        assert run("classes", "--catalog", tmp_path).stdout == "the catalog offers no class\n"

    def test_a_catalog_that_cannot_be_read_is_two(self, tmp_path: Path) -> None:
        result = run("classes", "--catalog", tmp_path / "none")

        assert (result.exit_code, "no such file or directory" in result.stderr) == (2, True)


class TestCompletion:
    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_the_script_of_each_shell_is_printed(self, shell: str) -> None:
        script = run("completion", shell).stdout

        assert f"_GPU_WEBHOOKS_COMPLETE={shell}_complete" in script
        assert "gpu-webhooks" in script

    @pytest.mark.parametrize(
        ("words", "completed"),
        [
            ("gpu-webhooks ", sorted(main.commands)),
            ("gpu-webhooks review -o ", ["text", "json", "github"]),
            ("gpu-webhooks review --output g", ["github"]),
            ("gpu-webhooks review --operation ", ["CREATE", "UPDATE", "DELETE"]),
            ("gpu-webhooks audit -o ", ["text", "json"]),
            ("gpu-webhooks audit --t", ["--tenant-label"]),
            ("gpu-webhooks classes -o j", ["json"]),
            ("gpu-webhooks completion ", ["bash", "zsh", "fish"]),
        ],
    )
    def test_commands_options_and_their_values_are_completed(self, words: str, completed: list[str]) -> None:
        variables = {
            "_GPU_WEBHOOKS_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        }

        result = CliRunner().invoke(main, [], prog_name="gpu-webhooks", env=variables)

        assert result.exit_code == 0
        assert [line.partition(",")[2] for line in result.stdout.splitlines()] == completed

    def test_the_program_itself_asks_for_the_variable_that_the_scripts_set(self) -> None:
        variables = {"_GPU_WEBHOOKS_COMPLETE": "bash_complete", "COMP_WORDS": "gpu-webhooks cl", "COMP_CWORD": "1"}

        result = subprocess.run(
            [sys.executable, "-m", "webhooks"],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )

        assert result.stdout == "plain,classes\n"
