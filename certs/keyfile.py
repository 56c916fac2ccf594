"""A path for a secret, for interfaces that take nothing but a path."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def memory_file(content: bytes) -> Iterator[Path]:
    """A path under /proc that reads `content` from memory, while the context lasts. Linux only; raises OSError."""
    descriptor = os.memfd_create("secret", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        yield Path(f"/proc/self/fd/{descriptor}")


@contextmanager
def temporary_file(content: bytes) -> Iterator[Path]:
    """A file that only its owner can read, removed when the context ends. Raises OSError."""
    descriptor, name = tempfile.mkstemp()
    path = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        yield path
    finally:
        path.unlink()


# On Linux there is no falling back on a file: the secret stays in memory or is not given out at all.
secret_file = memory_file if sys.platform == "linux" else temporary_file
"""The better of the two on this platform."""
