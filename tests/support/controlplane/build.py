"""Builds the control plane's programs from their Go modules, once for all runs, and shows how far it is."""

import fcntl
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

from controlplane.errors import ControlPlaneError
from controlplane.toolchain import find_go
from controlplane.versions import MODULE, RELEASE

PACKAGES: Final = (
    "k8s.io/kubernetes/cmd/kube-apiserver",
    "k8s.io/kubernetes/cmd/kube-controller-manager",
    "helm.sh/helm/v4/cmd/helm",
    "go.etcd.io/etcd/server/v3",
)
FLAGS: Final = (
    "-trimpath",
    "-mod=readonly",
    "-buildvcs=false",
    f"-ldflags=-s -w -X k8s.io/component-base/version.gitVersion={RELEASE}",
)
HOW_LONG: Final = "about 11 minutes on two cores, with 4 GB for Go's build cache"
EVERY: Final = 5.0
"""Seconds between two lines that tell how far it is."""


def build_into(folder: Path, env: Mapping[str, str], *, progress: TextIO | None = None, every: float = EVERY) -> None:
    """Build the programs into a folder that does not exist yet; who comes second waits for who came first.

    Raises ControlPlaneError: there is no Go, or the build fails.
    """
    progress = progress or sys.stderr
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(folder.with_suffix(".lock"), progress):
        if folder.is_dir():
            return
        go = find_go(env, folder=folder.parent.parent, progress=progress)
        print(
            f"Building a control plane (Kubernetes {RELEASE}, etcd, helm) from its Go modules into {folder}. "
            f"With empty caches this takes {HOW_LONG}; later runs find it there.",
            file=progress,
            flush=True,
        )
        made = Path(tempfile.mkdtemp(prefix="building-", dir=folder.parent))
        try:
            _build(go, made, env, progress, every)
            made.chmod(0o755)
            made.rename(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)


def _build(go: Path, made: Path, env: Mapping[str, str], progress: TextIO, every: float) -> None:
    start = time.monotonic()
    env = {**env, "GOTOOLCHAIN": "local", "GOWORK": "off"}
    listed = _run(
        [go, "list", "-mod=readonly", "-deps", *PACKAGES],
        env=env,
        every=every,
        progress=lambda lines: _say(progress, start, f"fetched {lines} modules"),
    )
    total = len(listed.splitlines())
    _run(
        [go, "build", "-v", *FLAGS, "-o", f"{made}/", *PACKAGES],
        env=env,
        every=every,
        progress=lambda lines: _say(
            progress, start, f"compiled {lines} of {total} packages (fewer where Go has them already), then linking"
        ),
    )
    (made / "server").rename(made / "etcd")
    _say(progress, start, "done")


def _say(progress: TextIO, start: float, what: str) -> None:
    minutes, seconds = divmod(int(time.monotonic() - start), 60)
    print(f"  {minutes:2}:{seconds:02} {what}", file=progress, flush=True)


def _run(
    command: Sequence[str | Path], *, env: Mapping[str, str], every: float, progress: Callable[[int], None]
) -> str:
    """What it prints; ``progress`` gets the number of lines on its stderr, every so many seconds."""
    said: list[str] = []
    printed: list[str] = []
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=MODULE, env=env, text=True, stdout=pipe, stderr=pipe) as process:
        readers = [
            threading.Thread(target=kept.extend, args=(stream,), daemon=True)
            for kept, stream in ((said, process.stderr), (printed, process.stdout))
        ]
        try:
            for reader in readers:
                reader.start()
            while not _ended(process, every):
                progress(len(said))
        except BaseException:
            process.kill()
            raise
        for reader in readers:
            reader.join()
    if process.returncode:
        end = "".join(said[-20:]).rstrip()
        raise ControlPlaneError(f"go {command[1]} in {MODULE} ended with {process.returncode}:\n{end}")
    return "".join(printed)


def _ended(process: subprocess.Popen[str], within: float) -> bool:
    try:
        process.wait(within)
    except subprocess.TimeoutExpired:
        return False
    return True


@contextmanager
def _lock(path: Path, progress: TextIO) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"Another run builds the control plane (it holds {path}): waiting for it", file=progress, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
