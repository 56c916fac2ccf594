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


class Process:
    """A running ``gpu-webhooks serve``, what it logged as it started, and what when it was stopped."""

    def __init__(self, process: asyncio.subprocess.Process, lines: list[dict[str, Any]]) -> None:
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
    command = [*launch, sys.executable, "-m", "webhooks", "serve", *arguments]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stderr=pipe, stdout=pipe, env={**os.environ, **env})
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
