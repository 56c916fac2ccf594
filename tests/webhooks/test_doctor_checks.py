"""What the doctor says of what was found in a cluster."""

import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from certs import Authority
from cluster import kinds
from cluster.errors import ApiError, Unreachable
from gpu import names
from gpu.gpuclass import GPUClass
from webhooks.doctor import FAILURE, OK, WARNING, Evidence, Finding, diagnose

NOW = datetime(2026, 5, 1, tzinfo=UTC)
H200 = "nvidia.com/GH100_H200_SXM_141GB"
Obj = dict[str, Any]
MUTATING, VALIDATING = kinds.MUTATING_WEBHOOKS.name, kinds.VALIDATING_WEBHOOKS.name


def bundle(*, lifetime: timedelta = timedelta(days=365), now: datetime = NOW) -> str:
    authority = Authority.create(common_name="test", now=now, lifetime=lifetime)
    return base64.b64encode(authority.certificate_pem).decode()


TENANTS: dict[str, Any] = {"matchExpressions": [{"key": "namespace.cozystack.io/host", "operator": "Exists"}]}
OF_TENANTS, OF_CLUSTER = names.TENANT_POLICIES[0], names.CLUSTER_POLICIES[0]


def policies(changed: str = "", **spec: Any) -> dict[str, Obj]:
    """Every policy, one of them changed."""
    found = {name: {"failurePolicy": "Fail"} for name in (*names.TENANT_POLICIES, *names.CLUSTER_POLICIES)}
    return {name: {"spec": {**has, **(spec if name == changed else {})}} for name, has in found.items()}


def bindings(changed: str = "", **spec: Any) -> dict[str, Obj]:
    """The binding of each, one of them changed; as the API server gives them back."""
    found: dict[str, Obj] = {}
    for name in policies():
        found[name] = {"policyName": name, "validationActions": ["Deny"]}
        if name in names.TENANT_POLICIES:
            found[name]["matchResources"] = {"namespaceSelector": TENANTS, "objectSelector": {}}
    return {name: {"spec": {**has, **(spec if name == changed else {})}} for name, has in found.items()}


def but(name: str, found: dict[str, Obj]) -> dict[str, Obj]:
    return {other: obj for other, obj in found.items() if other != name}


def configuration(*, ca_bundle: str | None = None, selector: dict[str, Any] | None = None) -> dict[str, Any]:
    config = {"caBundle": bundle() if ca_bundle is None else ca_bundle}
    chosen = selector or TENANTS
    return {"webhooks": [{"name": "vmi.gpu.cozystack.io", "clientConfig": config, "namespaceSelector": chosen}]}


def gpu_class(**spec: Any) -> GPUClass:
    source = {"devicePlugin": {"resourceName": H200, "nodeSelector": {"gpu": "h200"}}}
    given = {"vendor": "nvidia", "model": "H200", "mode": "Passthrough", "memory": "141Gi", "maxCount": 8}
    return GPUClass.from_dict({"metadata": {"name": "h200"}, "spec": {**given, "source": source, **spec}})


def refused(message: str, code: int = 403) -> ApiError:
    return ApiError({"code": code, "reason": "Forbidden", "message": message}, asked="post virtualmachineinstances")


def kubevirt(**configuration: Any) -> dict[str, Any]:
    return {"spec": {"configuration": {"developerConfiguration": {"featureGates": ["HostDevices"]}, **configuration}}}


def node(*, allocatable: Any = "8", **labels: str) -> dict[str, Any]:
    return {"metadata": {"labels": labels or {"gpu": "h200"}}, "status": {"allocatable": {H200: allocatable}}}


BY_POLICY = (
    f"ValidatingAdmissionPolicy 'vmi-raw-names.{names.GROUP}' with binding 'vmi-raw-names.{names.GROUP}' denied "
    f"request: spec.domain.devices.hostDevices: asks for {H200} by its raw name"
)
BY_WEBHOOK = f'admission webhook "vmi.{names.GROUP}" denied the request: hostDevices[0]: asks for {H200}'


def healthy() -> Evidence:
    granted = {
        "metadata": {"name": "x", "labels": {names.DEVICE_REFERENCE: "x-1"}},
        "spec": {"domain": {"devices": {"gpus": [{"name": "gpu-0", "deviceName": H200}]}}},
    }
    deployment = {"metadata": {"name": "gpu-webhooks"}, "spec": {"replicas": 2}, "status": {"readyReplicas": 2}}
    return Evidence(
        version={"major": "1", "minor": "37", "gitVersion": "v1.37.2"},
        release="gpu-system",
        webhooks={MUTATING: configuration(), VALIDATING: configuration()},
        policies=policies(),
        bindings=bindings(),
        deployments=[deployment],
        settings={"data": {"resourceNames": H200}},
        classes=[gpu_class()],
        tenants=["tenant-a"],
        nodes=[node()],
        kubevirts=[kubevirt()],
        virt_controller={"metadata": {"name": "kubevirt-controller"}},
        probed=gpu_class(),
        probed_in="tenant-a",
        rewritten=granted,
        raw=refused(BY_POLICY),
    )


def ill(**changes: Any) -> list[Finding]:
    """What is said beyond what is said of a healthy cluster."""
    return [one for one in diagnose(replace(healthy(), **changes), now=NOW) if one.level != OK]


def test_a_healthy_cluster_has_nothing_to_mend() -> None:
    findings = diagnose(healthy(), now=NOW)

    assert {finding.level for finding in findings} == {OK}
    assert len(findings) >= 12


EMPTY_DEPLOYMENT = {"metadata": {"name": "gpu-webhooks"}, "spec": {"replicas": 2}, "status": {}}
HALF_A_DEPLOYMENT = {**EMPTY_DEPLOYMENT, "status": {"readyReplicas": 1}}
OTHERS = {"namespaceSelector": {"matchLabels": {"a": "b"}}}
PERMITTED = {"pciHostDevices": [{"resourceName": "nvidia.com/OTHER"}]}
AS_SENT = {"metadata": {"name": "x"}, "spec": {"domain": {"devices": {}}}}
EXPIRED = bundle(now=NOW - timedelta(days=10), lifetime=timedelta(days=9))
OLD = {"major": "1", "minor": "33+", "gitVersion": "v1.33.1"}


@pytest.mark.parametrize(
    ("changes", "level", "subject", "seen"),
    [
        ({"version": OLD}, FAILURE, "Kubernetes", "v1.33.1"),
        ({"missing": [kinds.GPU_DEVICES]}, FAILURE, "kinds", "gpudevices.gpu.cozystack.io is not served"),
        ({"missing": [kinds.VMIS]}, FAILURE, "kinds", "virtualmachineinstances.kubevirt.io is not served"),
        ({"webhooks": {MUTATING: configuration(), VALIDATING: None}}, FAILURE, "webhooks", "nothing is checked"),
        (
            {"webhooks": {MUTATING: configuration(), VALIDATING: configuration(selector={"matchLabels": {"a": "b"}})}},
            FAILURE,
            "webhooks",
            "do not all select the same namespaces",
        ),
        (
            {"webhooks": {MUTATING: configuration(), VALIDATING: configuration(ca_bundle="")}},
            FAILURE,
            "caBundle",
            "vmi.gpu.cozystack.io: the caBundle is not injected",
        ),
        (
            {"webhooks": {MUTATING: configuration(ca_bundle="bm9uZQ=="), VALIDATING: configuration()}},
            FAILURE,
            "caBundle",
            "can't be read",
        ),
        (
            {"webhooks": {MUTATING: configuration(ca_bundle=EXPIRED), VALIDATING: configuration()}},
            FAILURE,
            "caBundle",
            "expired at 2026-04-30",
        ),
        (
            {"webhooks": {MUTATING: configuration(ca_bundle=bundle(lifetime=timedelta(days=2)))}},
            WARNING,
            "caBundle",
            "ends at 2026-05-03",
        ),
        ({"policies": but(OF_TENANTS, policies())}, FAILURE, OF_TENANTS, "there is no ValidatingAdmissionPolicy"),
        (
            {"bindings": but(OF_CLUSTER, bindings())},
            FAILURE,
            OF_CLUSTER,
            "there is no ValidatingAdmissionPolicyBinding",
        ),
        ({"policies": policies(OF_CLUSTER, failurePolicy="Ignore")}, FAILURE, OF_CLUSTER, "failurePolicy is Ignore"),
        ({"bindings": bindings(OF_TENANTS, validationActions=["Warn", "Audit"])}, FAILURE, OF_TENANTS, "Warn, Audit"),
        ({"bindings": bindings(OF_TENANTS, policyName="other")}, FAILURE, OF_TENANTS, "is of the policy other"),
        ({"bindings": bindings(OF_TENANTS, matchResources=None)}, FAILURE, OF_TENANTS, "other namespaces"),
        ({"bindings": bindings(OF_TENANTS, matchResources=OTHERS)}, FAILURE, OF_TENANTS, "other namespaces"),
        ({"bindings": bindings(OF_CLUSTER, matchResources=OTHERS)}, FAILURE, OF_CLUSTER, "other namespaces"),
        ({"deployments": [EMPTY_DEPLOYMENT]}, FAILURE, "Deployment gpu-webhooks", "0 of 2 replicas are ready"),
        ({"deployments": [HALF_A_DEPLOYMENT]}, WARNING, "Deployment gpu-webhooks", "1 of 2 replicas are ready"),
        ({"tenants": [], "probed": None}, WARNING, "tenants", "no namespace matches"),
        ({"classes": []}, WARNING, "classes", "no GPUClass is offered"),
        ({"broken": {"x": "spec.mode: is required"}}, FAILURE, "GPUClass x", "spec.mode: is required"),
        ({"settings": None}, FAILURE, "ConfigMap gpu-settings", "is not there in gpu-system: no device is held"),
        ({"settings": None}, FAILURE, "ConfigMap gpu-settings", "refuse every new VMI, pod and claim of tenants"),
        ({"settings": None}, FAILURE, "ConfigMap gpu-settings", "'no params found for policy binding'"),
        ({"settings": {"data": {}}}, FAILURE, "ConfigMap gpu-settings", f"lacks {H200}"),
        ({"settings": {"data": []}}, FAILURE, "ConfigMap gpu-settings", "data"),
        ({"nodes": [node(gpu="other")]}, WARNING, "GPUClass h200", "no node"),
        ({"nodes": [node(allocatable="0")]}, WARNING, "GPUClass h200", "no node"),
        ({"nodes": [node(allocatable="many")]}, WARNING, "GPUClass h200", "no node"),
        ({"kubevirts": []}, WARNING, "KubeVirt", "there is no KubeVirt object"),
        ({"kubevirts": [{"spec": {}}]}, WARNING, "KubeVirt", "neither the feature gate"),
        ({"kubevirts": [kubevirt(permittedHostDevices=PERMITTED)]}, FAILURE, "GPUClass h200", f"lacks {H200}"),
        ({"virt_controller": None}, WARNING, "virt-controller", "no service account"),
        ({"rewritten": AS_SENT}, FAILURE, "dry run with a template in tenant-a", "the pair was not asked"),
        ({"rewritten": refused("quota")}, FAILURE, "dry run with a template in tenant-a", "was refused: post"),
        ({"rewritten": Unreachable("late")}, FAILURE, "dry run with a template in tenant-a", "late"),
        (
            {"rewritten": refused('User "x" cannot create resource "virtualmachineinstances"')},
            WARNING,
            "dry run with a template in tenant-a",
            "cannot create",
        ),
        ({"raw": AS_SENT}, FAILURE, "dry run with a raw name in tenant-a", "was let in"),
        ({"raw": refused("a disk is missing")}, FAILURE, "dry run with a raw name in tenant-a", "not as a raw name"),
        (
            {"raw": refused('User "x" cannot create resource "virtualmachineinstances"')},
            WARNING,
            "dry run with a raw name in tenant-a",
            "cannot create",
        ),
        ({"unread": {"nodes": "forbidden"}, "nodes": []}, WARNING, "nodes", "could not be read: forbidden"),
    ],
)
def test_what_is_amiss_is_said_with_what_to_do(changes: dict[str, Any], level: str, subject: str, seen: str) -> None:
    findings = ill(**changes)

    matching = [one for one in findings if (one.level, one.subject) == (level, subject) and seen in one.seen]
    assert len(matching) == 1, findings
    assert matching[0].todo


POST = 'failed to call webhook: Post "https://gpu-webhooks.gpu-system.svc:443/mutate?timeout=5s": '


@pytest.mark.parametrize("probe", ["rewritten", "raw"])
@pytest.mark.parametrize(
    ("ended", "unreached"),
    [
        ("context deadline exceeded", True),
        ("dial tcp 10.96.0.7:443: i/o timeout", True),
        ("dial tcp 10.96.0.7:443: connect: connection timed out", True),
        ("dial tcp 10.96.0.7:443: connect: no route to host", True),
        ("dial tcp 10.96.0.7:443: connect: connection refused", True),
        ("tls: failed to verify certificate: x509: certificate signed by unknown authority", False),
    ],
)
def test_an_api_server_that_does_not_reach_the_service_is_told_of_network_policies(
    probe: str, ended: str, *, unreached: bool
) -> None:
    message = f'Internal error occurred: failed calling webhook "virtualmachineinstances.{names.GROUP}": {POST}{ended}'

    [finding] = ill(**{probe: refused(message, code=500)})

    assert (finding.level, ended in finding.seen) == (FAILURE, True)
    assert ("networkPolicy.admissionCIDRs" in finding.todo) is unreached


def test_that_another_webhook_is_not_reached_is_not_laid_on_the_network_policy_of_ours() -> None:
    post = (
        'failed to call webhook: Post "https://virt-api.kubevirt.svc:443/mutate": dial tcp: connect: connection refused'
    )
    message = f'Internal error occurred: failed calling webhook "virtualmachineinstances-mutator.kubevirt.io": {post}'

    [finding] = ill(rewritten=refused(message, code=500))

    assert "networkPolicy.admissionCIDRs" not in finding.todo


@pytest.mark.parametrize(
    ("message", "by"),
    [
        (BY_POLICY, f"was refused by the policy vmi-raw-names.{names.GROUP}"),
        (BY_WEBHOOK, f"was refused by the webhook vmi.{names.GROUP}"),
        (f"no {H200} for you", "was refused"),
    ],
)
def test_who_refused_a_raw_name_is_said(message: str, by: str) -> None:
    found = diagnose(replace(healthy(), raw=refused(message)), now=NOW)

    [raw] = [one for one in found if one.subject == "dry run with a raw name in tenant-a"]
    assert (raw.level, raw.seen) == (OK, by)


def test_policies_are_held_against_the_webhooks_selector_only_where_there_are_webhooks() -> None:
    found = ill(webhooks={MUTATING: None, VALIDATING: None}, probed=None)

    assert {one.subject for one in found} == {"webhooks"}


@pytest.mark.parametrize(
    "name", ["missing", "webhooks", "policies", "tenants", "classes", "settings", "nodes", "kubevirts"]
)
def test_what_could_not_be_read_is_not_said_to_be_missing(name: str) -> None:
    nothing: Any = {"webhooks": {}, "policies": {}, "settings": None}.get(name, [])

    findings = ill(**{name: nothing, "unread": {name: "forbidden"}, "probed": None})

    assert [(one.level, one.subject) for one in findings] == [(WARNING, name)]


@pytest.mark.parametrize(
    "ca_bundle", ["", EXPIRED, bundle(lifetime=timedelta(days=2))], ids=["none", "expired", "soon"]
)
def test_where_cert_manager_fills_the_bundle_it_is_its_certificate_that_is_to_be_looked_at(ca_bundle: str) -> None:
    injected = {"metadata": {"annotations": {"cert-manager.io/inject-ca-from": "gpu-system/gpu-webhooks-tls"}}}
    lacking, whole = configuration(ca_bundle=ca_bundle), configuration()

    [said] = ill(webhooks={MUTATING: {**lacking, **injected}, VALIDATING: {**whole, **injected}})
    [otherwise] = ill(webhooks={MUTATING: lacking, VALIDATING: whole})

    assert (said.subject, said.level, said.seen) == (otherwise.subject, otherwise.level, otherwise.seen)
    assert "cainjector" in said.todo
    assert "kubectl -n gpu-system describe certificate gpu-webhooks-tls" in said.todo
    assert "the service" not in said.todo
    assert "cainjector" not in otherwise.todo
