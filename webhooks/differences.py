"""What a patch changes, for a person to read."""

import difflib
from collections.abc import Mapping
from typing import Any

import yaml

from gpu.fields import printable


class _Dumper(yaml.CSafeDumper):
    """Writes text of several lines as such, and no aliases."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        """See yaml.representer.BaseRepresenter."""
        return True


def _text(dumper: _Dumper, data: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_Dumper.add_representer(str, _text)


def difference(before: Mapping[str, Any], after: Mapping[str, Any], *, name: str) -> str:
    """A unified diff of two objects in YAML, with no control characters but line ends; empty for the same."""
    if before == after:
        return ""
    lines = difflib.unified_diff(
        _lines(before), _lines(after), fromfile=f"{name} as asked", tofile=f"{name} as admitted", lineterm=""
    )
    return "\n".join(lines)


def _lines(obj: Mapping[str, Any]) -> list[str]:
    text: str = yaml.dump(obj, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=200)
    return [printable(line) for line in text.split("\n")[:-1]]
