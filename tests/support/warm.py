"""Processes of ``gpu-webhooks`` that start in no time: forked from one that has imported all of it (``warmer``).

An interpreter that starts and imports takes more than a second of a processor, and the tests start some hundred. What
comes of it is a process as any other: its pid, memory, environment, files, signals and exit code are its own. Tests of
the start itself, and those that measure memory, run ``python -m webhooks``.
"""

import asyncio
import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from controlplane.process import Start, spawned
from set_clock import CLOCK
from warmer import CLOCKED, NUMBER

NAME: Final = "gpu-webhooks"
_WARMER: Final = Path(__file__).with_name("warmer.py")
_lock = threading.Lock()
_sockets: dict[Sequence[str], socket.socket] = {}


class Warm:
    """One such process; in use as subprocess.Popen is."""

    def __init__(self, pid: int, told: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._told = told
        self._asking = threading.Lock()

    def poll(self) -> int | None:
        """Its exit code, when it has ended; -N for signal N."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code. Raises TimeoutExpired when it runs on for so many seconds."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(NAME, timeout or 0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        # Not select(2), which knows files up to the thousandth.
        asked = select.poll()
        asked.register(self._told, select.POLLIN)
        with self._asking:
            if self.returncode is None and asked.poll(None if timeout is None else 1000 * timeout):
                self.returncode = _number(self._told)
                os.close(self._told)
            return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            # It may have ended without our having been told yet.
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


def start(command: Sequence[str], output: IO[bytes], env: Mapping[str, str]) -> Warm:
    """Start a command, which is NAME and arguments; see controlplane.process.Start."""
    return _started(command[1:], output.fileno(), output.fileno(), env)


def start_by(clock: Path) -> Start:
    """What starts it to go by the clock that is as many seconds ahead as a file says: see ``set_clock``."""

    def start(command: Sequence[str], output: IO[bytes], env: Mapping[str, str]) -> Warm:
        env = {**env, CLOCK: str(clock)}
        return _started(command[1:], output.fileno(), output.fileno(), env, options=(CLOCKED,))

    return start


def _started(
    arguments: Sequence[str], stdout: int, stderr: int, env: Mapping[str, str], *, options: Sequence[str] = ()
) -> Warm:
    said = json.dumps({"arguments": arguments, "env": dict(env), "cwd": str(Path.cwd())}).encode()
    told, tells = os.pipe()
    try:
        with _lock:
            requests = _sockets.get(options) or _warmed(options)
            socket.send_fds(requests, [NUMBER.pack(len(said))], [stdout, stderr, tells])
            requests.sendall(said)
    except OSError:
        # The one to fork from is gone: the next start makes another.
        _sockets.pop(options, None)
        os.close(told)
        raise
    finally:
        os.close(tells)
    return Warm(_number(told), told)


def _number(told: int) -> int:
    data = os.read(told, NUMBER.size)
    # Who should have told it is gone, and has taken all with it.
    return int(NUMBER.unpack(data)[0]) if data else -signal.SIGKILL


def _warmed(options: Sequence[str]) -> socket.socket:
    ours, its = socket.socketpair()
    with its:
        spawned([sys.executable, str(_WARMER), str(its.fileno()), *options], None, os.environ, files=[its.fileno()])
    _sockets[options] = ours
    atexit.register(ours.close)
    return ours


class Piped:
    """One whose output is read; in use as asyncio.subprocess.Process is."""

    def __init__(self, process: Warm, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader) -> None:
        self._process = process
        self.stdout = stdout
        self.stderr = stderr

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()

    async def communicate(self) -> tuple[bytes, bytes]:
        """What it says from now on, when it has ended."""
        said = await asyncio.gather(self.stdout.read(), self.stderr.read())
        while self._process.poll() is None:  # noqa: ASYNC110 - it has closed its output, so it is about to end
            await asyncio.sleep(0.01)
        return said[0], said[1]


async def piped(*arguments: str, env: Mapping[str, str] | None = None) -> Piped:
    """Start ``gpu-webhooks ARGUMENT...``, with our variables and these."""
    (out, out_its), (err, err_its) = os.pipe(), os.pipe()
    try:
        process = await asyncio.to_thread(_started, arguments, out_its, err_its, {**os.environ, **(env or {})})
    finally:
        os.close(out_its)
        os.close(err_its)
    return Piped(process, await _reader(out), await _reader(err))


async def _reader(file: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(file, "rb")
    )
    return reader
