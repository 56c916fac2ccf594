"""Has processes of the service go by a clock that a test sets: imported first where they are forked from (``warm``).

The number in the file that the variable CLOCK names is how many seconds the clock is ahead; it may be changed at any
time. Certificates in files are looked at every 0.3 s.
"""

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import gpu.clock

CLOCK: Final = "TESTS_CLOCK"
_right = gpu.clock.utc_now
_LOOKS: Final = timedelta(seconds=0.3)


def _ahead() -> datetime:
    file = os.environ.get(CLOCK)
    return _right() + timedelta(seconds=float(Path(file).read_text())) if file else _right()


def set_clock() -> None:
    """Do so; before anything that asks for the time is imported, since they all ask this one."""
    gpu.clock.utc_now = _ahead
    from certs import FileCertificates

    FileCertificates.__init__.__kwdefaults__.update(interval=_LOOKS)  # type: ignore[union-attr]
