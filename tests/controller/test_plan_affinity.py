"""Where a VMI can run, by the scheduler's rules."""

from typing import Any

import pytest

from controller.affinity import Taint, matches, read_taints, read_terms, read_tolerations, repelling

LABELS = {"zone": "east", "cores": "64", "odd": "many"}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def named(operator: str, *values: str, key: str = "metadata.name") -> dict[str, Any]:
    return {"matchFields": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("term", "does"),
    [
        (expression("zone", "In", "west", "east"), True),
        (expression("zone", "In", "west"), False),
        (expression("rack", "In", "a"), False),
        (expression("zone", "NotIn", "west"), True),
        (expression("zone", "NotIn", "east"), False),
        (expression("rack", "NotIn", "a"), True),
        (expression("zone", "Exists"), True),
        (expression("rack", "Exists"), False),
        (expression("rack", "DoesNotExist"), True),
        (expression("zone", "DoesNotExist"), False),
        (expression("cores", "Gt", "63"), True),
        (expression("cores", "Gt", "64"), False),
        (expression("cores", "Lt", "65"), True),
        (expression("cores", "Lt", "64"), False),
        (expression("odd", "Gt", "1"), False),
        (expression("rack", "Lt", "1"), False),
        (expression("cores", "Gt", "few"), False),
        (expression("cores", "Gt", "1", "2"), False),
        (expression("zone", "Like", "east"), False),
        (named("In", "n1"), True),
        (named("In", "n2"), False),
        (named("NotIn", "n2"), True),
        (named("NotIn", "n1"), False),
        (named("Exists"), False),
        (named("In", "n1", key="metadata.uid"), False),
        ({}, False),
        ({**expression("zone", "Exists"), **named("In", "n2")}, False),
        ({**expression("zone", "Exists"), **named("In", "n1")}, True),
    ],
)
def test_a_node_matches_a_term(term: dict[str, Any], *, does: bool) -> None:
    terms = read_terms({"nodeSelectorTerms": [term]}, "affinity")

    assert matches(terms, labels=LABELS, node="n1") is does


def test_terms_are_alternatives() -> None:
    terms = read_terms({"nodeSelectorTerms": [expression("rack", "Exists"), expression("zone", "Exists")]}, "affinity")

    assert matches(terms, labels=LABELS, node="n1")


def test_no_term_matches_nothing() -> None:
    assert not matches((), labels=LABELS, node="n1")


TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "gpu", "value": "yes"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "yes"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "no"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "gpu", "operator": "Odd", "value": "yes"}, False),
    ],
)
def test_a_toleration_tolerates_a_taint(toleration: dict[str, Any], *, tolerates: bool) -> None:
    taints = read_taints({"taints": [TAINT]}, "spec")

    assert (repelling(taints, read_tolerations({"tolerations": [toleration]}, "spec")) is None) is tolerates


def test_a_preference_keeps_nothing_off() -> None:
    assert read_taints({"taints": [{**TAINT, "effect": "PreferNoSchedule"}]}, "spec") == ()


def test_the_taint_that_is_not_tolerated_is_named() -> None:
    taints = read_taints({"taints": [TAINT, {"key": "dedicated", "effect": "NoExecute"}]}, "spec")

    found = repelling(taints, read_tolerations({"tolerations": [{"key": "gpu", "operator": "Exists"}]}, "spec"))

    assert found == Taint("dedicated", "", "NoExecute")
