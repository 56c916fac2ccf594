"""Where the fields of a YAML document stand."""

import re
from typing import Final

import yaml

_MERGE: Final = "tag:yaml.org,2002:merge"
_TOKEN: Final = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")


def line_of(node: yaml.Node, field_path: str) -> int:
    """The line, from 1, of the field that a path such as ``spec.gpus[0].name`` or ``metadata.labels[a.b/c]`` leads to.

    Where the document lacks the field, the line of the nearest one around it.
    """
    line: int = node.start_mark.line
    for match in _TOKEN.finditer(field_path):
        found = member(node, match[2] or match[1])
        if found is None:
            break
        line, node = found
    return line + 1


def member(node: yaml.Node, key: str) -> tuple[int, yaml.Node] | None:
    """A mapping's field or a sequence's item, with the line, from 0, on which it starts; None where there is none.

    A merged mapping (``<<``) gives what the mapping itself lacks.
    """
    if isinstance(node, yaml.SequenceNode) and key.isdecimal() and int(key) < len(node.value):
        item = node.value[int(key)]
        return item.start_mark.line, item
    if not isinstance(node, yaml.MappingNode):
        return None
    for found, value in reversed(node.value):
        if isinstance(found, yaml.ScalarNode) and found.value == key and found.tag != _MERGE:
            return found.start_mark.line, value
    merged = (value for found, value in node.value if found.tag == _MERGE)
    sources = (
        source for value in merged for source in (value.value if isinstance(value, yaml.SequenceNode) else [value])
    )
    return next((found for source in sources if (found := member(source, key))), None)
