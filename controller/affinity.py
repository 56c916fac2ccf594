"""Where something may run: node selectors, node affinity, taints and tolerations, as the scheduler reads them.

The rules are those of k8s.io/component-helpers/scheduling/corev1 (nodeaffinity, helpers).
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from gpu import fields, names

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_REPELS: Final = frozenset({"NoSchedule", "NoExecute"})


class Requirement(NamedTuple):
    """A requirement on a node's labels, or on its name (``of_name``)."""

    key: str
    operator: str
    values: tuple[str, ...]
    of_name: bool = False


Term: TypeAlias = tuple[Requirement, ...]
"""Requirements of which a node has to meet each; one without any matches no node."""

Terms: TypeAlias = tuple[Term, ...]
"""Alternatives, of which a node has to match one."""


class Taint(NamedTuple):
    """A taint of a node."""

    key: str
    value: str
    effect: str


class Toleration(NamedTuple):
    """A toleration; an empty key or effect is any."""

    key: str
    operator: str
    value: str
    effect: str


def read_terms(selector: Mapping[str, Any], path: str) -> Terms:
    """The terms of a NodeSelector. Raises FieldError."""
    terms = fields.objects(selector, "nodeSelectorTerms", path)
    return tuple(_term(term, f"{path}.nodeSelectorTerms[{index}]") for index, term in enumerate(terms))


def _term(term: Mapping[str, Any], path: str) -> Term:
    return tuple(
        Requirement(
            key=fields.optional_text(found, "key", path) or "",
            operator=fields.optional_text(found, "operator", path) or "",
            values=fields.texts(found, "values", path),
            of_name=of_name,
        )
        for list_name, of_name in (("matchExpressions", False), ("matchFields", True))
        for found in fields.objects(term, list_name, path)
    )


def read_tolerations(spec: Mapping[str, Any], path: str) -> tuple[Toleration, ...]:
    """The tolerations of a spec. Raises FieldError."""
    return tuple(
        Toleration(
            key=fields.optional_text(found, "key", path) or "",
            operator=fields.optional_text(found, "operator", path) or "Equal",
            value=fields.optional_text(found, "value", path) or "",
            effect=fields.optional_text(found, "effect", path) or "",
        )
        for found in fields.objects(spec, "tolerations", path)
    )


def read_taints(spec: Mapping[str, Any], path: str) -> tuple[Taint, ...]:
    """The taints of a node that keep pods off it. Raises FieldError."""
    found = (
        Taint(
            key=fields.optional_text(taint, "key", path) or "",
            value=fields.optional_text(taint, "value", path) or "",
            effect=fields.optional_text(taint, "effect", path) or "",
        )
        for taint in fields.objects(spec, "taints", path)
    )
    return tuple(taint for taint in found if taint.effect in _REPELS)


def matches(terms: Terms, *, labels: Mapping[str, str], node: str) -> bool:
    """Whether a node matches one of the terms."""
    return any(term and all(_meets(requirement, labels, node) for requirement in term) for term in terms)


def _meets(requirement: Requirement, labels: Mapping[str, str], node: str) -> bool:
    key, operator, values, of_name = requirement
    if of_name:
        found = node if key == names.NODE_NAME_FIELD else None
        if operator not in {"In", "NotIn"}:
            return False
    else:
        found = labels.get(key)
    match operator:
        case "In":
            return found is not None and found in values
        case "NotIn":
            return found not in values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "Gt" | "Lt":
            return _compares(operator, found, values)
    return False


def _compares(operator: str, found: str | None, values: tuple[str, ...]) -> bool:
    if found is None or len(values) != 1 or not _INTEGER.fullmatch(found) or not _INTEGER.fullmatch(values[0]):
        return False
    mine, bound = int(found), int(values[0])
    return mine > bound if operator == "Gt" else mine < bound


def repelling(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> Taint | None:
    """The first taint that none of the tolerations tolerates."""
    tolerated = tuple(tolerations)
    return next((taint for taint in taints if not any(_tolerates(one, taint) for one in tolerated)), None)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator == "Equal" and bool(toleration.key) and toleration.value == taint.value
