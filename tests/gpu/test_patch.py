"""JSON patch operations, built one by one."""

from copy import deepcopy
from typing import Any

import jsonpatch
import pytest

from gpu import patch


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ((), ""),
        (("spec", "gpus", 0, "deviceName"), "/spec/gpus/0/deviceName"),
        (("a/b",), "/a~1b"),
        (("a~b",), "/a~0b"),
        (("~1",), "/~01"),
        (("",), "/"),
        (("gpus", "-"), "/gpus/-"),
    ],
)
def test_a_pointer_escapes_its_tokens(tokens: tuple[str | int, ...], expected: str) -> None:
    assert patch.pointer(*tokens) == expected


@pytest.mark.parametrize("key", ["plain", "gpu.cozystack.io/x", "a~b", "~1/~0", "", "-", "ключ"])
def test_a_pointer_leads_to_any_key(key: str) -> None:
    obj = {"labels": {key: "old", "other": "kept"}}

    patched = jsonpatch.apply_patch(obj, [patch.remove(patch.pointer("labels", key))])

    assert patched == {"labels": {"other": "kept"}}


@pytest.mark.parametrize(
    ("root", "path"),
    [
        ({}, "/a"),
        ({"a": None}, "/a"),
        ({"a": {}}, "/a/b"),
        ({"a": {"b": None}}, "/a/b"),
        ({"a": {"b": {}}}, "/a/b/c~1d"),
        ({"a": {"b": {"c/d": "old"}}}, "/a/b/c~1d"),
        ({"a": {"b": {"other": 1}, "more": 2}, "else": 3}, "/a/b/c~1d"),
    ],
    ids=["nothing", "null parent", "no child", "null child", "all parents", "another value", "neighbours"],
)
def test_put_makes_the_parents_that_are_missing_or_null(root: dict[str, Any], path: str) -> None:
    before = deepcopy(root)

    operation = patch.put(root, ("a", "b", "c/d"), "new")

    patched = jsonpatch.apply_patch(root, [operation])
    assert operation["path"] == path
    assert patched["a"]["b"]["c/d"] == "new"
    assert {**before, "a": patched["a"]} == patched
    assert root == before


def test_put_of_a_list_puts_it_whole() -> None:
    assert patch.put({"spec": {}}, ("spec", "domain", "gpus"), [1]) == {
        "op": "add",
        "path": "/spec/domain",
        "value": {"gpus": [1]},
    }
