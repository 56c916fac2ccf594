"""YAML and JSON text as what the Kubernetes API would be sent: JSON values, and where they stand in the text."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson
import yaml

LARGEST: Final = 16 * 1024 * 1024
"""Bytes that a document may have, also when its aliases are written out."""

_DEEPEST: Final = 128
_YAML: Final = "tag:yaml.org,2002:"
_UNKNOWN_TO_JSON: Final = {f"{_YAML}{name}" for name in ("binary", "omap", "pairs", "set", "timestamp")}
_READ_ANEW: Final = {f"{_YAML}{name}" for name in ("timestamp", "int", "float")}
_INT: Final = re.compile(r"[-+]?(0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$")
_FLOAT: Final = re.compile(
    r"([-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"
)
_PAIR: Final = re.compile(
    rb"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})",
)


class DocumentError(Exception):
    """Text that can't be read: what is wrong, and the line, from 1, where one is to blame."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON value, and the node that it was read from."""

    value: Any
    node: yaml.Node


class _Loader(yaml.CSafeLoader):
    """Reads what kubectl would send: dates, times and MAC addresses stay strings, and so do keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        """See yaml.constructor.BaseConstructor."""
        self.flatten_mapping(node)
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                key.tag = f"{_YAML}str"
        return super().construct_mapping(node, deep)


_Loader.yaml_constructors = {
    tag: build for tag, build in yaml.CSafeLoader.yaml_constructors.items() if tag not in _UNKNOWN_TO_JSON
}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _READ_ANEW]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(f"{_YAML}int", _INT, list("-+0123456789"))
_Loader.add_implicit_resolver(f"{_YAML}float", _FLOAT, list("-+0123456789."))


def documents(text: bytes) -> Iterator[Document | DocumentError]:
    """The documents of a text that are not empty, and an error for each that can't be used, in their order.

    What can't be parsed ends it with an error.
    """
    try:
        loader = _Loader(_with_pairs(text))
        while loader.check_node():
            found = _document(loader)
            if found is not None:
                yield found
    except yaml.MarkedYAMLError as error:
        mark, last = error.problem_mark, max(1, text.count(b"\n") + (not text.endswith(b"\n")))
        yield DocumentError(error.problem or "not YAML", min(mark.line + 1, last) if mark else None)
    except yaml.reader.ReaderError as error:
        yield DocumentError(f"not YAML: {error.reason}", text.count(b"\n", 0, error.position) + 1)
    # PyYAML's constructors raise all of these for what a tag does not fit: `!!int` of nothing is an IndexError.
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        yield DocumentError(f"not YAML: {str(error).splitlines()[0]}")


def _document(loader: _Loader) -> Document | DocumentError | None:
    node = loader.get_node()
    if node is None:
        return None
    line = node.start_mark.line + 1
    try:
        _check(node)
        value = loader.construct_document(node)
        return None if value is None else Document(orjson.loads(orjson.dumps(value)), node)
    except DocumentError as error:
        return error
    except orjson.JSONEncodeError as error:
        return DocumentError(f"can't be sent as JSON: {error}", line)


def _check(root: yaml.Node) -> None:
    """Raises DocumentError for a key that is there twice, and for what would be endless or huge without its aliases."""
    sizes: dict[int, tuple[int, int]] = {}
    around: set[int] = set()
    todo = [(root, False)]
    while todo:
        node, done = todo.pop()
        children = _children(node)
        if done:
            around.discard(id(node))
            size = 1 + sum(sizes[id(child)][0] for child in children)
            size += 0 if children else len(node.value)
            sizes[id(node)] = size, 1 + max((sizes[id(child)][1] for child in children), default=0)
        elif id(node) not in sizes:
            around.add(id(node))
            todo.append((node, True))
            todo.extend((child, False) for child in children)
            if any(id(child) in around for child in children):
                raise DocumentError("contains itself, by an alias", node.start_mark.line + 1)
            _no_key_twice(node)
    size, depth = sizes[id(root)]
    if size > LARGEST:
        raise DocumentError(f"is larger than {LARGEST >> 20} MiB without its aliases", root.start_mark.line + 1)
    if depth > _DEEPEST:
        raise DocumentError(f"is nested deeper than {_DEEPEST} levels", root.start_mark.line + 1)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _no_key_twice(node: yaml.Node) -> None:
    seen = set()
    for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
        if isinstance(key, yaml.ScalarNode):
            if key.value in seen:
                raise DocumentError(f"the key {key.value!r} is there twice", key.start_mark.line + 1)
            seen.add(key.value)


def _with_pairs(text: bytes) -> bytes:
    r"""JSON with each surrogate pair (``\ud83d\ude00``) as the character that it stands for: YAML knows no pairs."""
    if not text.lstrip().startswith((b"{", b"[")):
        return text
    return _PAIR.sub(lambda m: m[1] + bytes.fromhex((m[2] + m[3]).decode()).decode("utf-16-be").encode(), text)
