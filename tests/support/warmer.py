"""Processes of ``gpu-webhooks``, forked from one that has imported it: run as a program by ``warm``.

``python warmer.py SOCKET [clock]`` reads requests from the socket of that number until that is closed. With each come
three files: standard output, standard error, and one that the pid is written into, and later the exit code. With
``clock`` the processes go by one that tests set (``set_clock``).
"""

import gc
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
from typing import Any, Final

from controlplane.leash import die_with
from set_clock import set_clock

NUMBER: Final = struct.Struct("!i")
CLOCKED: Final = "clock"
PRODUCT: Final = "webhooks"
_MODULES: Final = ("webhooks.cli", "cluster.connect", "cluster.catalog", "cluster.metrics", "controller.running")
_MODULES_TOO: Final = ("controller.leaving", "controller.probes", "webhooks.doctor")


def main() -> None:
    parent = os.getpid()
    if CLOCKED in sys.argv[2:]:
        set_clock()
    for module in (*_MODULES, *_MODULES_TOO):
        __import__(module)
    gc.collect()
    # What is there already is never looked at again, and so stays shared.
    gc.freeze()
    request = _served(socket.socket(fileno=int(sys.argv[1])))
    if request is None:
        return
    # Whoever asked for it is the parent of our parent, which ends with it.
    die_with(parent)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.argv = [PRODUCT, *request["arguments"]]
    sys.path[0] = request["cwd"]
    runpy.run_module(PRODUCT, run_name="__main__", alter_sys=True)


def _served(requests: socket.socket) -> dict[str, Any] | None:
    """Fork for each request. Gives it in the process that was forked for it, and None in this one in the end."""
    # What is sent to all of us at once is for those that it forks, and for pytest, with which it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    told: dict[int, int] = {}
    asks = requests.fileno()
    while True:
        ready, _, _ = select.select([asks, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _tell_of_ended(told)
        if asks not in ready:
            continue
        head, files, _, _ = socket.recv_fds(requests, NUMBER.size, 3)
        if not head:
            return None
        request: dict[str, Any] = json.loads(_exactly(requests, *NUMBER.unpack(head)))
        pid = os.fork()
        if not pid:
            requests.detach()
            _become_it(files)
            return request
        os.close(files[0])
        os.close(files[1])
        told[pid] = files[2]


def _exactly(requests: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = requests.recv(size - len(data))
        if not more:
            sys.exit("whoever asked is gone in the middle of it")
        data += more
    return data


def _tell_of_ended(told: dict[int, int]) -> None:
    while told:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        tell = told.pop(pid)
        os.write(tell, NUMBER.pack(os.waitstatus_to_exitcode(status)))
        os.close(tell)


def _become_it(files: list[int]) -> None:
    """Leave nothing of the one that forked: neither its signals nor its files."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Not before: who knows of us may send us signals.
    os.write(files[2], NUMBER.pack(os.getpid()))
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - of numbers, as all here
        os.dup2(nothing.fileno(), 0)
    os.dup2(files[0], 1)
    os.dup2(files[1], 2)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))


if __name__ == "__main__":
    main()
