"""The objects of one kind, each read once, when it comes in."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

import structlog

from cluster.events import number, version_of
from gpu.errors import FieldError
from gpu.fields import clip, printable

_log = structlog.get_logger("gpu-webhooks")

T = TypeVar("T")
Key = tuple[str, str]
"""Namespace and name; the namespace is empty for what has none."""

_UNKNOWN: Final = ("", "")


class Table(Generic[T]):
    """The values of one kind, as a watch tells them, with our own writes put in before the watch shows them.

    ``read`` makes a value of a manifest, or None of what is not kept; where it raises FieldError the object is left
    out, logged once, and counted in ``unreadable``. ``salvage`` may make a value of such an object all the same, by
    what is wrong with it; that is kept in its place.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[Mapping[str, Any]], T | None],
        *,
        salvage: Callable[[Mapping[str, Any], str], T | None] | None = None,
    ) -> None:
        self.name = name
        self.changes = 0
        self.unreadable: dict[Key, str] = {}
        self._read = read
        self._salvage = salvage
        self._values: defaultdict[str, dict[str, T]] = defaultdict(dict)
        self._reached = 0
        self._written: dict[Key, int] = {}
        self._unlisted: set[Key] = set()

    def __len__(self) -> int:
        # Of a copy: metrics are read from another thread.
        return sum(map(len, list(self._values.values())))

    def get(self, namespace: str, name: str) -> T | None:
        """A value."""
        values = self._values.get(namespace)
        return values.get(name) if values else None

    def of(self, namespace: str) -> list[T]:
        """A namespace's values."""
        values = self._values.get(namespace)
        return list(values.values()) if values else []

    def begin(self, version: str) -> None:
        """A list as of this version comes in: what it lacks is gone, which ``end`` makes true.

        A version lower than one that was told before means that the API server's store was set back: then nothing that
        was remembered is newer.
        """
        if number(version) < self._reached:
            self._written.clear()
        self._reached = number(version)
        self._unlisted = {(namespace, name) for namespace, values in self._values.items() for name in values}
        self._unlisted.update(self.unreadable)

    def end(self) -> None:
        """The list is whole."""
        for key in self._unlisted:
            if self._written.get(key, 0) <= self._reached:
                self._forget(key)
        self._unlisted = set()
        self._settle()

    def put(self, obj: Mapping[str, Any]) -> None:
        """An object is there, in this state."""
        key = _key(obj)
        self._unlisted.discard(key)
        if self._written and self._written.get(key, 0) > number(version_of(obj)):
            return
        try:
            value = self._read(obj)
        except FieldError as error:
            self._leave_out(key, obj, str(error))
        else:
            self._set(key, value)

    def drop(self, obj: Mapping[str, Any]) -> None:
        """An object is gone."""
        key = _key(obj)
        if self._written.get(key, 0) <= number(version_of(obj)):
            self._forget(key)

    def reached(self, version: str) -> None:
        """All that happened up to this version has been told."""
        self._reached = number(version)
        self._settle()

    def _settle(self) -> None:
        if self._written:
            self._written = {key: written for key, written in self._written.items() if written > self._reached}

    def remember(self, obj: Mapping[str, Any]) -> None:
        """Put in what we wrote ourselves, unless the watch is past it: what it knows then is newer, a deletion even.

        Raises FieldError.
        """
        key, version, value = _key(obj), number(version_of(obj)), self._read(obj)
        if version > max(self._reached, self._written.get(key, 0)):
            self._written[key] = version
            self._set(key, value)

    def changed(self, old: T | None, new: T | None) -> None:
        """A value came (no old), went (no new) or became another."""
        self.changes += old != new

    def every(self) -> Iterator[T]:
        """All values."""
        for values in self._values.values():
            yield from values.values()

    def _set(self, key: Key, value: T | None) -> None:
        self.unreadable.pop(key, None)
        namespace, name = key
        if value is None:
            self._forget(key)
            return
        values = self._values[namespace]
        old = values.get(name)
        values[name] = value
        self.changed(old, value)

    def _forget(self, key: Key) -> None:
        self.unreadable.pop(key, None)
        namespace, name = key
        values = self._values.get(namespace)
        old = values.pop(name, None) if values else None
        if not values:
            self._values.pop(namespace, None)
        if old is not None:
            self.changed(old, None)

    def _leave_out(self, key: Key, obj: Mapping[str, Any], why: str) -> None:
        known = self.unreadable.get(key)
        self._set(key, self._salvage(obj, why) if self._salvage else None)
        self.unreadable[key] = why
        if known != why:
            namespace, name = (printable(clip(part, 253)) for part in key)
            _log.warning("object left out: it can't be read", what=self.name, namespace=namespace, name=name, why=why)


def _key(obj: Mapping[str, Any]) -> Key:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return _UNKNOWN
    namespace, name = metadata.get("namespace", ""), metadata.get("name", "")
    return (namespace, name) if isinstance(namespace, str) and isinstance(name, str) else _UNKNOWN
