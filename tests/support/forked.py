"""The service with a clock that a test can set, in processes that are forked from one that has imported it: imports are
most of what a start costs. Run as a program: ``python forked.py SOCKET``.

Who connects to SOCKET (a path) asks for a process by a line of JSON: ``arguments`` (of gpu-webhooks), ``clock`` and
``log`` (paths). The answer is a line with its id, and the connection ends with it. The number in the clock's file is
how many seconds its clock is ahead; it may be changed at any time. Certificates in files are looked at every 0.3 s.
"""

import json
import os
import signal
import socket
import sys
from contextlib import suppress
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Final

from controlplane.leash import die_with

import gpu.clock

_right = gpu.clock.utc_now
_LOOKS = timedelta(seconds=0.3)
_clock: Final[list[Path]] = []
"""Of a process that was forked, its one."""


def _ahead() -> datetime:
    return _right() + timedelta(seconds=float(_clock[0].read_text()))


def _import() -> None:
    # Before anything that asks for the time is imported: they all ask this one.
    gpu.clock.utc_now = _ahead
    from certs import FileCertificates

    for module in ("webhooks.cli", "cluster.catalog", "cluster.connect", "cluster.metrics"):
        import_module(module)

    FileCertificates.__init__.__kwdefaults__.update(interval=_LOOKS)  # type: ignore[union-attr]


def _reap(*_: object) -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _become(connection: socket.socket, *, arguments: list[str], clock: str, log: str) -> None:
    """Be a process of the service from here on."""
    _clock.append(Path(clock))
    with Path(log).open("ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    connection.sendall(f"{os.getpid()}\n".encode())
    from webhooks.cli import main

    main(arguments)


def run(path: str) -> None:
    """Fork whatever is asked for."""
    _import()
    signal.signal(signal.SIGCHLD, _reap)
    parent = os.getpid()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        while True:
            connection, _ = listening.accept()
            with connection:
                asked = json.loads(connection.makefile().readline())
                if os.fork() == 0:
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    listening.close()
                    die_with(parent)
                    _become(connection, **asked)


if __name__ == "__main__":
    run(sys.argv[1])
