"""Every group, label, annotation, finalizer and well-known object name, once."""

from typing import Final

GROUP: Final = "gpu.cozystack.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

GPU_CLASS: Final = "GPUClass"
GPU_DEVICE: Final = "GPUDevice"

DEVICE_REFERENCE: Final = f"{GROUP}/device-reference"
"""Label on a VMI: the name of the GPUDevice it uses. KubeVirt copies it to the virt-launcher pod."""

DEVICE_TEMPLATE: Final = f"{GROUP}/device-template"
"""Annotation on a VMI: the GPUDevice to build for it, as JSON."""

TEMPLATE_DEVICE: Final = f"{GROUP}/template-device"
"""Label on a GPUDevice that was built from a device-template annotation; its value is ``true``."""

TAKEN_OVER: Final = f"{GROUP}/taken-over"
"""Annotation on a template device: when another VMI last took it over, in RFC 3339.

Writing it changes the resource version, so that whoever deletes the device on what it knew before is refused.
"""

DEVICE_HELD: Final = f"{GROUP}/device-held"
"""Annotation on a VMI: the node that its device is held on for it, and since when.

virt-controller, which had been refused the pod, tries again at once when a VMI is written.
"""

RESOURCE_NAMES: Final = f"{GROUP}/resource-names"
"""Annotation on the controller's Lease: every resource name that was ever published, and not forgotten since."""

USAGE_MONITOR: Final = f"{GROUP}/usage-monitor"
"""Reserved label key: the selector of the monitor of the usage records, which must match nothing."""

USAGE: Final = "gpu-usage"
"""The WorkloadMonitor of a namespace that its usage records are under."""

MONITOR: Final = "workloads.cozystack.io/monitor"
"""Label on a Workload: the name of its WorkloadMonitor."""

CONTROLLER: Final = "gpu-controller"
"""Lease in the release's namespace: the one controller that acts."""

DEVICE_FINALIZER: Final = f"{GROUP}/device"
CLASS_FINALIZER: Final = f"{GROUP}/class-protection"

SETTINGS: Final = "gpu-settings"
"""ConfigMap in the release's namespace: the names that count as GPUs."""

RELEASED: Final = f"{GROUP}/released"
"""Annotation on the controller's Lease: the installation that let go of everything; its controllers may not hold it."""

WEBHOOKS: Final = "gpu-webhooks"
"""Both webhook configurations: sorts before KubeVirt's own, ``virt-api-mutator``, so that ours are called first."""

TENANT_POLICIES: Final = tuple(
    f"{name}.{GROUP}"
    for name in (
        "vmi-raw-names",
        "pod-raw-names",
        "vmi-reference",
        "vmi-orphan",
        "pod-reference",
        "pod-force-deletion",
        "grace-period",
        "usage-monitor",
        "claims",
        "networks",
    )
)
"""The ValidatingAdmissionPolicies on what is in tenants' namespaces; the binding of each has its name."""

CLUSTER_POLICIES: Final = tuple(
    f"{name}.{GROUP}" for name in ("device-protection", "class-protection", "class-deletion")
)
"""Those on our own kinds, everywhere."""

AUTHORITY: Final = "gpu-webhooks-ca"
"""Secret in the release's namespace: the authority that signs the serving certificates."""

AUTHORITY_TYPE: Final = f"{GROUP}/certificate-authority"
"""Type of that Secret. A type cannot change once it is stored, so nobody makes another Secret ours by mistake
(k8s.io/kubernetes/pkg/apis/core/validation, ValidateSecretUpdate)."""

BUNDLE_MANAGER: Final = "gpu-webhooks-certificates"
"""Field manager that applies the ``caBundle`` of each webhook, and nothing else."""

INJECT_CA_FROM: Final = "cert-manager.io/inject-ca-from"
"""Annotation on a webhook configuration: the Certificate (``NAMESPACE/NAME``) whose CA cert-manager's cainjector puts
into its ``caBundle`` (github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1, WantInjectAnnotation)."""

KUBEVIRT_GROUP: Final = "kubevirt.io"
KUBEVIRT_VERSION: Final = "v1"
KUBEVIRT_POOL_GROUP: Final = "pool.kubevirt.io"
VMI: Final = "VirtualMachineInstance"
VM: Final = "VirtualMachine"
REPLICA_SET: Final = "VirtualMachineInstanceReplicaSet"
POOL: Final = "VirtualMachinePool"
MIGRATION: Final = "VirtualMachineInstanceMigration"
INSTANCETYPE: Final = "VirtualMachineInstancetype"
CLUSTER_INSTANCETYPE: Final = "VirtualMachineClusterInstancetype"
PREFERENCE: Final = "VirtualMachinePreference"
CLUSTER_PREFERENCE: Final = "VirtualMachineClusterPreference"

OF_THE_CLUSTER: Final = frozenset({GPU_CLASS, CLUSTER_INSTANCETYPE, CLUSTER_PREFERENCE})
"""The kinds above that have no namespace."""

INSTANCETYPE_GROUP: Final = "instancetype.kubevirt.io"

MIGRATION_JOB: Final = "kubevirt.io/migrationJobUID"
"""Label that virt-controller puts on a migration's target pod: the uid of the migration."""

NODE_NAME_FIELD: Final = "metadata.name"
"""The only key that a node selector term's ``matchFields`` knows (k8s.io/api/core/v1, NodeSelectorTerm)."""

DELETION_FINALIZERS: Final = frozenset({"orphan", "foregroundDeletion"})
"""The garbage collector's finalizers: the API server sets them for the propagation policy of a delete."""
