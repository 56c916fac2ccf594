"""Kubernetes manifests from YAML and JSON files, with the line of every field."""

import os
import select
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from gpu.fields import clip, described, printable
from webhooks.documents import LARGEST, DocumentError, documents
from webhooks.lines import line_of, member

SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
STDIN: Final = Path("-")

_FOR_A_WRITER: Final = 2.0
"""Seconds after which a named pipe that nobody writes to counts as empty."""


class ManifestError(Exception):
    """A file that can't be used; its text names the file, the line where one is to blame, and what is wrong."""

    def __init__(self, file: Path, problem: str, line: int | None = None) -> None:
        self.file, self.problem, self.line = file, problem, line
        at = f", line {line}" if line else ""
        super().__init__(printable(f"{file}{at}: {problem}"))


class EmptyFileError(ManifestError):
    """A file without any document."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """An object, the file it stands in, and where its fields stand there.

    One that a cluster gave has no node, and its ``file`` is what it is called there.
    """

    obj: dict[str, Any]
    file: Path
    node: yaml.Node | None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The object's metadata; empty where it has none that can be read."""
        metadata = self.obj.get("metadata")
        return metadata if isinstance(metadata, dict) else {}

    def line(self, field_path: str = "") -> int:
        """The line, from 1, on which a field stands; that of the nearest field around it where it is not there.

        0 where there is no file.
        """
        return line_of(self.node, field_path) if self.node else 0


def read_manifests(path: Path) -> Iterator[Manifest]:
    """The objects of a file, or of every YAML and JSON file below a directory, in the order of their paths.

    Documents that are empty are passed over, lists are taken apart. Raises ManifestError at the first that is unusable.
    """
    for file in _files(path):
        for found in [file] if isinstance(file, ManifestError) else _read(file):
            if isinstance(found, Manifest):
                yield found
            elif not isinstance(found, EmptyFileError):
                raise found


def read_all(paths: Iterable[Path]) -> Iterator[Manifest | ManifestError]:
    """The objects of files and directories, and an error for each that can't be used, in their order.

    ``-`` is standard input. An empty file is an error where it is named, or where its directory holds nothing else.
    """
    for path in paths:
        found = [part for file in _files(path) for part in ([file] if isinstance(file, ManifestError) else _read(file))]
        usable = [part for part in found if not isinstance(part, EmptyFileError)]
        yield from usable or (found and [EmptyFileError(path, "holds no manifest")])


def _files(path: Path) -> Iterator[Path | ManifestError]:
    """The file itself, or every YAML and JSON file below the directory, whatever can be said against reading it."""
    if path == STDIN:
        yield path
        return
    try:
        if not stat.S_ISDIR(path.stat().st_mode):
            yield path
            return
    except OSError as error:
        yield _unreadable(path, error)
        return
    failed: list[OSError] = []
    files = [Path(folder, name) for folder, _, names in os.walk(path, onerror=failed.append) for name in names]
    yield from (_unreadable(Path(error.filename), error) for error in failed)
    files = sorted(file for file in files if file.suffix in SUFFIXES)
    if not files:
        yield EmptyFileError(path, "holds no manifest")
    for file in files:
        try:
            regular = stat.S_ISREG(file.stat().st_mode)
            yield file if regular else ManifestError(file, "is no regular file; name it itself to have it read")
        except OSError as error:
            yield _unreadable(file, error)


def _unreadable(file: Path, error: OSError) -> ManifestError:
    missing = isinstance(error, FileNotFoundError) and not file.is_symlink()
    return ManifestError(file, "no such file or directory" if missing else error.strerror or str(error))


def _read(file: Path) -> Iterator[Manifest | ManifestError]:
    empty = True
    try:
        for document in documents(_content(file)):
            empty = False
            if isinstance(document, DocumentError):
                yield ManifestError(file, document.problem, document.line)
            else:
                yield from _manifests(document.value, document.node, file)
    except ManifestError as error:
        yield error
    except OSError as error:
        yield _unreadable(file, error)
    else:
        if empty:
            yield EmptyFileError(file, "holds no manifest")


def _content(file: Path) -> bytes:
    """Raises ManifestError for a file that is too large, OSError for one that can't be read."""
    if file == STDIN:
        content = sys.stdin.buffer.read(LARGEST + 1)
    else:
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as opened:
            if stat.S_ISFIFO(os.fstat(opened.fileno()).st_mode):
                select.select([opened], [], [], _FOR_A_WRITER)
            os.set_blocking(opened.fileno(), True)
            content = opened.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ManifestError(file, f"is larger than {LARGEST >> 20} MiB: split it")
    return content


def _manifests(value: object, node: yaml.Node, file: Path) -> Iterator[Manifest | ManifestError]:
    """The object, or those of a list; a typed list's items need not say what they are."""
    line = node.start_mark.line + 1
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str) or not kind:
        yield ManifestError(file, "not a Kubernetes object: it has no kind", line)
        return
    if kind != "List" and not (kind.endswith("List") and "items" in value):
        yield Manifest(value, file, node)
        return
    items = value.get("items")
    at = member(node, "items") or (line - 1, node)
    if items is not None and not isinstance(items, list):
        yield ManifestError(file, f"items of a {clip(kind)} must be a list, not {described(items)}", at[0] + 1)
        return
    given = {"kind": kind.removesuffix("List"), "apiVersion": value.get("apiVersion")} if kind != "List" else {}
    for item, item_node in zip(items or (), at[1].value, strict=False):
        yield from _manifests({**given, **item} if isinstance(item, dict) else item, item_node, file)
