"""Processes of the service that are forked from one that has imported it, as ``forked.py`` does it."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from controlplane.process import Program

_FORKED: Final = Path(__file__).with_name("forked.py")
_PATIENCE: Final = 30.0


class Forks:
    """The process that others are forked from; it is there from the first that is asked for until ``stop``.

    What starts or stops something blocks.
    """

    def __init__(self, directory: Path) -> None:
        """``directory`` is where its socket and its log are."""
        self._socket = directory / "forks"
        self._log = directory / "forks.log"
        self._program: Program | None = None

    def start(self, arguments: Sequence[str], *, clock: Path, log: Path) -> Program:
        """``gpu-webhooks ARGUMENT...``, by the clock that is as many seconds ahead as a file says."""
        if self._program is None:
            self._socket.unlink(missing_ok=True)
            self._program = Program([sys.executable, _FORKED, self._socket], log=self._log)
            self._program.wait_until(self._socket.is_socket)
        asked = {"arguments": list(arguments), "clock": str(clock), "log": str(log)}
        return Program(["serve"], log=log, process=_Forked(self._socket, asked))

    def stop(self) -> None:
        """End it; what was forked ends with it."""
        if self._program:
            self._program.kill()
            self._program = None


class _Forked:
    """What a Program has to know of a process that is another's child. See subprocess.Popen."""

    def __init__(self, path: Path, asked: object) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.settimeout(_PATIENCE)
        self._connection.connect(str(path))
        self._connection.sendall(json.dumps(asked).encode() + b"\n")
        self.pid = int(self._connection.makefile().readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                self._connection.recv(1)
            except ConnectionResetError:
                pass
            except (BlockingIOError, TimeoutError):
                raise subprocess.TimeoutExpired("serve", timeout or 0) from None
            self._connection.close()
            # Its parent alone knows.
            self.returncode = -1
        return self.returncode

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def _send(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)
