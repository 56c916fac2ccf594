"""Who may do what by the chart's roles."""

import pytest
from actors import admin_binding
from controlplane.client import Client, ref
from release import NAMESPACE
from waiting import eventually

RBAC = "rbac.authorization.k8s.io/v1"
CONFIGURATIONS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
pytestmark = pytest.mark.usefixtures("plain_release")
SERVICE = f"system:serviceaccount:{NAMESPACE}:gpu-webhooks"


async def may(
    kube: Client, user: str, verb: str, resource: str, namespace: str = "", *, groups: tuple[str, ...] = ()
) -> bool:
    """Whether a user may do it; a resource is written plural[/subresource][.group][:name]."""
    resource, _, name = resource.partition(":")
    resource, _, group = resource.partition(".")
    plural, _, subresource = resource.partition("/")
    attributes = {
        "verb": verb,
        "resource": plural,
        "subresource": subresource,
        "group": group,
        "namespace": namespace,
        "name": name,
    }
    spec = {"user": user, "groups": list(groups), "resourceAttributes": attributes}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {}, "spec": spec}
    return bool((await kube.create(review))["status"]["allowed"])


MUTATING, VALIDATING = (f"{kind.lower()}s.admissionregistration.k8s.io" for kind in CONFIGURATIONS)
MAY = [
    *((verb, resource, "") for verb in ("get", "list", "watch") for resource in (
        "gpuclasses.gpu.cozystack.io",
        "gpudevices.gpu.cozystack.io",
        "virtualmachineinstances.kubevirt.io",
        "virtualmachineinstancemigrations.kubevirt.io",
        "pods",
        f"{MUTATING}:gpu-webhooks",
        f"{VALIDATING}:gpu-webhooks",
    )),
    ("get", "resourceclaims.resource.k8s.io", "tenant-a"),
    ("get", "resourceclaimtemplates.resource.k8s.io", "tenant-a"),
    ("create", "gpudevices.gpu.cozystack.io", "tenant-a"),
    ("patch", "gpudevices.gpu.cozystack.io", "tenant-a"),
    ("patch", f"{MUTATING}:gpu-webhooks", ""),
    ("patch", f"{VALIDATING}:gpu-webhooks", ""),
    *((verb, "configmaps:gpu-settings", NAMESPACE) for verb in ("get", "list", "watch")),
    *((verb, "secrets:gpu-webhooks-ca", NAMESPACE) for verb in ("get", "list", "watch", "update")),
    ("create", "secrets", NAMESPACE),
]  # fmt: skip
MAY_NOT = [
    *((verb, "secrets", NAMESPACE) for verb in ("get", "list", "watch", "update", "delete")),
    *((verb, "secrets:gpu-webhooks-ca", "tenant-a") for verb in ("get", "create")),
    ("get", "configmaps", NAMESPACE),
    ("update", "configmaps:gpu-settings", NAMESPACE),
    ("get", "configmaps:gpu-settings", "tenant-a"),
    ("patch", f"{MUTATING}:virt-api-mutator", ""),
    ("list", MUTATING, ""),
    *((verb, f"{VALIDATING}:gpu-webhooks", "") for verb in ("delete", "update")),
    ("create", VALIDATING, ""),
    ("delete", "gpudevices.gpu.cozystack.io", "tenant-a"),
    ("patch", "gpudevices/status.gpu.cozystack.io", "tenant-a"),
    ("patch", "gpuclasses.gpu.cozystack.io", ""),
    ("update", "virtualmachineinstances.kubevirt.io", "tenant-a"),
    *((verb, "pods", "tenant-a") for verb in ("create", "patch", "delete")),
    ("create", "pods/exec", "tenant-a"),
    ("list", "resourceclaims.resource.k8s.io", "tenant-a"),
]


async def test_the_service_may_do_what_it_does_and_no_more(kube: Client) -> None:
    assert [right for right in MAY if not await may(kube, SERVICE, *right)] == []
    assert [right for right in MAY_NOT if await may(kube, SERVICE, *right)] == []


CONTROLLER = f"{SERVICE}-controller"
CONTROLLER_MAY = [
    *((verb, resource, "") for verb in ("get", "list", "watch") for resource in (
        "gpuclasses.gpu.cozystack.io",
        "gpudevices.gpu.cozystack.io",
        "virtualmachines.kubevirt.io",
        "virtualmachineinstances.kubevirt.io",
        "virtualmachineinstancemigrations.kubevirt.io",
        "pods",
        "nodes",
        "namespaces",
        "persistentvolumeclaims",
        "persistentvolumes",
        "deviceclasses.resource.k8s.io",
        "workloads.cozystack.io",
        "workloadmonitors.cozystack.io",
    )),
    *(("patch", resource, "") for resource in (
        "gpuclasses.gpu.cozystack.io",
        "gpuclasses/status.gpu.cozystack.io",
        "gpudevices.gpu.cozystack.io",
        "gpudevices/status.gpu.cozystack.io",
        "virtualmachineinstances.kubevirt.io",
        "workloads/status.cozystack.io",
        "events.events.k8s.io",
    )),
    *((verb, resource, "tenant-a") for verb in ("create", "patch", "delete") for resource in (
        "workloads.cozystack.io",
        "workloadmonitors.cozystack.io",
    )),
    ("delete", "gpudevices.gpu.cozystack.io", "tenant-a"),
    ("delete", "pods", "tenant-a"),
    ("create", "events.events.k8s.io", "tenant-a"),
    *((verb, "configmaps:gpu-settings", NAMESPACE) for verb in ("get", "list", "watch", "patch", "delete")),
    *((verb, "leases.coordination.k8s.io:gpu-controller", NAMESPACE) for verb in ("get", "list", "watch", "patch")),
    *(("create", resource, NAMESPACE) for resource in ("configmaps", "leases.coordination.k8s.io")),
    ("get", "serviceaccounts:gpu-webhooks-controller", NAMESPACE),
]  # fmt: skip
CONTROLLER_MAY_NOT = [
    *((verb, "secrets", NAMESPACE) for verb in ("get", "list", "create")),
    ("get", "configmaps", NAMESPACE),
    ("patch", "configmaps:gpu-settings", "tenant-a"),
    ("delete", "leases.coordination.k8s.io:gpu-controller", NAMESPACE),
    ("create", "gpudevices.gpu.cozystack.io", "tenant-a"),
    *((verb, "gpuclasses.gpu.cozystack.io", "") for verb in ("create", "delete")),
    *((verb, "virtualmachineinstances.kubevirt.io", "tenant-a") for verb in ("create", "delete", "update")),
    *((verb, "virtualmachines.kubevirt.io", "tenant-a") for verb in ("patch", "delete")),
    *((verb, "pods", "tenant-a") for verb in ("create", "patch")),
    ("create", "pods/eviction", "tenant-a"),
    *((verb, "nodes", "") for verb in ("patch", "delete")),
    ("patch", f"{MUTATING}:gpu-webhooks", ""),
]


async def test_the_controller_may_do_what_it_does_and_no_more(kube: Client) -> None:
    assert [right for right in CONTROLLER_MAY if not await may(kube, CONTROLLER, *right)] == []
    assert [right for right in CONTROLLER_MAY_NOT if await may(kube, CONTROLLER, *right)] == []


DEVICES, CLASSES = "gpudevices.gpu.cozystack.io", "gpuclasses.gpu.cozystack.io"
WRITES = ("create", "update", "patch", "delete", "deletecollection")


async def bind(kube: Client, role: str) -> tuple[str, str]:
    """A namespace, and a person who has the role there."""
    namespace = f"of-{role.replace(':', '-')}"
    await kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    binding = admin_binding(namespace, f"{namespace}-user")
    binding["roleRef"]["name"] = role
    await kube.apply(binding)
    return namespace, f"{namespace}-user"


@pytest.mark.parametrize(
    ("role", "label", "writes"),
    [
        ("admin", "", True),
        ("edit", "", True),
        ("view", "", False),
        ("cozy:tenant:super-admin", "aggregate-to-tenant-super-admin", True),
        ("cozy:tenant:admin", "aggregate-to-tenant-admin", True),
        ("cozy:tenant:use", "aggregate-to-tenant-use", False),
        ("cozy:tenant:view", "aggregate-to-tenant-view", False),
    ],
)
async def test_tenants_order_or_see_by_the_role_they_have(kube: Client, role: str, label: str, *, writes: bool) -> None:
    if label:
        selector = {"matchLabels": {f"rbac.cozystack.io/{label}": "true"}}
        aggregated = {**ref(RBAC, "ClusterRole", role), "aggregationRule": {"clusterRoleSelectors": [selector]}}
        await kube.apply(aggregated)
    namespace, user = await bind(kube, role)

    await eventually(lambda: may(kube, user, "list", DEVICES, namespace))
    found = {verb: await may(kube, user, verb, DEVICES, namespace) for verb in WRITES}

    assert found == dict.fromkeys(WRITES, writes)
    assert not await may(kube, user, "list", DEVICES, "default")
    assert not await may(kube, user, "patch", "gpudevices/status.gpu.cozystack.io", namespace)
    assert await may(kube, user, "list", CLASSES, groups=("system:authenticated",))
    assert not any([await may(kube, user, verb, CLASSES, groups=("system:authenticated",)) for verb in WRITES])
