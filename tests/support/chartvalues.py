"""The chart's values as its README tells them: ``python tests/support/chartvalues.py`` writes the table again."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

CHART: Final = Path(__file__).parent.parent.parent / "charts" / "gpu-webhooks"
BEGIN: Final = "<!-- made from values.yaml: python tests/support/chartvalues.py -->"
END: Final = "<!-- end -->"
WHOLE: Final = ("metricsNamespaceSelector", "issuerRef")
"""Values that are set as a whole."""
_KEY: Final = re.compile(r"( *)([A-Za-z]+):(?: (.*))?")


class Value(NamedTuple):
    """A value of the chart: its dotted name, what it is unless set, and the comment above it."""

    name: str
    default: Any
    comment: str


def values() -> Iterator[Value]:
    """Every value that the schema lets one set, as values.yaml has it. Raises KeyError where it has not."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    comments = _comments()
    for name in settable(json.loads((CHART / "values.schema.json").read_text())):
        default = defaults
        for key in name.split("."):
            default = default[key]
        yield Value(name, default, comments.get(name, ""))


def settable(schema: Mapping[str, Any], parents: tuple[str, ...] = ()) -> Iterator[str]:
    """The dotted names of the values that a schema describes; what is Kubernetes's own is one value."""
    for name, part in schema["properties"].items():
        if "properties" in part and name not in WHOLE:
            yield from settable(part, (*parents, name))
        elif name != "global":
            yield ".".join((*parents, name))


def _comments() -> dict[str, str]:
    found: dict[str, str] = {}
    comment: list[str] = []
    parents: list[str] = []
    for line in (CHART / "values.yaml").read_text().splitlines():
        if line.lstrip().startswith("#"):
            comment.append(line.strip().removeprefix("#").strip())
            continue
        if match := _KEY.fullmatch(line):
            parents = [*parents[: len(match[1]) // 2], match[2]]
            found.setdefault(".".join(parents), " ".join(comment))
        comment = []
    return found


def table() -> str:
    """The table of values, in Markdown."""
    rows = [f"| `{value.name}` | {value.comment} | {_default(value.default)} |" for value in values()]
    return "\n".join(["| value | what it is | unless set |", "|---|---|---|", *rows])


def readme() -> str:
    """The chart's README with the table as it should be."""
    text = (CHART / "README.md").read_text()
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


def _default(default: Any) -> str:
    return "" if default in ("", None) else f"`{json.dumps(default)}`"


if __name__ == "__main__":
    (CHART / "README.md").write_text(readme())
