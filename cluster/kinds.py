"""The kinds that are read and written, and where the API server has them."""

from typing import Final, NamedTuple

from gpu import names


class Kind(NamedTuple):
    """A kind of object as the API server serves it; ``group`` is empty for the core group."""

    group: str
    version: str
    plural: str
    name: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """``apiVersion`` as it stands in a manifest."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """The resource as roles and messages name it: ``gpudevices.gpu.cozystack.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


CONFIG_MAPS: Final = Kind("", "v1", "configmaps", "ConfigMap")
SECRETS: Final = Kind("", "v1", "secrets", "Secret")
NAMESPACES: Final = Kind("", "v1", "namespaces", "Namespace", namespaced=False)
NODES: Final = Kind("", "v1", "nodes", "Node", namespaced=False)
PODS: Final = Kind("", "v1", "pods", "Pod")
SERVICE_ACCOUNTS: Final = Kind("", "v1", "serviceaccounts", "ServiceAccount")
DEPLOYMENTS: Final = Kind("apps", "v1", "deployments", "Deployment")
EVENTS: Final = Kind("events.k8s.io", "v1", "events", "Event")
LEASES: Final = Kind("coordination.k8s.io", "v1", "leases", "Lease")
RESOURCE_QUOTAS: Final = Kind("", "v1", "resourcequotas", "ResourceQuota")
RESOURCE_CLAIMS: Final = Kind("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
RESOURCE_CLAIM_TEMPLATES: Final = Kind("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate")
CRDS: Final = Kind(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
MUTATING_WEBHOOKS: Final = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
VALIDATING_WEBHOOKS: Final = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
POLICIES: Final = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)
POLICY_BINDINGS: Final = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)
GPU_CLASSES: Final = Kind(names.GROUP, names.VERSION, "gpuclasses", names.GPU_CLASS, namespaced=False)
GPU_DEVICES: Final = Kind(names.GROUP, names.VERSION, "gpudevices", names.GPU_DEVICE)
DEVICE_CLASSES: Final = Kind("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)
CLAIMS: Final = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES: Final = Kind("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
WORKLOADS: Final = Kind("cozystack.io", "v1alpha1", "workloads", "Workload")
WORKLOAD_MONITORS: Final = Kind("cozystack.io", "v1alpha1", "workloadmonitors", "WorkloadMonitor")
VMS: Final = Kind(names.KUBEVIRT_GROUP, names.KUBEVIRT_VERSION, "virtualmachines", names.VM)
VMIS: Final = Kind(names.KUBEVIRT_GROUP, names.KUBEVIRT_VERSION, "virtualmachineinstances", names.VMI)
REPLICA_SETS: Final = Kind(
    names.KUBEVIRT_GROUP, names.KUBEVIRT_VERSION, "virtualmachineinstancereplicasets", names.REPLICA_SET
)
POOLS: Final = Kind(names.KUBEVIRT_POOL_GROUP, "v1beta1", "virtualmachinepools", names.POOL)
KUBEVIRTS: Final = Kind(names.KUBEVIRT_GROUP, names.KUBEVIRT_VERSION, "kubevirts", "KubeVirt")
MIGRATIONS: Final = Kind(
    names.KUBEVIRT_GROUP, names.KUBEVIRT_VERSION, "virtualmachineinstancemigrations", names.MIGRATION
)
INSTANCETYPES: Final = (
    Kind(names.INSTANCETYPE_GROUP, "v1beta1", "virtualmachineinstancetypes", names.INSTANCETYPE),
    Kind(
        names.INSTANCETYPE_GROUP,
        "v1beta1",
        "virtualmachineclusterinstancetypes",
        names.CLUSTER_INSTANCETYPE,
        namespaced=False,
    ),
    Kind(names.INSTANCETYPE_GROUP, "v1beta1", "virtualmachinepreferences", names.PREFERENCE),
    Kind(
        names.INSTANCETYPE_GROUP,
        "v1beta1",
        "virtualmachineclusterpreferences",
        names.CLUSTER_PREFERENCE,
        namespaced=False,
    ),
)
