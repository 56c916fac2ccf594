"""The service with a clock that a test can set, and an end that a test can foretell: run as a program.

``python set_clock.py FILE [--end-after N] ARGUMENT...`` runs ``gpu-webhooks ARGUMENT...``. The number in FILE is how
many seconds its clock is ahead; FILE may be changed at any time. With ``--end-after`` it is killed, as by SIGKILL, when
the API server has taken the Nth write of a Secret or of a webhook configuration.
"""

import os
import signal
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import gpu.clock

_right = gpu.clock.utc_now
_WRITES = ("create", "replace", "merge", "apply")
_GUARDED = ("secrets", "mutatingwebhookconfigurations", "validatingwebhookconfigurations")


def run(file: Path, arguments: list[str]) -> None:
    """Run the command line by the clock in a file."""

    def ahead() -> datetime:
        return _right() + timedelta(seconds=float(file.read_text()))

    # Before anything that asks for the time is imported: they all ask this one.
    gpu.clock.utc_now = ahead
    if arguments[:1] == ["--end-after"]:
        _end_after(int(arguments[1]))
        arguments = arguments[2:]
    from webhooks.cli import main

    main(arguments)


def _end_after(writes: int) -> None:
    from cluster.api import Api

    left = writes

    def ending(write: Any) -> Any:
        async def written(api: Api, kind: Any, *args: Any, **options: Any) -> Any:
            nonlocal left
            answer = await write(api, kind, *args, **options)
            if kind.plural in _GUARDED:
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return answer

        return written

    for name in _WRITES:
        setattr(Api, name, ending(getattr(Api, name)))


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2:])
