"""What the notes of an install tell."""

from collections.abc import Mapping
from typing import Any

import pytest
from controlplane.client import Client, ref
from controlplane.plane import ControlPlane
from controlplane.versions import NEWEST
from release import NAMESPACE, helm

from gpu import names

pytestmark = pytest.mark.parametrize("plane", [NEWEST], indirect=True)


OF_SELECTOR = "WARNING: no namespace is a tenant's"


@pytest.fixture(autouse=True)
async def place(kube: Client) -> None:
    """The release's namespace is there: a dry run makes none."""
    await kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})


def notes(plane: ControlPlane, values: Mapping[str, Any]) -> str:
    said = helm(plane, "install", values, "--dry-run=server", "--take-ownership")
    return " ".join(said.partition("NOTES:")[2].split())


async def label(kube: Client, labels: Mapping[str, str]) -> None:
    """A namespace with these labels and no other of ours."""
    await kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "of-notes", "labels": labels}})


async def test_the_notes_warn_where_no_namespace_is_a_tenants(plane: ControlPlane, kube: Client) -> None:
    values = {"tenantNamespaceSelector": {"matchLabels": {"notes": "a"}, "matchExpressions": []}}
    await label(kube, {"notes": "b"})
    assert OF_SELECTOR in notes(plane, values)

    await label(kube, {"notes": "a"})
    said = notes(plane, values)

    assert OF_SELECTOR not in said
    assert "Tenant namespaces by the value tenantNamespaceSelector: 1." in said


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        ({"key": "a", "operator": "In", "values": ["b", "c"]}, True),
        ({"key": "a", "operator": "In", "values": ["c"]}, False),
        ({"key": "b", "operator": "In", "values": ["b"]}, False),
        ({"key": "a", "operator": "NotIn", "values": ["b"]}, False),
        ({"key": "a", "operator": "Exists"}, True),
        ({"key": "b", "operator": "Exists"}, False),
        ({"key": "a", "operator": "DoesNotExist"}, False),
    ],
)
async def test_the_notes_read_the_selector_as_the_api_server_does(
    plane: ControlPlane, kube: Client, expression: dict[str, Any], *, matches: bool
) -> None:
    await label(kube, {"selected": "by-expression", "a": "b"})
    selector = {"matchLabels": {"selected": "by-expression"}, "matchExpressions": [expression]}

    assert (OF_SELECTOR not in notes(plane, {"tenantNamespaceSelector": selector})) is matches


async def test_the_notes_tell_of_missing_settings(plane: ControlPlane, kube: Client) -> None:
    settings = {**ref("v1", "ConfigMap", names.SETTINGS, NAMESPACE), "data": {}}
    said = notes(plane, {})
    assert "WARNING: the ConfigMap gpu-settings is not in namespace gpu-system" in said
    assert "refuses all new VMIs, pods, resource claims and attachment definitions of tenants" in said
    assert "no params found for policy binding" in said

    await kube.create(settings)
    try:
        said = notes(plane, {})
        assert "ConfigMap" not in said
        assert "WARNING: the" not in said
    finally:
        await kube.delete(settings)


async def test_what_is_rendered_without_a_cluster_warns_of_nothing(plane: ControlPlane) -> None:
    said = helm(plane, "install", {"clientCA": {"configMapName": "authorities"}}, "--dry-run=client")

    assert "WARNING" not in said
    assert "ConfigMap" not in said.partition("NOTES:")[2]


CLOSED = {"admissionCIDRs": ["10.0.0.0/8"]}


@pytest.mark.parametrize(
    ("values", "warned"),
    [
        ({"networkPolicy": {**CLOSED, "enabled": False}}, True),
        ({"networkPolicy": CLOSED}, False),
        ({"clientCA": {"configMapName": "authorities"}}, False),
        ({"clientCA": {"secretName": "authorities"}}, False),
        ({"webhooks": {"url": "https://10.0.0.5:9443"}}, False),
    ],
    ids=["a policy that is off", "a policy", "a ConfigMap", "a Secret", "outside"],
)
async def test_the_notes_warn_where_any_pod_may_pose_as_the_api_server(
    plane: ControlPlane, values: dict[str, Any], *, warned: bool
) -> None:
    said = helm(plane, "install", values, "--dry-run=client").partition("NOTES:")[2]

    assert ("WARNING: whatever reaches the service's port may pose as the API server" in said) is warned
    assert ("Only who shows a certificate may call the service." in said) is ("clientCA" in values)


PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("certificates", "told"),
    [
        ({}, "Until it has put its own authority into the webhook configurations, GPU VMs are refused"),
        ({"mode": "cert-manager"}, "Its certificate is in the Secret gpu-webhooks-tls, which cert-manager makes:"),
        (
            {"mode": "secret", "secretName": "theirs", "caBundle": PEM},
            "Its certificate is in the Secret theirs, which has to be there:",
        ),
    ],
    ids=["self", "cert-manager", "secret"],
)
async def test_the_notes_tell_where_the_certificate_comes_from(
    plane: ControlPlane, certificates: dict[str, Any], told: str
) -> None:
    said = helm(plane, "install", {"certificates": certificates}, "--dry-run=client").partition("NOTES:")[2]

    assert told in " ".join(said.split())
