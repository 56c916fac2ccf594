"""``gpu-webhooks serve`` as a process."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import warm


class Process:
    """A running ``gpu-webhooks serve``, what it logged as it started, and what when it was stopped."""

    def __init__(self, process: asyncio.subprocess.Process | warm.Piped, lines: list[dict[str, Any]]) -> None:
        self.process = process
        self.warned = lines[:-1]
        self.started = lines[-1]

    @property
    def resident(self) -> float:
        """MiB in memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    @property
    def port(self) -> int:
        return int(self.started["url"].rpartition(":")[2])

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, list[dict[str, Any]]]:
        self.process.send_signal(number)
        _, errors = await asyncio.wait_for(self.process.communicate(), 20)
        return self.process.returncode or 0, [json.loads(line) for line in errors.splitlines()]


@asynccontextmanager
async def serve(*arguments: str, launch: Sequence[str] = (), **env: str) -> AsyncIterator[Process]:
    """A process that serves, until the end; it starts as a user starts it, behind ``launch``."""
    command = [*launch, sys.executable, "-m", "webhooks", "serve", *arguments]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stderr=pipe, stdout=pipe, env={**os.environ, **env})
    async with _serving(process) as found:
        yield found


@asynccontextmanager
async def serve_warm(*arguments: str) -> AsyncIterator[Process]:
    """The same, for tests that care for nothing of how it starts; see ``warm``."""
    async with _serving(await warm.piped("serve", *arguments)) as found:
        yield found


@asynccontextmanager
async def _serving(process: asyncio.subprocess.Process | warm.Piped) -> AsyncIterator[Process]:
    assert process.stderr is not None
    try:
        lines: list[dict[str, Any]] = []
        async with asyncio.timeout(20):
            while not lines or lines[-1]["event"] != "serving":
                lines.append(json.loads(await process.stderr.readline()))
        yield Process(process, lines)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
