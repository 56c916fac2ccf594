"""A process that starts warm is as one that starts cold, and ends with those who asked for it."""

import asyncio
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import warm
from controlplane.process import Program

SUPPORT = Path(warm.__file__).parent
CATALOG = Path(__file__).parents[2] / "examples" / "catalog"
AT_ANY_PORT = ("--catalog", str(CATALOG), "--port", "0", "--plain-port", "0")
HOLDER = f"""
import sys, time
from pathlib import Path
import warm
from controlplane.process import Program

log = Path(sys.argv[1])
program = Program((warm.NAME, "serve", *{AT_ANY_PORT!r}), log=log, start=warm.start)
program.wait_until(lambda: '"serving"' in log.read_text())
print(program.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("arguments", "env", "code"),
    [
        pytest.param(("--version",), {}, 0, id="what it prints"),
        pytest.param(("serve", "--namespace", "a"), {"GPU_WEBHOOKS_PORT": "65536"}, 2, id="what a variable says"),
        pytest.param(
            ("serve", "--namespace", "a", "--kubeconfig", "nowhere"), {}, 1, id="what a cluster is needed for"
        ),
    ],
)
async def test_it_does_what_the_program_does(arguments: tuple[str, ...], env: dict[str, str], code: int) -> None:
    process = await warm.piped(*arguments, env=env)

    out, err = await process.communicate()

    assert process.returncode == code
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "webhooks", *arguments)
    other = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env={**os.environ, **env})
    assert (out, err) == await other.communicate()
    assert other.returncode == code


def logged(program: Program, event: str) -> bool:
    return f'"{event}"' in program.log.read_text()


def test_a_signal_right_after_its_start_ends_it_and_one_after_its_end_is_none(tmp_path: Path) -> None:
    for number in range(6):
        program = Program((warm.NAME, "serve", *AT_ANY_PORT), log=tmp_path / f"log-{number}", start=warm.start)
        began = time.monotonic()
        program.terminate(seconds=20)
        program.kill()

        assert time.monotonic() - began < 10
        assert not program.running


def test_it_is_a_process_with_a_log_signals_and_an_end_of_its_own(tmp_path: Path) -> None:
    command = (warm.NAME, "serve", *AT_ANY_PORT)
    programs = [Program(command, log=tmp_path / name, start=warm.start) for name in ("one", "other")]
    try:
        for program in programs:
            program.wait_until(partial(logged, program, "serving"))

        programs[0].terminate(seconds=20)

        assert logged(programs[0], "stopped")
        assert not logged(programs[1], "stopped")
        assert programs[1].running
    finally:
        for program in programs:
            program.kill()
    assert not programs[1].running


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere an exit handler stops it, where one can")
def test_it_is_gone_when_who_asked_for_it_is_killed(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": f"{SUPPORT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "log")]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        at = Path("/proc", holder.stdout.readline().decode().strip())
        assert at.is_dir()

        holder.kill()

        deadline = time.monotonic() + 20
        while at.is_dir():
            assert time.monotonic() < deadline, f"{at} runs on"
            time.sleep(0.02)
