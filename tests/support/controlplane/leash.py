"""Become another program that dies with the one that asked for it: ``leash.py PARENT PROGRAM ARGUMENT…``.

Linux sends SIGKILL to a process whose parent is gone when it asked for that (PR_SET_PDEATHSIG in prctl(2)), and keeps
the wish over exec. The wish is made here and not in a ``preexec_fn``, which is unsafe beside threads. Elsewhere the
program is stopped by those who started it alone.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Have this process, whose parent that is, be killed when that is gone, on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit("the process that asked for this one is gone")


def main() -> None:
    parent, program, *arguments = sys.argv[1:]
    die_with(int(parent))
    os.execv(program, [program, *arguments])  # noqa: S606 - the caller's own program, without a shell


if __name__ == "__main__":
    main()
