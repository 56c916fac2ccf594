"""Nothing that the tests start outlives them."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from controlplane.assets import Assets
from controlplane.errors import ControlPlaneError
from controlplane.plane import ControlPlane
from controlplane.process import Program, free_port
from controlplane.versions import NEWEST

SUPPORT = Path(__file__).parents[1] / "support"
HOLDER = f"""
import json, sys
from pathlib import Path
from controlplane.assets import assets
from controlplane.plane import ControlPlane

plane = ControlPlane(Path(sys.argv[1]), assets(), version="{NEWEST}")
plane.start()
programs = (plane.etcd, plane.apiserver, plane.controller_manager)
print(json.dumps([program.pid for program in programs]), flush=True)
if input() == "stop":
    plane.stop()
    input()
"""


def within(seconds: float, look: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not look():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and that nobody asked about does not."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
    return "\nState:\tZ" not in status


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.usefixtures("plane_assets")
def test_a_control_plane_ends_with_its_stop_and_with_those_who_started_it(tmp_path: Path, end: str) -> None:
    # Given a process that holds a control plane
    env = {**os.environ, "PYTHONPATH": str(SUPPORT)}
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        try:
            pids = json.loads(holder.stdout.readline())
            assert [alive(pid) for pid in pids] == [True, True, True]

            # When it stops it, or is killed
            if end == "stop":
                holder.stdin.write("stop\n")
                holder.stdin.flush()
            else:
                holder.send_signal(signal.SIGKILL)

            # Then nothing of it runs on
            assert within(20, lambda: not any(map(alive, pids))), pids
        finally:
            holder.kill()


def test_a_program_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    started: list[Program] = []

    def start() -> None:
        program = Program(["/bin/sleep", "60"], log=tmp_path / "log")
        program.wait_until(lambda: Path(f"/proc/{program.pid}/comm").read_text() == "sleep\n")
        started.append(program)

    asking = threading.Thread(target=start)
    asking.start()
    asking.join()
    [program] = started

    outlived = not within(0.3, lambda: not program.running)
    program.kill()

    assert outlived
    assert not alive(program.pid)


def test_a_program_that_ends_as_it_starts_is_told_with_its_last_words(tmp_path: Path) -> None:
    program = Program(["/bin/sh", "-c", "echo unknown flag; exit 3"], log=tmp_path / "log")

    with pytest.raises(ControlPlaneError, match=r"sh ended with 3 as it started; the end of .*log:\nunknown flag"):
        program.wait_until(lambda: False)

    program.kill()


def test_a_program_that_is_never_ready_is_told(tmp_path: Path) -> None:
    program = Program(["/bin/sleep", "60"], log=tmp_path / "log")

    with pytest.raises(ControlPlaneError, match="sleep is not ready after 0 s"):
        program.wait_until(lambda: False, seconds=0.1)

    program.kill()


def test_a_free_port_is_none_that_linux_gives_to_outgoing_connections() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])

    port = free_port()

    assert port < lowest
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))


def test_a_plane_that_cannot_start_leaves_nothing_running(
    new_plane: Callable[..., ControlPlane], plane_assets: Assets
) -> None:
    before = etcds(plane_assets)

    with pytest.raises(ControlPlaneError, match=r"kube-apiserver ended with 1 .*\n(.|\n)*unknown flag: --no-such-flag"):
        new_plane(apiserver_flags=["--no-such-flag"])

    assert etcds(plane_assets) == before


def etcds(plane_assets: Assets) -> set[str]:
    """The process ids of every etcd that this process has started and that runs."""
    children = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    pids = {pid for path in children for pid in path.read_text().split()}
    return {pid for pid in pids if os.path.realpath(f"/proc/{pid}/exe") == str(plane_assets.etcd)}
