"""promtool: the one on PATH, else the one of Debian's package prometheus, kept in the cache of the control plane."""

import fcntl
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TextIO

from cached import cache

PACKAGE: Final = "prometheus"
_OURSELVES: Final = "install promtool (it comes with Prometheus; in Debian and Ubuntu: apt-get install prometheus)"


class NoPromtoolError(Exception):
    """There is no promtool, and none to be had; the message says what to install."""


def promtool(env: Mapping[str, str] = os.environ, *, progress: TextIO | None = None) -> Path:
    """The program; fetched once, without root, where it is not on PATH. Raises NoPromtoolError."""
    if found := shutil.which("promtool", path=env.get("PATH", "")):
        return Path(found)
    folder = cache_folder(env)
    program = folder / "promtool"
    if program.exists():
        return program
    missing = [tool for tool in ("apt-get", "dpkg-deb") if shutil.which(tool, path=env.get("PATH", "")) is None]
    if missing:
        raise NoPromtoolError(
            f"There is no promtool on PATH, and no {' and no '.join(missing)} to fetch it with: {_OURSELVES}."
        )
    progress = progress or sys.stderr
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            why = (
                f"There is no promtool on PATH: Debian's package {PACKAGE} is fetched into {folder}, once for all runs"
            )
            print(why, file=progress, flush=True)
            _fetch(program, env)
    return program


def cache_folder(env: Mapping[str, str] = os.environ) -> Path:
    """Where a fetched promtool is, or will be; it may be deleted."""
    return cache(env) / "promtool" / platform.machine()


def _fetch(program: Path, env: Mapping[str, str]) -> None:
    with tempfile.TemporaryDirectory(dir=program.parent) as made:
        folder = Path(made)
        # Lists that are missing or old name what the mirror no longer has: then those of our own are fetched.
        said = _run(["apt-get", "download", PACKAGE], folder, env)
        if said is not None:
            lists = folder / "lists"
            (lists / "partial").mkdir(parents=True)
            own = [f"-oDir::State::Lists={lists}", f"-oDir::Cache={folder}"]
            said = _run(["apt-get", *own, "update"], folder, env) or _run(
                ["apt-get", *own, "download", PACKAGE], folder, env
            )
        packages = list(folder.glob("*.deb"))
        if said is None and packages:
            said = _run(["dpkg-deb", "-x", str(packages[0]), "."], folder, env)
        unpacked = folder / "usr" / "bin" / "promtool"
        if said is not None or not unpacked.exists():
            raise NoPromtoolError(
                f"There is no promtool on PATH, and apt-get could not fetch Debian's package {PACKAGE}: {_OURSELVES}. "
                f"It said:\n{said or 'nothing'}"
            )
        unpacked.rename(program)


def _run(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> str | None:
    """What went wrong; None where all went well."""
    ran = subprocess.run(command, cwd=folder, env=dict(env), capture_output=True, text=True, check=False)
    return None if ran.returncode == 0 else f"{ran.stdout}{ran.stderr}".strip()
