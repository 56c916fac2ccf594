"""Which case told which version from its policy when they were last asked: asked first, it mostly does so again.

That is for speed alone: where it is of another checkout, or wrong, other cases are asked before the one that tells.
"""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cached import cache

_FILE: Final = "telltales.json"


def recalled() -> Mapping[str, str]:
    """Titles of cases by what versions are called; empty where nothing is kept that can be read."""
    try:
        kept = json.loads((cache() / _FILE).read_text())
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def keep(telltales: Mapping[str, str]) -> None:
    """Keep them for the next run, in place of those that are kept."""
    cache().mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=cache(), delete=False) as written:
        json.dump(telltales, written)
    Path(written.name).replace(cache() / _FILE)
