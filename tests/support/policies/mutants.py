"""Policies with one part replaced by true, by nothing or by everything."""

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from controlplane.client import Object

_CONDITION: Final = re.compile("is|has|orphans|deletes|evicts")
"""Names of variables that are true or false."""
EVERYTHING: Final[Mapping[str, Any]] = {
    "apiGroups": ["*"],
    "apiVersions": ["*"],
    "resources": ["*/*"],
    "operations": ["*"],
    "scope": "*",
}
NOTHING: Final[Mapping[str, Any]] = {**EVERYTHING, "apiGroups": ["tests.example.org"], "resources": ["nothing"]}


class Mutant(NamedTuple):
    """A policy and its binding with one part replaced; ``binding`` is None where it is left out."""

    title: str
    policy: Object
    binding: Object | None


def mutants(policy: Object, binding: Object) -> Iterator[Mutant]:
    """Every mutant of a policy, one part of it or of its binding each."""
    spec: Mapping[str, Any] = policy["spec"]
    for path, value in [*_expressions(spec), *_rules(spec)]:
        yield Mutant(f"{_name(path)} = {value!r}", _replaced(policy, ("spec", *path), value), dict(binding))
    yield Mutant("no binding", dict(policy), None)
    if "matchResources" in binding["spec"]:
        everywhere = _replaced(binding, ("spec", "matchResources"), {})
        yield Mutant("the binding selects everything", dict(policy), everywhere)


def _expressions(spec: Mapping[str, Any]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    for at, validation in enumerate(spec["validations"]):
        yield ("validations", at, "expression"), "true"
        yield ("validations", at, "expression"), "false"
        yield ("validations", at, "reason"), "Invalid"
        if "messageExpression" in validation:
            yield ("validations", at, "messageExpression"), "''"
    for at, _ in enumerate(spec.get("matchConditions") or ()):
        yield ("matchConditions", at, "expression"), "true"
        yield ("matchConditions", at, "expression"), "false"
    for at, variable in enumerate(spec.get("variables") or ()):
        for value in _neutral(variable["name"], variable["expression"]):
            yield ("variables", at, "expression"), value
    for at, _ in enumerate(spec.get("auditAnnotations") or ()):
        yield ("auditAnnotations", at, "valueExpression"), "''"


def _neutral(name: str, expression: str) -> tuple[str, ...]:
    """What can stand for a variable's expression: of its type, and empty."""
    if _CONDITION.match(name):
        return "true", "false"
    if expression.endswith(".orValue('')"):
        return ("''",)
    if expression.endswith("']"):
        return ("optional.none()",)
    if expression.startswith("dyn("):
        return ("dyn({})",)
    return ("[]",)


def _rules(spec: Mapping[str, Any]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    rules = ("matchConstraints", "resourceRules")
    yield ("matchConstraints", "resourceRules"), [EVERYTHING]
    for at, rule in enumerate(spec["matchConstraints"]["resourceRules"]):
        yield (*rules, at), NOTHING
        yield (*rules, at), EVERYTHING
        for part in ("resources", "operations"):
            for value in rule[part] if len(rule[part]) > 1 else ():
                yield (*rules, at, part), [other for other in rule[part] if other != value]
        yield (*rules, at, "operations"), ["*"]
        if rule["apiGroups"] == ["*"]:
            yield (*rules, at, "scope"), "*"
            yield (*rules, at, "resources"), ["*"]


def _replaced(obj: Object, path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    mutated: dict[str, Any] = copy.deepcopy(dict(obj))
    parent: Any = mutated
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = copy.deepcopy(value)
    return mutated


def _name(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path))
