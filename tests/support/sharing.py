"""What tests have in common: which of them stay in one process, and control planes that they share."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

from controlplane.versions import NEWEST
from xdist.scheduler import LoadScopeScheduling

_CLUSTER: Final = "tests/cluster"
_APART: Final = ("tests/cluster/policies/test_policy_mutants.py", "tests/cluster/test_survival.py")
"""Files that take long and share no control plane with others."""
_INSTALLED: Final = f"tests/cluster/story {NEWEST}"
_WITH: Final[Mapping[str, str]] = {
    f"tests/cluster/controller {NEWEST}": "tests/cluster/controller",
    "tests/cluster/test_no_call_is_lost.py": _INSTALLED,
}
"""Whose tests stand on what others stand on too, and on what."""
_LONGEST_FIRST: Final = ("tests/cluster/chart", "tests/cluster/controller", "tests/cluster/story", *_APART)
_LONG: Final = ("image/test_image", "test_drain", "test_hostile_clients", "test_fuzz", "test_cli_demo", "test_memory")
"""Ends of the names of files that take long, though few tests are in them."""
T = TypeVar("T")
_VERSION: Final = re.compile(r"\[(?:.*-)?(1\.\d+)(?:-.*)?\]$")


def unit(nodeid: str) -> str:
    """The tests that stay together: a file's, or those that share control planes (a folder's, on one version)."""
    file = nodeid.partition("::")[0]
    if not file.startswith(_CLUSTER):
        return file
    place = file if file in (*_APART, *_WITH) else file.rpartition("/")[0]
    version = _VERSION.search(nodeid)
    found = f"{place} {version[1]}" if version else place
    return _WITH.get(found, found)


def turn(unit: str) -> int:
    """When a unit's turn comes: what takes longest goes first, so that nobody is left alone with it in the end."""
    if not unit.startswith(_CLUSTER):
        return len(_LONGEST_FIRST) + (1 if unit.removesuffix(".py").endswith(_LONG) else 2)
    place = unit.partition(" ")[0]
    return _LONGEST_FIRST.index(place) if place in _LONGEST_FIRST else len(_LONGEST_FIRST)


class Sharing(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Hands out units of tests, in turn."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)

    def _assign_work_unit(self, node: object) -> None:
        self.workqueue.move_to_end(min(self.workqueue, key=turn), last=False)
        super()._assign_work_unit(node)


class ByVersion(Generic[T]):
    """What is made once for each version of the API server, by the first who asks."""

    def __init__(self, make: Callable[[str], T], *, stop: Callable[[T], None]) -> None:
        self._make = make
        self._stop = stop
        self._made: dict[str, T] = {}
        _shared.append(self)

    def __call__(self, version: str) -> T:
        if version not in self._made:
            self._made[version] = self._make(version)
        return self._made[version]

    def stop(self) -> None:
        """Stop all of it; who asks after that has it made anew."""
        while self._made:
            self._stop(self._made.popitem()[1])


_shared: Final[list[ByVersion[Any]]] = []


def end_unit(before: str, after: str | None) -> None:
    """Stop what the tests of a unit shared, when the next test is of another: idle planes cost a core in the end."""
    if after is not None and unit(before) != unit(after) and _VERSION.search(before):
        for shared in _shared:
            shared.stop()
