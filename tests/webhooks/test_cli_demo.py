import os
import shutil
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def demo(examples: Path, cwd: Path) -> "subprocess.CompletedProcess[str]":
    arguments = [sys.executable, "-m", "webhooks", "demo", "--examples", str(examples)]
    environment = {**os.environ, "NO_COLOR": "1"}
    return subprocess.run(arguments, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_every_story_ends_as_it_should(tmp_path: Path) -> None:
    result = demo(EXAMPLES, tmp_path)

    assert result.returncode == 0, result.stdout + result.stderr
    assert "All 9 stories ended as they should." in result.stdout
    assert "patched" in result.stdout
    assert "403 Forbidden: spec.domain.devices.gpus[0]" in result.stdout
    assert "ended with 0" in result.stdout


def test_a_verdict_that_is_not_the_expected_one_ends_the_demo_with_an_error(tmp_path: Path) -> None:
    examples = tmp_path / "examples"
    shutil.copytree(EXAMPLES, examples)
    held = examples / "catalog" / "tenant-a.yaml"
    held.write_text(held.read_text().replace("phase: InUse", "phase: Pending"))

    result = demo(examples, tmp_path)

    assert result.returncode == 1
    assert "NOT AS EXPECTED" in result.stdout
    assert "verdicts were not the expected ones" in result.stderr
    assert "stories ended as they should" not in result.stdout


def test_a_catalog_that_does_not_load_is_said_with_what_the_service_said(tmp_path: Path) -> None:
    examples = tmp_path / "examples"
    shutil.copytree(EXAMPLES, examples)
    (examples / "catalog" / "broken.yaml").write_text("kind: [")

    result = demo(examples, tmp_path)

    assert result.returncode == 1
    assert "the service did not start" in result.stderr
    assert "broken.yaml" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_folder_without_examples_is_a_clear_error(tmp_path: Path) -> None:
    result = demo(tmp_path / "nowhere", tmp_path)

    assert result.returncode == 1
    assert "no such file or directory" in result.stderr
    assert "--examples" in result.stderr
    assert "Traceback" not in result.stderr
