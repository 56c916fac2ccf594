"""Where what is costly to have is kept for all runs; whatever is in there may be deleted."""

import os
from collections.abc import Mapping
from pathlib import Path


def cache(env: Mapping[str, str] = os.environ) -> Path:
    """The folder, which need not be there yet."""
    root = env.get("XDG_CACHE_HOME") or Path(env.get("HOME") or Path.home()) / ".cache"
    return Path(root) / "gpu-webhooks"
