"""Programs that run beside the tests: started on free ports, waited for, and never left behind."""

import atexit
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol

from controlplane.errors import ControlPlaneError

_LEASH: Final = Path(__file__).with_name("leash.py")
_PORTS: Final = range(12_000, 32_000)
"""Below what Linux gives to outgoing connections (ip_local_port_range): a port there would be lost while its server is
down, and a client that calls it then can even be connected to itself."""

RARELY_COLLECTED: Final = {"GOGC": "400"}
"""Environment of Go programs: memory is there, processor time is not. It saves a sixth of what they take."""

_spawner = ThreadPoolExecutor(1, "spawner")
"""Starts every program: Linux counts the thread that starts one as its parent, and this one lives as long as we do."""


class Process(Protocol):
    """A process that runs, or did: see subprocess.Popen."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def kill(self) -> None: ...

    def terminate(self) -> None: ...


_running: set[Process] = set()


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listens on."""
    for port in random.sample(_PORTS, 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ControlPlaneError(f"none of 100 ports tried in {_PORTS.start} to {_PORTS.stop - 1} of 127.0.0.1 is free")


class Program:
    """A program that runs with its output in a file; ``process`` where somebody else has started it."""

    def __init__(self, command: Sequence[str | Path], *, log: Path, process: Process | None = None) -> None:
        self.name = Path(command[0]).name
        self.log = log
        self._process = process or _spawned(command, log)
        _running.add(self._process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def resident(self) -> float:
        """MiB in memory."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def kill(self) -> None:
        """End it at once; back when it is gone, so that its port is free again."""
        self._process.kill()
        self._process.wait()
        _running.discard(self._process)

    def terminate(self, *, seconds: float) -> None:
        """Ask it to end, and kill it after so many seconds."""
        self._process.terminate()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self.kill()

    def wait_until(self, ready: Callable[[], bool], *, seconds: float = 90) -> None:
        """Wait until it is ready. Raises ControlPlaneError, with the end of its log, when it ends or takes longer."""
        deadline = time.monotonic() + seconds
        while not ready():
            if not self.running:
                code = self._process.returncode
                raise ControlPlaneError(f"{self.name} ended with {code} as it started; {self._end()}")
            if time.monotonic() > deadline:
                raise ControlPlaneError(f"{self.name} is not ready after {seconds:.0f} s; {self._end()}")
            time.sleep(0.05)

    def _end(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-15:]
        return "\n".join([f"the end of {self.log}:", *lines])


def _spawned(command: Sequence[str | Path], log: Path) -> Process:
    words = [sys.executable, "-I", "-S", str(_LEASH), str(os.getpid()), *map(str, command)]
    env = {**RARELY_COLLECTED, **os.environ}
    with log.open("ab") as output:
        return _spawner.submit(
            lambda: subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        ).result()


@atexit.register
def _kill_all() -> None:
    for process in tuple(_running):
        process.kill()
        process.wait()
