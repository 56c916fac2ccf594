"""Which tests a worker of pytest-xdist runs together, and in which order they are handed out."""

import re
from typing import Final

from xdist.scheduler import LoadScopeScheduling

_CLUSTER: Final = "tests/cluster"
_VERSION: Final = re.compile(r"\[(?:.*-)?(1\.\d+)(?:-.*)?\]$")


def unit(nodeid: str) -> str:
    """The tests that stay together: a file's, or those that share control planes (a folder's, on one version)."""
    file = nodeid.partition("::")[0]
    if not file.startswith(_CLUSTER):
        return file
    folder = file.rpartition("/")[0]
    version = _VERSION.search(nodeid)
    return f"{folder} {version[1]}" if version else folder


class Sharing(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Hands out units in the order in which they were collected, those on control planes first."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)
