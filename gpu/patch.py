"""JSON patch operations (RFC 6902), built one by one."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias

Operation: TypeAlias = dict[str, Any]


@lru_cache(maxsize=256)
def pointer(*tokens: str | int) -> str:
    """The JSON pointer (RFC 6901) of the place that ``tokens`` lead to."""
    return "".join(f"/{str(token).replace('~', '~0').replace('/', '~1')}" for token in tokens)


def add(path: str, value: object) -> Operation:
    """Put ``value`` at ``path``; in an object it replaces what is there."""
    return {"op": "add", "path": path, "value": value}


def remove(path: str) -> Operation:
    """Take away what is at ``path``."""
    return {"op": "remove", "path": path}


def put(root: Mapping[str, Any], keys: tuple[str, ...], value: object) -> Operation:
    """Put ``value`` at the place that ``keys`` lead to in ``root``, with whatever parents are missing or null."""
    depth = 0
    parent: Any = root
    while depth < len(keys) - 1 and isinstance(parent.get(keys[depth]), dict):
        parent = parent[keys[depth]]
        depth += 1
    for key in reversed(keys[depth + 1 :]):
        value = {key: value}
    return add(pointer(*keys[: depth + 1]), value)
