"""What helm makes of the chart and its values, and which values it refuses."""

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from chartvalues import CHART
from controlplane.errors import HelmError
from controlplane.plane import ControlPlane
from controlplane.versions import NEWEST
from release import EVERYTHING, NAME, NAMESPACE, rendered

from certs import service_names

pytestmark = pytest.mark.parametrize("plane", [NEWEST], indirect=True)

URL = {"url": "https://127.0.0.1:9443"}
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
GIVEN = {"mode": "secret", "secretName": "theirs", "caBundle": PEM}
CONFIGURATIONS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
WORKLOAD = {"Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy", "ServiceMonitor", "PrometheusRule"}

REFUSED: Mapping[str, tuple[dict[str, Any], str]] = {
    "an unknown value": ({"replicas": 2}, "additional properties 'replicas' not allowed"),
    "an unknown value of a part": ({"admission": {"replica": 2}}, "additional properties 'replica' not allowed"),
    "an unknown part of the selector": (
        {"tenantNamespaceSelector": {"matchLabel": {"a": "b"}}},
        "additional properties 'matchLabel' not allowed",
    ),
    "an empty selector": ({"tenantNamespaceSelector": {"matchExpressions": []}}, "tenantNamespaceSelector"),
    "a selector of nothing": ({"tenantNamespaceSelector": None}, "missing property 'tenantNamespaceSelector'"),
    "a part that is taken out": ({"kubevirt": {"namespace": None}}, "missing property 'namespace'"),
    "an expression without an operator": (
        {"tenantNamespaceSelector": {"matchExpressions": [{"key": "a"}]}},
        "missing property 'operator'",
    ),
    "an expression without values": (
        {"tenantNamespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
        "missing property 'values'",
    ),
    "values of an expression that takes none": (
        {"tenantNamespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}},
        "matchExpressions/0/values",
    ),
    "no group of the platform": ({"platform": {"groups": []}}, "platform/groups"),
    "an http url": ({"webhooks": {"url": "http://127.0.0.1:9443"}}, "webhooks/url"),
    "a url with a query": ({"webhooks": {"url": "https://127.0.0.1?a"}}, "webhooks/url"),
    "a mode that there is not": ({"certificates": {"mode": "vault"}}, "certificates/mode"),
    "a bundle beside one's own CA": ({"certificates": {"caBundle": PEM}}, "certificates/caBundle"),
    "a bundle beside cert-manager": (
        {"certificates": {"mode": "cert-manager", "caBundle": PEM}},
        "certificates/caBundle",
    ),
    "a bundle that is no PEM": ({"certificates": {**GIVEN, "caBundle": "MIIB"}}, "certificates/caBundle"),
    "a secret without a bundle": ({"certificates": {"mode": "secret", "secretName": "a"}}, "certificates/caBundle"),
    "a secret without a name": ({"certificates": {"mode": "secret", "caBundle": PEM}}, "certificates/secretName"),
    "a secret for nobody": ({"certificates": GIVEN, "webhooks": URL}, "certificates/secretName"),
    "cert-manager for nobody": ({"certificates": {"mode": "cert-manager"}, "webhooks": URL}, "webhooks/url"),
    "an issuer without cert-manager": ({"certificates": {"issuerRef": {"name": "a"}}}, "certificates/issuerRef"),
    "an issuer without a name": (
        {"certificates": {"mode": "cert-manager", "issuerRef": {"kind": "Issuer"}}},
        "certificates/issuerRef",
    ),
    "a life that is none": ({"certificates": {"caLifetime": "1y"}}, "certificates/caLifetime"),
    "a digest that is none": ({"image": {"digest": "latest"}}, "image/digest"),
    "a port that needs a capability": ({"admission": {"port": 443}}, "admission/port"),
    "a switch in words": ({"gpus": {"enabled": "yes"}}, "gpus/enabled"),
    "two sources of one authority": ({"clientCA": {"configMapName": "a", "secretName": "b"}}, "clientCA/secretName"),
    "names of callers that nobody verifies": ({"clientCA": {"names": ["a"]}}, "clientCA/secretName"),
    "an authority for a service elsewhere": ({"clientCA": {"secretName": "a"}, "webhooks": URL}, "clientCA/secretName"),
    "a namespace that can't be": ({"kubevirt": {"namespace": "Kube Virt"}}, "kubevirt/namespace"),
}


@pytest.mark.parametrize(("values", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_values_that_cannot_be_meant_are_refused(plane: ControlPlane, values: dict[str, Any], message: str) -> None:
    with pytest.raises(HelmError) as refused:
        rendered(plane, values)

    assert message in refused.value.output


def test_helm_finds_nothing_to_say_about_the_chart(plane: ControlPlane) -> None:
    said = plane.helm("lint", "--strict", str(CHART))

    assert [line for line in said.splitlines() if "WARNING" in line or "ERROR" in line] == []


@pytest.mark.parametrize(
    "values",
    [
        {"nameOverride": "pair", "kubevirt": {"namespace": NAMESPACE}, "admission": {"priorityClassName": ""}},
        {"fullnameOverride": "a" * 50, "podDisruptionBudget": {"enabled": False}, "global": {"a": "b"}},
        {"tenantRoles": {"aggregateToDefault": False, "aggregateToCozystack": False, "classReaders": []}},
        {"tenantRoles": {"aggregateToDefault": False}, "platform": {"groups": ["a"], "users": []}},
        {"tenantRoles": {"aggregateToCozystack": False}, "image": {"tag": "v1"}},
        EVERYTHING,
        {**EVERYTHING, "webhooks": URL},
        {"webhooks": URL, "certificates": {"mode": "secret"}},
        {**EVERYTHING, "certificates": GIVEN},
        {**EVERYTHING, "certificates": {"mode": "cert-manager", "issuerRef": {"kind": "ClusterIssuer", "name": "a"}}},
    ],
)
def test_whatever_is_set_the_objects_are_whole(plane: ControlPlane, values: dict[str, Any]) -> None:
    objects = rendered(plane, values)

    identities = [(obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"]) for obj in objects]
    assert len(set(identities)) == len(identities)
    assert {kind for kind, _, _ in identities} >= {*CONFIGURATIONS, "CustomResourceDefinition", "ServiceAccount"}
    assert all(len(name) <= 63 for _, _, name in identities)
    assert all(obj["metadata"]["labels"]["app.kubernetes.io/instance"] == "gpu-webhooks" for obj in objects)


def hook(obj: Mapping[str, Any]) -> str:
    """When helm makes an object; empty for one that is part of the release."""
    return str(obj["metadata"].get("annotations", {}).get("helm.sh/hook", ""))


def test_with_gpus_switched_off_there_is_the_policy_on_the_reserved_label_and_the_hook_that_lets_go(
    plane: ControlPlane,
) -> None:
    objects = rendered(plane, {**EVERYTHING, "gpus": {"enabled": False}})

    assert {obj["metadata"]["name"] for obj in objects if not hook(obj)} == {"usage-monitor.gpu.cozystack.io"}
    assert {hook(obj) for obj in objects} == {"", "pre-upgrade"}
    assert [obj["metadata"]["name"] for obj in objects if obj["kind"] == "Job"] == ["gpu-webhooks-release"]


def test_before_an_uninstall_everything_is_let_go_of_by_who_may_take_finalizers_off(plane: ControlPlane) -> None:
    objects = [obj for obj in rendered(plane, {}) if hook(obj) == "pre-delete"]

    [job] = [obj for obj in objects if obj["kind"] == "Job"]
    pod = job["spec"]["template"]["spec"]
    assert pod["containers"][0]["args"][:2] == ["release-all", "--yes"]
    arguments = deployment(plane, {})["spec"]["template"]["spec"]["containers"][0]["args"]
    user = f"system:serviceaccount:{NAMESPACE}:{pod['serviceAccountName']}"
    assert f"--platform-user={user}" in arguments


def test_a_controller_that_is_left_out_needs_somebody_who_publishes_the_settings(plane: ControlPlane) -> None:
    with pytest.raises(HelmError, match="settingsPublishedBy"):
        rendered(plane, {"controller": {"enabled": False}})

    objects = rendered(plane, {"controller": {"enabled": False, "settingsPublishedBy": "our own"}})

    names = {obj["metadata"]["name"] for obj in objects}
    assert not {name for name in names if "controller" in name or "release" in name}


def test_the_controller_is_told_what_the_values_say(plane: ControlPlane) -> None:
    values = {"kubevirt": {"namespace": "cozy-kubevirt"}, "settings": EVERYTHING["settings"]}

    found = deployment(plane, values, part="controller")["spec"]["template"]["spec"]["containers"][0]["args"]

    told = dict(argument.removeprefix("--").split("=", 1) for argument in found[1:])
    assert [argument for argument in found if argument.startswith(("--resource-name", "--device-class"))] == [
        "--resource-name=nvidia.com/A",
        "--resource-name=amd.com/B",
        "--device-class-name=gpu.nvidia.com",
    ]
    assert (told["kubevirt-namespace"], told["namespace"]) == ("cozy-kubevirt", NAMESPACE)
    selectors = [webhook["namespaceSelector"] for webhook in webhooks(rendered(plane, values))]
    assert all(selector == json.loads(told["tenant-selector"]) for selector in selectors)


def test_a_service_outside_of_the_cluster_has_no_workload_here(plane: ControlPlane) -> None:
    def workload(values: Mapping[str, Any]) -> set[str]:
        return {obj["kind"] for obj in rendered(plane, values) if "controller" not in obj["metadata"]["name"]}

    inside, outside = workload(EVERYTHING), workload({**EVERYTHING, "webhooks": URL})

    assert inside - outside == WORKLOAD - {"ServiceMonitor"}
    assert {"ServiceAccount", "ClusterRole", "Role"} <= outside
    assert deployment(plane, {**EVERYTHING, "webhooks": URL}, part="controller")


def webhooks(objects: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for obj in objects:
        if obj["kind"] in CONFIGURATIONS:
            assert obj["metadata"]["name"] == "gpu-webhooks"
            yield from obj["webhooks"]


def test_every_webhook_is_called_as_the_rules_say(plane: ControlPlane) -> None:
    found = list(webhooks(rendered(plane, {})))

    assert len(found) == 8
    for webhook in found:
        warns = webhook["name"].startswith(("virtualmachines.", "virtualmachinepools."))
        assert (webhook["failurePolicy"], webhook["timeoutSeconds"]) == (("Ignore", 2) if warns else ("Fail", 5))
        assert webhook["sideEffects"] == "NoneOnDryRun"
        assert webhook["matchPolicy"] == "Equivalent"
        assert webhook["admissionReviewVersions"] == ["v1"]
        mutates = webhook["clientConfig"]["service"]["path"] == "/mutate"
        assert webhook.get("reinvocationPolicy") == ("IfNeeded" if mutates else None)


@pytest.mark.parametrize("values", [{}, EVERYTHING, {"webhooks": URL}])
def test_the_bundle_is_never_rendered_unless_it_is_given(plane: ControlPlane, values: dict[str, Any]) -> None:
    assert all("caBundle" not in webhook["clientConfig"] for webhook in webhooks(rendered(plane, values)))


def test_a_bundle_that_is_given_is_rendered(plane: ControlPlane) -> None:
    given = {"mode": "secret", "caBundle": PEM}
    found = list(webhooks(rendered(plane, {"webhooks": URL, "certificates": given})))

    assert {webhook["clientConfig"]["url"] for webhook in found} == {f"{URL['url']}/mutate", f"{URL['url']}/validate"}
    assert all(webhook["clientConfig"]["caBundle"] for webhook in found)


def _one(objects: list[dict[str, Any]], kind: str, name: str = NAME) -> dict[str, Any]:
    [found] = [obj for obj in objects if obj["kind"] == kind and obj["metadata"]["name"] == name]
    return found


def _rules(objects: list[dict[str, Any]]) -> set[str]:
    """The resources of the service's rights."""
    roles = [_one(objects, kind) for kind in ("ClusterRole", "Role")]
    return {resource for role in roles for rule in role["rules"] for resource in rule["resources"]}


CERTIFIED = {"secrets", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"}


def test_by_itself_the_service_has_the_rights_and_lives_of_its_ca_and_no_volume(plane: ControlPlane) -> None:
    objects = rendered(plane, {"certificates": {"caLifetime": "30d", "leafLifetime": "36h", "secretName": "mine"}})
    pod = _one(objects, "Deployment")["spec"]["template"]["spec"]
    assert _rules(objects) >= CERTIFIED
    assert {"--certificate-secret=mine", "--ca-lifetime=30d", "--leaf-lifetime=36h"} <= set(
        pod["containers"][0]["args"]
    )
    assert "volumes" not in pod
    assert all("annotations" not in _one(objects, kind)["metadata"] for kind in CONFIGURATIONS)


@pytest.mark.parametrize(
    ("certificates", "secret"),
    [(GIVEN, "theirs"), ({"mode": "cert-manager"}, f"{NAME}-tls")],
    ids=["secret", "manager"],
)
def test_a_certificate_of_others_is_mounted_and_takes_no_rights(
    plane: ControlPlane, certificates: dict[str, Any], secret: str
) -> None:
    objects = rendered(plane, {"certificates": certificates})
    pod = _one(objects, "Deployment")["spec"]["template"]["spec"]
    # Given the pair's pod, then the Secret is a volume, whose files are what is served
    [volume], [container] = pod["volumes"], pod["containers"]
    assert volume["secret"] == {"secretName": secret}
    [mount] = container["volumeMounts"]
    assert (mount["name"], mount["readOnly"]) == (volume["name"], True)
    assert "subPath" not in mount
    given = [argument for argument in container["args"] if argument.startswith("--tls-")]
    assert given == [f"--tls-cert={mount['mountPath']}/tls.crt", f"--tls-key={mount['mountPath']}/tls.key"]
    # And the service may neither read Secrets nor write configurations
    assert _rules(objects).isdisjoint(CERTIFIED)
    assert "configmaps" in _rules(objects)


def test_a_bundle_of_ones_own_stands_in_every_webhook(plane: ControlPlane) -> None:
    found = list(webhooks(rendered(plane, {"certificates": GIVEN})))
    assert {base64.b64decode(webhook["clientConfig"]["caBundle"]).decode() for webhook in found} == {PEM}


def test_cert_manager_makes_the_certificate_and_puts_its_ca_into_the_webhooks(plane: ControlPlane) -> None:
    objects = rendered(plane, {"certificates": {"mode": "cert-manager"}})
    # Given the certificate, then it is for the names that the API server asks for, in the Secret that is mounted
    leaf = _one(objects, "Certificate", f"{NAME}-tls")["spec"]
    assert leaf["dnsNames"] == service_names(NAME, NAMESPACE)
    assert leaf["secretName"] == f"{NAME}-tls"
    # And a CA of the release's own signs it, which a self-signed one signed
    issuer = _one(objects, leaf["issuerRef"]["kind"], leaf["issuerRef"]["name"])
    ca = _one(objects, "Certificate", f"{NAME}-ca")["spec"]
    assert issuer["spec"]["ca"]["secretName"] == ca["secretName"] != leaf["secretName"]
    assert ca["isCA"] is True
    assert _one(objects, "Issuer", ca["issuerRef"]["name"])["spec"] == {"selfSigned": {}}
    # And the configurations have no bundle, and say whose is to be put in
    for kind in CONFIGURATIONS:
        annotations = _one(objects, kind)["metadata"]["annotations"]
        assert annotations == {"cert-manager.io/inject-ca-from": f"{NAMESPACE}/{NAME}-tls"}
    assert all("caBundle" not in webhook["clientConfig"] for webhook in webhooks(objects))


def test_an_issuer_of_ones_own_signs_instead(plane: ControlPlane) -> None:
    reference = {"kind": "ClusterIssuer", "name": "internal"}
    objects = rendered(plane, {"certificates": {"mode": "cert-manager", "issuerRef": reference, "secretName": "other"}})
    [certificate] = [obj for obj in objects if obj["kind"] in {"Certificate", "Issuer"}]
    assert certificate["spec"]["issuerRef"] == reference
    assert certificate["spec"]["secretName"] == "other"
    volumes = _one(objects, "Deployment")["spec"]["template"]["spec"]["volumes"]
    assert volumes[0]["secret"]["secretName"] == "other"


@pytest.mark.parametrize(
    ("namespace", "kubevirt", "out"),
    [
        ("gpu-system", "kubevirt", ["gpu-system", "kube-system", "kubevirt"]),
        ("kube-system", "kube-system", ["kube-system"]),
        ("cozy-gpu", "cozy-kubevirt", ["cozy-gpu", "cozy-kubevirt", "kube-system"]),
    ],
)
def test_one_selector_is_everywhere_and_leaves_the_platforms_namespaces_out(
    plane: ControlPlane, namespace: str, kubevirt: str, out: list[str]
) -> None:
    values = {
        "kubevirt": {"namespace": kubevirt},
        "tenantNamespaceSelector": {"matchLabels": {"tenant": "true"}, "matchExpressions": []},
    }

    selectors = [webhook["namespaceSelector"] for webhook in webhooks(rendered(plane, values, namespace=namespace))]

    platform = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": out}
    assert all(found == {"matchLabels": {"tenant": "true"}, "matchExpressions": [platform]} for found in selectors)


def test_virt_controller_and_the_pair_are_who_the_values_say(plane: ControlPlane) -> None:
    values = {"kubevirt": {"namespace": "cozy-kubevirt"}, "fullnameOverride": "pair"}

    found = [
        condition["expression"]
        for webhook in webhooks(rendered(plane, values, namespace="cozy-gpu"))
        for condition in webhook["matchConditions"]
        if "username" in condition["expression"]
    ]

    assert found == [
        "request.userInfo.username == 'system:serviceaccount:cozy-kubevirt:kubevirt-controller'",
        "request.userInfo.username != 'system:serviceaccount:cozy-gpu:pair'",
    ]


def deployment(plane: ControlPlane, values: Mapping[str, Any], *, part: str = "admission") -> dict[str, Any]:
    [found] = [
        obj
        for obj in rendered(plane, values)
        if obj["kind"] == "Deployment" and obj["metadata"]["labels"]["app.kubernetes.io/component"] == part
    ]
    return found


def test_a_pod_is_given_longer_than_its_drain(plane: ControlPlane) -> None:
    pod = deployment(plane, {"admission": {"drainSeconds": 40}})["spec"]["template"]["spec"]

    assert "--drain-timeout=40" in pod["containers"][0]["args"]
    assert pod["terminationGracePeriodSeconds"] == 50


def test_who_the_platform_is_reaches_the_service_with_the_releases_own_accounts(plane: ControlPlane) -> None:
    values = {"platform": {"groups": ["a", "b"], "users": ["c"]}}

    arguments = deployment(plane, values)["spec"]["template"]["spec"]["containers"][0]["args"]

    own = [f"system:serviceaccount:{NAMESPACE}:gpu-webhooks{part}" for part in ("", "-controller", "-release")]
    assert [part for part in arguments if part.startswith("--platform")] == [
        "--platform-group=a",
        "--platform-group=b",
        *(f"--platform-user={user}" for user in ("c", *own)),
    ]


PARTS = pytest.mark.parametrize("part", ["admission", "controller"])


@PARTS
def test_no_secret_is_on_a_disk_and_nothing_can_be_written(plane: ControlPlane, part: str) -> None:
    pod = deployment(plane, EVERYTHING, part=part)["spec"]["template"]["spec"]

    assert "volumes" not in pod
    [container] = pod["containers"]
    assert "volumeMounts" not in container
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["securityContext"]["runAsUser"] == 65532


@PARTS
def test_labels_that_are_added_never_change_what_selects_the_pods(plane: ControlPlane, part: str) -> None:
    found = deployment(plane, EVERYTHING, part=part)

    labels = found["spec"]["template"]["metadata"]["labels"]
    assert labels["example.com/team"] == "b"
    assert found["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_the_doctor_that_is_told_where_may_create_nowhere_else(plane: ControlPlane) -> None:
    def creating(values: dict[str, Any]) -> list[tuple[str, str | None]]:
        return [
            (obj["kind"], obj["metadata"].get("namespace"))
            for obj in rendered(plane, values)
            if obj["metadata"]["labels"].get("app.kubernetes.io/component") == "doctor"
            and any("create" in rule["verbs"] for rule in obj.get("rules", []))
        ]

    assert creating({}) == [("ClusterRole", None)]
    assert creating({"doctor": {"tenantNamespace": "tenant-a"}}) == [("Role", "tenant-a")]
