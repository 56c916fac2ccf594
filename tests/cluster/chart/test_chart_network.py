"""Who may call the service: the policies of both flavours, and what is refused where nobody is named."""

from collections.abc import Mapping
from typing import Any

import pytest
from controlplane.errors import HelmError
from controlplane.plane import ControlPlane
from controlplane.versions import NEWEST
from release import EVERYTHING, NAME, rendered

pytestmark = pytest.mark.parametrize("plane", [NEWEST], indirect=True)

NOBODY: Mapping[str, Any] = {"networkPolicy": {}}
"""The chart as it comes."""
WAYS = (
    *("clientCA.configMapName", "clientCA.secretName"),
    *("networkPolicy.admissionCIDRs", "networkPolicy.admissionPods"),
    *("networkPolicy.flavor=cilium", "networkPolicy.enabled=false"),
)
OF_PODS = {"key": "k8s:io.kubernetes.pod.namespace", "operator": "Exists"}
OF_NAMESPACES = "k8s:io.cilium.k8s.namespace.labels."


def policies(plane: ControlPlane, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The specs of the policies, by part."""
    found = [obj for obj in rendered(plane, values) if obj["kind"].endswith("NetworkPolicy")]
    assert len({(obj["apiVersion"], obj["kind"]) for obj in found}) <= 1
    parts = {NAME: "admission", f"{NAME}-controller": "controller"}
    return {parts[obj["metadata"]["name"]]: obj["spec"] for obj in found}


def test_where_nobody_is_named_who_may_call_the_chart_says_what_there_is_to_choose_from(plane: ControlPlane) -> None:
    with pytest.raises(HelmError) as refused:
        rendered(plane, NOBODY)

    said = refused.value.output
    assert "nothing says who may call the service. Whatever reaches its port may pose as the API server" in said
    assert [way for way in WAYS if way not in said] == []


def test_whoever_leaves_the_port_open_says_so(plane: ControlPlane) -> None:
    assert policies(plane, {"networkPolicy": {"enabled": False}}) == {}


def test_where_certificates_decide_nobody_has_to_be_named_and_any_address_may_call(plane: ControlPlane) -> None:
    found = policies(plane, {**NOBODY, "clientCA": {"secretName": "authorities"}})

    assert found.keys() == {"admission", "controller"}
    admission, metrics = found["admission"]["ingress"]
    assert admission == {"ports": [{"port": "admission", "protocol": "TCP"}]}
    assert metrics["from"] == [{"namespaceSelector": {}}]


@pytest.mark.parametrize(
    ("values", "parts"),
    [({"webhooks": {"url": "https://127.0.0.1:9443"}}, {"controller"}), ({"gpus": {"enabled": False}}, set())],
    ids=["outside", "no GPUs"],
)
def test_where_there_is_no_port_to_close_nobody_has_to_be_named(
    plane: ControlPlane, values: dict[str, Any], parts: set[str]
) -> None:
    assert policies(plane, {**NOBODY, **values}).keys() == parts


def test_those_who_are_named_reach_admission_and_monitoring_reaches_metrics(plane: ControlPlane) -> None:
    found = policies(plane, EVERYTHING)

    metrics = {
        "ports": [{"port": "plain", "protocol": "TCP"}],
        "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
    }
    agents = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "konnectivity-agent"}},
    }
    named = [{"ipBlock": {"cidr": "10.0.0.0/8"}}, {"ipBlock": {"cidr": "fd00::/8"}}, agents]
    admission = {"ports": [{"port": "admission", "protocol": "TCP"}], "from": named}
    assert found["admission"]["ingress"] == [admission, metrics]
    assert found["controller"]["ingress"] == [metrics]
    for part, spec in found.items():
        assert spec["policyTypes"] == ["Ingress"]
        assert spec["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == part


def test_cilium_is_told_of_api_servers_and_nodes_without_an_address(plane: ControlPlane) -> None:
    found = policies(plane, {"networkPolicy": {"flavor": "cilium"}})

    admission, probes, metrics = found["admission"]["ingress"]
    assert admission == {"fromEntities": ["kube-apiserver", "host", "remote-node"], **to("10250")}
    assert probes == {"fromEntities": ["host"], **to("8080")}
    assert metrics == {"fromEndpoints": [{"matchExpressions": [OF_PODS]}], **to("8080")}
    assert found["controller"]["ingress"] == [probes, metrics]
    for part, spec in found.items():
        assert spec["endpointSelector"]["matchLabels"]["app.kubernetes.io/component"] == part


def to(port: str) -> dict[str, Any]:
    return {"toPorts": [{"ports": [{"port": port, "protocol": "TCP"}]}]}


def test_cilium_has_a_rule_of_its_own_for_each_kind_of_caller_that_is_named_besides(plane: ControlPlane) -> None:
    expression = {"key": "a", "operator": "In", "values": ["b"]}
    selector = {"matchLabels": {"c": "true"}, "matchExpressions": [expression]}
    policy = {**EVERYTHING["networkPolicy"], "flavor": "cilium", "metricsNamespaceSelector": selector}
    _, addresses, agents, _, metrics = policies(plane, {"networkPolicy": policy})["admission"]["ingress"]

    assert addresses == {"fromCIDR": ["10.0.0.0/8", "fd00::/8"], **to("10250")}
    labels = {"k8s:io.kubernetes.pod.namespace": "kube-system", "k8s-app": "konnectivity-agent"}
    assert agents == {"fromEndpoints": [{"matchLabels": labels}], **to("10250")}
    selected = {
        "matchExpressions": [OF_PODS, {**expression, "key": f"{OF_NAMESPACES}a"}],
        "matchLabels": {f"{OF_NAMESPACES}c": "true"},
    }
    assert metrics == {"fromEndpoints": [selected], **to("8080")}


CIDRS = ["10.0.0.5", "0.0.0.0/0", "::/0", "10.0.0.0/129", "api.example.org/32"]
PODS: list[dict[str, Any]] = [
    {"namespace": "kube-system"},
    {"namespace": "kube-system", "labels": {}},
    {"labels": {"a": "b"}},
    {"namespace": "kube-system", "labels": {"a": "b"}, "podSelector": {}},
]


def test_what_names_nobody_or_everybody_is_refused(plane: ControlPlane) -> None:
    policy = {"flavor": "calico", "admissionCIDRs": CIDRS, "admissionPods": PODS, "admissionCIDR": "10.0.0.5/32"}
    with pytest.raises(HelmError) as refused:
        rendered(plane, {"networkPolicy": policy})

    said = refused.value.output
    assert "additional properties 'admissionCIDR' not allowed" in said
    assert "at '/networkPolicy/flavor': value must be one of" in said
    assert [number for number in range(len(CIDRS)) if f"'/networkPolicy/admissionCIDRs/{number}'" not in said] == []
    assert [number for number in range(len(PODS)) if f"/networkPolicy/admissionPods/{number}" not in said] == []
