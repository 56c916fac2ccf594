"""Whatever a manifest holds, review and audit end with one of their statuses and print nothing but printable lines."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from webhooks.cli import main
from webhooks.manifests import read_manifests

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
INSTANCETYPE = {
    "apiVersion": "instancetype.kubevirt.io/v1beta1",
    "kind": "VirtualMachineClusterInstancetype",
    "metadata": {"name": "large"},
    "spec": {"gpus": [{"name": "g", "deviceName": "nvidia.com/L40S-24Q"}], "annotations": {"a": "b"}},
}
TEMPLATE: dict[str, Any] = {"metadata": {}, "spec": {"domain": {"devices": {}}}}
POOL = {
    "apiVersion": "pool.kubevirt.io/v1beta1",
    "kind": "VirtualMachinePool",
    "metadata": {"name": "pool"},
    "spec": {"virtualMachineTemplate": {"spec": {"instancetype": {"name": "large"}, "template": TEMPLATE}}},
}
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant-a", "labels": {}}}
MANIFESTS = [*(manifest.obj for manifest in read_manifests(EXAMPLES)), INSTANCETYPE, POOL, NAMESPACE]
EVIL = [5, -1, 10**18, 1.5, True, None, "", [], {}, [1], [None], {"a": 5}, {"": ""}, "a" * 5000]
EVIL_TEXTS = ["\x1b[31m", "\x9b", "\u202e", "x\r\n::error::y", "%0A", "[x]", "a.b/c"]
COMMANDS = [
    ["review"],
    ["review", "-o", "json"],
    ["review", "-o", "github"],
    ["review", "--operation", "UPDATE"],
    ["review", "--operation", "DELETE"],
    ["review", "--as", "system:serviceaccount:kubevirt:kubevirt-controller"],
    ["audit"],
    ["audit", "-o", "json"],
]
TOKENS = [
    "\x00",
    "\t",
    "&a ",
    "*a",
    "<<: *a\n",
    "---\n",
    "{",
    "[",
    "]",
    "!!int ",
    "!!set",
    "? ",
    "|\n",
    '"',
    "'",
    "\u2028",
]


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to everything within a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from paths(item, (*path, key))


@st.composite
def broken(draw: st.DrawFn) -> dict[str, Any]:
    """A manifest in which something is what it should not be, or has a hostile key."""
    obj: dict[str, Any] = copy.deepcopy(draw(st.sampled_from(MANIFESTS)))
    *way, last = draw(st.sampled_from(list(paths(obj))))
    parent: Any = obj
    for key in way:
        parent = parent[key]
    parent[last] = draw(st.sampled_from([*EVIL, *EVIL_TEXTS]))
    if isinstance(parent, dict) and draw(st.booleans()):
        parent[draw(st.sampled_from(EVIL_TEXTS))] = draw(st.sampled_from(EVIL_TEXTS))
    return obj


def assert_told(command: list[str], text: str) -> None:
    """The command ends well with this input."""
    result = CliRunner().invoke(main, [*command, "--catalog", str(EXAMPLES / "catalog"), "-"], input=text.encode())

    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in {0, 1, 2}
    assert all(char.isprintable() or char == "\n" for char in result.output)
    assert "(500)" not in result.output


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(objs=st.lists(broken(), min_size=1, max_size=3), escaped=st.booleans())
def test_objects_of_any_shape(command: list[str], objs: list[dict[str, Any]], escaped: bool) -> None:  # noqa: FBT001
    assert_told(command, json.dumps({"kind": "List", "items": objs}, ensure_ascii=escaped))


@settings(max_examples=150, deadline=None)
@given(
    file=st.sampled_from(sorted(EXAMPLES.rglob("*.yaml"))),
    edits=st.lists(st.tuples(st.floats(0, 1), st.sampled_from(TOKENS)), min_size=1, max_size=4),
    command=st.sampled_from(COMMANDS),
)
def test_text_of_any_shape(file: Path, edits: list[tuple[float, str]], command: list[str]) -> None:
    text = file.read_text()
    for place, token in edits:
        at = int(place * len(text))
        text = text[:at] + token + text[at:]

    assert_told(command, text)
