"""The service with a clock that a test can set: run as a program.

``python set_clock.py FILE ARGUMENT...`` runs ``gpu-webhooks ARGUMENT...``. The number in FILE is how many seconds its
clock is ahead; FILE may be changed at any time. Certificates in files are looked at every 0.3 s.
"""

import sys
from datetime import datetime, timedelta
from pathlib import Path

import gpu.clock

_right = gpu.clock.utc_now
_LOOKS = timedelta(seconds=0.3)


def run(file: Path, arguments: list[str]) -> None:
    """Run the command line by the clock in a file."""

    def ahead() -> datetime:
        return _right() + timedelta(seconds=float(file.read_text()))

    # Before anything that asks for the time is imported: they all ask this one.
    gpu.clock.utc_now = ahead
    from certs import FileCertificates

    FileCertificates.__init__.__kwdefaults__.update(interval=_LOOKS)  # type: ignore[union-attr]
    from webhooks.cli import main

    main(arguments)


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2:])
