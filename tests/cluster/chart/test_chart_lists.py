"""The chart's values that are lists, with one entry and with several."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from controlplane.plane import ControlPlane
from controlplane.versions import NEWEST
from release import rendered

pytestmark = pytest.mark.parametrize("plane", [NEWEST], indirect=True)


def _of_pods(objects: Sequence[dict[str, Any]], field: str) -> list[Any]:
    """A field of the specs of the workload's pod and of the test's, where they have it."""
    specs = [obj["spec"] for obj in objects if obj["kind"] in {"Deployment", "Pod"}]
    return [pod[field] for spec in specs if field in (pod := spec.get("template", {}).get("spec", spec))]


def _callers(objects: Sequence[dict[str, Any]]) -> list[Any]:
    """Who may call the admission port, as the values say it."""
    [policy] = [obj for obj in objects if obj["kind"] == "NetworkPolicy"]
    return [[_caller(peer) for peer in policy["spec"]["ingress"][0]["from"]]]


def _caller(peer: Mapping[str, Any]) -> Any:
    if "ipBlock" in peer:
        return peer["ipBlock"]["cidr"]
    [namespace] = peer["namespaceSelector"]["matchLabels"].values()
    return {"namespace": namespace, "labels": peer["podSelector"]["matchLabels"]}


def _readers(objects: Sequence[dict[str, Any]]) -> list[Any]:
    [binding] = [
        obj
        for obj in objects
        if obj["kind"] == "ClusterRoleBinding" and obj["metadata"]["name"].endswith("-class-reader")
    ]
    return [[subject["name"] for subject in binding["subjects"]]]


def _client_names(objects: Sequence[dict[str, Any]]) -> list[Any]:
    [arguments] = [container["args"] for [container] in _of_pods(objects, "containers") if "serve" in container["args"]]
    return [[given.partition("=")[2] for given in arguments if given.startswith("--client-name=")]]


SPREAD: list[dict[str, Any]] = [
    {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    for key in ("rack", "zone")
]
TOLERATIONS = [
    {"key": "a", "operator": "Exists"},
    {"key": "b", "operator": "Equal", "value": "c", "effect": "NoExecute"},
]
LISTS: Mapping[str, tuple[list[Any], Callable[[list[Any]], dict[str, Any]], Callable[[Any], list[Any]], int]] = {
    "tenantRoles.classReaders": (["a:b", "d'e\"f"], lambda some: {"tenantRoles": {"classReaders": some}}, _readers, 1),
    "image.pullSecrets": (
        [{"name": "a"}, {"name": "b"}],
        lambda some: {"image": {"pullSecrets": some}},
        lambda objects: _of_pods(objects, "imagePullSecrets"),
        2,
    ),
    "networkPolicy.admissionCIDRs": (
        ["10.0.0.0/8", "fd00::/8"],
        lambda some: {"networkPolicy": {"admissionCIDRs": some}},
        _callers,
        1,
    ),
    "networkPolicy.admissionPods": (
        [{"namespace": "kube-system", "labels": {"a": "b", "c": "true"}}, {"namespace": "123", "labels": {"e": "f"}}],
        lambda some: {"networkPolicy": {"admissionPods": some}},
        _callers,
        1,
    ),
    "clientCA.names": (
        ["kube-apiserver", "spiffe://a/b c"],
        lambda some: {"clientCA": {"secretName": "a", "names": some}},
        _client_names,
        1,
    ),
    "admission.tolerations": (
        TOLERATIONS,
        lambda some: {"admission": {"tolerations": some}},
        lambda objects: _of_pods(objects, "tolerations"),
        2,
    ),
    "admission.topologySpreadConstraints": (
        SPREAD,
        lambda some: {"admission": {"topologySpreadConstraints": some}},
        lambda objects: _of_pods(objects, "topologySpreadConstraints"),
        1,
    ),
}
"""Entries, values that have them, where they end up, and in how many objects."""


@pytest.mark.parametrize("entries", [1, 2], ids=["one", "several"])
@pytest.mark.parametrize("value", LISTS)
def test_a_value_that_is_a_list_works_with_one_and_with_several_entries(
    plane: ControlPlane, value: str, entries: int
) -> None:
    some, values, found_in, places = LISTS[value]
    given = some[:entries]

    alone = {"controller": {"enabled": False, "settingsPublishedBy": "others"}}
    assert found_in(rendered(plane, {**values(given), **alone})) == [given] * places
