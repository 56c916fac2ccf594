"""Wheels that locks name, fetched from the package registry once for all runs."""

import contextlib
import hashlib
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cached import cache


def wheels(python: Path, locks: Sequence[Path]) -> Path:
    """The folder that has them, for this Python; ``python`` has the pip that checks their hashes as it fetches them."""
    digest = hashlib.sha256(b"".join(lock.read_bytes() for lock in locks)).hexdigest()[:16]
    folder = cache() / "wheels" / f"{sys.implementation.cache_tag}-{platform.machine()}-{digest}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as made:
            fetch = [str(python), "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
            for lock in locks:
                locked = ["--require-hashes", "--requirement", str(lock)]
                subprocess.run([*fetch, *locked, "--dest", f"{made}/wheels"], check=True)
            # Another run may have been first: its wheels are the same.
            with contextlib.suppress(OSError):
                Path(made, "wheels").rename(folder)
    return folder
