"""Kubernetes manifests from YAML and JSON files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})


class ManifestError(Exception):
    """A file that can't be used; its text names the file, the line where one is to blame, and what is wrong."""


class _Loader(yaml.CSafeLoader):
    """Reads what the Kubernetes API would be sent: dates and keys stay the strings that they are in JSON."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        """See yaml.constructor.BaseConstructor."""
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                key.tag = "tag:yaml.org,2002:str"
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def read_manifests(path: Path) -> Iterator[tuple[dict[str, Any], Path]]:
    """The objects of a file, or of every YAML and JSON file below a directory, in the order of their paths.

    Documents that are empty are passed over, lists are taken apart. Raises ManifestError.
    """
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    elif path.exists():
        files = [path]
    else:
        raise ManifestError(f"{path}: no such file or directory")
    for file in files:
        for document in _documents(file):
            yield from ((obj, file) for obj in _objects(document, file))


def _documents(file: Path) -> Iterator[object]:
    try:
        yield from yaml.load_all(file.read_bytes(), Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ManifestError(f"{file}{line}: {error.problem or 'not YAML'}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ManifestError(f"{file}: not YAML: {str(error).splitlines()[0]}") from None
    except OSError as error:
        raise ManifestError(f"{file}: {error.strerror}") from None


def _objects(document: object, file: Path) -> Iterator[dict[str, Any]]:
    if document is None:
        return
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        raise ManifestError(f"{file}: not a Kubernetes object: it has no kind")
    if document["kind"].endswith("List") and isinstance(document.get("items"), list):
        for item in document["items"]:
            yield from _objects(item, file)
        return
    yield document
