"""What the chart's files say about each other; whatever needs helm is in tests/cluster."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml
from chartvalues import CHART, readme, values

SCHEMA: Mapping[str, Any] = json.loads((CHART / "values.schema.json").read_text())
VALUES: Mapping[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())


def test_the_readme_tells_every_value_as_it_is() -> None:
    assert (CHART / "README.md").read_text() == readme(), "write it again: python tests/support/chartvalues.py"


def test_every_value_has_a_comment() -> None:
    assert [value.name for value in values() if not value.comment] == []


def test_the_schema_has_the_values_that_there_are_and_no_other() -> None:
    assert [value.name for value in values()]
    assert sorted(_keys(VALUES, SCHEMA)) == []


def _keys(values: Mapping[str, Any], schema: Mapping[str, Any], parent: str = "") -> Iterator[str]:
    """The values that are not in the schema."""
    for key, value in values.items():
        known = schema["properties"].get(key)
        if known is None:
            yield f"{parent}{key}"
        elif "properties" in known:
            yield from _keys(value, known, f"{parent}{key}.")


def _ours(schema: Mapping[str, Any], path: str = "values") -> Iterator[tuple[str, Mapping[str, Any]]]:
    if "properties" in schema:
        yield path, schema
        for name, part in schema["properties"].items():
            yield from _ours(part, f"{path}.{name}")
    if "items" in schema:
        yield from _ours(schema["items"], f"{path}[]")


@pytest.mark.parametrize(
    ("path", "schema"), list(_ours(SCHEMA)), ids=lambda part: part if isinstance(part, str) else ""
)
def test_the_schema_is_closed_wherever_it_names_values(path: str, schema: Mapping[str, Any]) -> None:
    assert schema.get("additionalProperties") is False, path
