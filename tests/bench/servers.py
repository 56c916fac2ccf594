"""The contestants, each in a process of its own that is pinned to the first core."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from cases import ROOT, make_catalog

from certs import Authority, utc_now

CORES: Final = sorted(os.sched_getaffinity(0))
_HERE: Final = Path(__file__).parent


class Server(NamedTuple):
    """Where it listens, the CA that its certificate is of, and its process."""

    port: int
    ca: Path
    pid: int


class Certificate(NamedTuple):
    """Files of a serving certificate."""

    certificate: Path
    key: Path
    ca: Path


def pinned(core: int) -> list[str]:
    """What to start a command with, so that it stays on a core."""
    return ["taskset", "-c", str(core)] if shutil.which("taskset") else []


def make_certificate(folder: Path) -> Certificate:
    """A certificate for the loopback address, of the same kind as the pair's own."""
    now = utc_now()
    authority = Authority.create(common_name="bench", now=now, lifetime=timedelta(days=1))
    pair = authority.issue(names=["127.0.0.1"], now=now, lifetime=timedelta(days=1))
    files = Certificate(folder / "tls.crt", folder / "tls.key", folder / "bench-ca.crt")
    for file, content in zip(files, (pair.certificate_pem, pair.key_pem, authority.certificate_pem), strict=True):
        file.write_bytes(content)
    return files


@contextmanager
def pair(folder: Path) -> Iterator[Server]:
    """``gpu-webhooks serve`` as it is installed, with metrics and logs on."""
    ca, log = folder / "pair.crt", folder / "pair.log"
    serve = ["serve", "--catalog", str(make_catalog(folder)), "--port", "0", "--plain-port", "0", "--ca-file", str(ca)]
    with log.open("w") as stderr, _process([sys.executable, "-m", "webhooks", *serve], stderr=stderr) as process:
        for _ in range(200):
            for line in log.read_text().splitlines():
                if line.startswith("{") and (said := json.loads(line))["event"] == "serving":
                    yield Server(int(said["url"].rpartition(":")[2]), ca, process.pid)
                    return
            time.sleep(0.05)
        raise SystemExit(f"the pair did not start:\n{log.read_text()}")


@contextmanager
def bare(files: Certificate, sizes: list[int]) -> Iterator[Server]:
    """The bare aiohttp handler, with a constant of each size."""
    command = [sys.executable, str(_HERE / "bare.py"), str(files.certificate), str(files.key), *map(str, sizes)]
    with _process(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield Server(int(process.stdout.readline()), files.ca, process.pid)


@contextmanager
def lenient(files: Certificate) -> Iterator[Server]:
    """The bare pair of handlers that let everything in, where the system puts it."""
    command = [sys.executable, str(_HERE / "lenient.py"), str(files.certificate), str(files.key)]
    with _process(command, pin=False, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield Server(int(process.stdout.readline()), files.ca, process.pid)


@contextmanager
def peer(files: Certificate, binary: Path) -> Iterator[Server]:
    """Another implementation, on one core as the pair is."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(binary), "-addr", f"127.0.0.1:{port}", "-cert", str(files.certificate), "-key", str(files.key)]
    environment = {**os.environ, "GOMAXPROCS": "1"}
    with _process(command, env=environment, stderr=subprocess.DEVNULL) as process:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    yield Server(port, files.ca, process.pid)
                    return
            time.sleep(0.05)
        raise SystemExit(f"the peer does not listen on port {port}")


@contextmanager
def _process(command: list[str], *, pin: bool = True, **options: Any) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen([*(pinned(CORES[0]) if pin else ()), *command], text=True, cwd=ROOT, **options) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)
