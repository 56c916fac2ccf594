"""KubeVirt's kinds as CustomResourceDefinitions of our own.

Fields, types and list types are those of kubevirt.io/api (core/v1, pool, instancetype) wherever a rule, an expression
or the controller reads; they prune what is unknown, as KubeVirt's do. What none of ours reads (probes, firmware,
clocks, rare kinds of volumes) is an object that keeps whatever it is given. Subresources are KubeVirt's: the
VirtualMachineInstance has none for its status, so that every write of its status is an update of the whole.
"""

from typing import Any, Final

from structural import (
    ANYTHING,
    EMPTY,
    FLAG,
    INT32,
    INT64,
    INT_OR_TEXT,
    NUMBER,
    QUANTITY,
    TEXT,
    TIME,
    UINT32,
    Schema,
    atomic,
    crd,
    fields,
    items,
    mapping,
)
from vmi_spec import CONDITIONS, GPU, HOST_DEVICE, NAMED, PHASES, SELECTOR, VMI_SPEC
from vmi_status import MIGRATION_STATE, VMI_STATUS

_KEPT_METADATA: Final[Schema] = {**ANYTHING, "nullable": True}
"""The metadata of a template: nullable and never pruned (core/v1 VirtualMachineInstanceTemplateSpec)."""

# What makes VMIs

_TEMPLATE: Final = fields(metadata=_KEPT_METADATA, spec=VMI_SPEC)
_MATCHER: Final = fields(
    name=TEXT, kind=TEXT, revisionName=TEXT, inferFromVolume=TEXT, inferFromVolumeFailurePolicy=TEXT
)
_MATCHED: Final = fields(
    name=TEXT,
    kind=TEXT,
    controllerRevisionRef=NAMED,
    inferFromVolume=TEXT,
    inferFromVolumeFailurePolicy=TEXT,
)
_VM_SPEC: Final = fields(
    "template",
    running=FLAG,
    runStrategy=TEXT,
    instancetype=_MATCHER,
    preference=_MATCHER,
    template=_TEMPLATE,
    dataVolumeTemplates=items(
        fields("spec", apiVersion=TEXT, kind=TEXT, metadata=_KEPT_METADATA, spec=ANYTHING, status=ANYTHING)
    ),
    updateVolumesStrategy=TEXT,
)
_VM_STATUS: Final = fields(
    created=FLAG,
    ready=FLAG,
    printableStatus=TEXT,
    conditions=CONDITIONS,
    stateChangeRequests=items(fields("action", action=TEXT, uid=TEXT, data=mapping(TEXT))),
    volumeSnapshotStatuses=items(fields("name", "enabled", name=TEXT, enabled=FLAG, reason=TEXT)),
    startFailure={
        **fields(consecutiveFailCount=NUMBER, lastFailedVMIUID=TEXT, retryAfterTimestamp=TIME),
        "nullable": True,
    },
    observedGeneration=INT64,
    desiredGeneration=INT64,
    runStrategy=TEXT,
    instancetypeRef=_MATCHED,
    preferenceRef=_MATCHED,
    volumeUpdateState=ANYTHING,
)
_REPLICAS_STATUS: Final = fields(replicas=INT32, readyReplicas=INT32, conditions=CONDITIONS, labelSelector=TEXT)
_REPLICA_SET_SPEC: Final = fields(
    "selector", "template", replicas=INT32, selector=SELECTOR, template=_TEMPLATE, paused=FLAG
)
_POOL_SPEC: Final = fields(
    "selector",
    "virtualMachineTemplate",
    replicas=INT32,
    selector=SELECTOR,
    virtualMachineTemplate=fields(metadata=_KEPT_METADATA, spec=_VM_SPEC),
    paused=FLAG,
    nameGeneration=fields(appendIndexToConfigMapRefs=FLAG, appendIndexToSecretRefs=FLAG),
    maxUnavailable=INT_OR_TEXT,
    scaleInStrategy=ANYTHING,
    updateStrategy=ANYTHING,
    autohealing=ANYTHING,
)
_POOL: Final[dict[str, Schema]] = {"spec": _POOL_SPEC, "status": _REPLICAS_STATUS}
_MIGRATION: Final[dict[str, Schema]] = {
    "spec": fields(
        vmiName=TEXT,
        addedNodeSelector=mapping(TEXT),
        sendTo=fields("migrationID", "connectURL", migrationID=TEXT, connectURL=TEXT),
        receive=fields("migrationID", migrationID=TEXT),
        priority=TEXT,
    ),
    "status": fields(
        phase=TEXT,
        conditions=CONDITIONS,
        phaseTransitionTimestamps=PHASES,
        migrationState=MIGRATION_STATE,
        synchronizationAddresses=atomic(TEXT),
    ),
}

# What they are completed with

_INSTANCETYPE: Final[dict[str, Schema]] = {
    "spec": fields(
        "cpu",
        "memory",
        nodeSelector=mapping(TEXT),
        schedulerName=TEXT,
        cpu=fields(
            "guest",
            guest=UINT32,
            model=TEXT,
            dedicatedCPUPlacement=FLAG,
            numa=fields(guestMappingPassthrough=EMPTY),
            isolateEmulatorThread=FLAG,
            realtime=fields(mask=TEXT),
            maxSockets=UINT32,
        ),
        memory=fields(
            "guest", guest=QUANTITY, hugepages=fields(pageSize=TEXT), overcommitPercent=NUMBER, maxGuest=QUANTITY
        ),
        gpus=atomic(GPU),
        hostDevices=atomic(HOST_DEVICE),
        annotations=mapping(TEXT),
        ioThreadsPolicy=TEXT,
        ioThreads=ANYTHING,
        launchSecurity=ANYTHING,
    )
}
_PREFERENCE: Final[dict[str, Schema]] = {
    "spec": fields(
        annotations=mapping(TEXT),
        preferredSubdomain=TEXT,
        preferredArchitecture=TEXT,
        preferredTerminationGracePeriodSeconds=INT64,
        preferSpreadSocketToCoreRatio=UINT32,
        **dict.fromkeys(
            ("clock", "cpu", "devices", "features", "firmware", "machine", "volumes", "requirements"), ANYTHING
        ),
    )
}

# KubeVirt itself

_PERMITTED: Final = fields(
    pciHostDevices=atomic(
        fields(
            "pciVendorSelector",
            "resourceName",
            pciVendorSelector=TEXT,
            resourceName=TEXT,
            externalResourceProvider=FLAG,
        )
    ),
    mediatedDevices=atomic(
        fields(
            "mdevNameSelector",
            "resourceName",
            mdevNameSelector=TEXT,
            resourceName=TEXT,
            externalResourceProvider=FLAG,
        )
    ),
    usb=atomic(
        fields(
            "resourceName",
            resourceName=TEXT,
            selectors=atomic(fields("product", "vendor", product=TEXT, vendor=TEXT)),
            externalResourceProvider=FLAG,
        )
    ),
)
_KUBEVIRT: Final[dict[str, Schema]] = {
    "spec": fields(
        configuration=fields(
            developerConfiguration=fields(
                featureGates=items(TEXT),
                disabledFeatureGates=items(TEXT),
                nodeSelectors=mapping(TEXT),
                useEmulation=FLAG,
                memoryOvercommit=NUMBER,
                cpuAllocationRatio=NUMBER,
                logVerbosity=ANYTHING,
            ),
            permittedHostDevices=_PERMITTED,
            mediatedDevicesConfiguration=ANYTHING,
            evictionStrategy=TEXT,
            machineType=TEXT,
            defaultRuntimeClass=TEXT,
            migrations=ANYTHING,
            vmRolloutStrategy=TEXT,
        ),
        imageTag=TEXT,
        imageRegistry=TEXT,
        imagePullPolicy=TEXT,
        infra=ANYTHING,
        workloads=ANYTHING,
        workloadUpdateStrategy=ANYTHING,
        uninstallStrategy=TEXT,
        certificateRotateStrategy=ANYTHING,
        customizeComponents=ANYTHING,
    ),
    "status": fields(
        phase=TEXT,
        conditions=CONDITIONS,
        operatorVersion=TEXT,
        observedKubeVirtVersion=TEXT,
        targetKubeVirtVersion=TEXT,
        observedGeneration=INT64,
        defaultArchitecture=TEXT,
    ),
}

CORE: Final = "kubevirt.io"
POOLS: Final = "pool.kubevirt.io"
INSTANCETYPES: Final = "instancetype.kubevirt.io"

_VMI: Final = {"spec": VMI_SPEC, "status": VMI_STATUS}

CRDS: Final[list[dict[str, Any]]] = [
    # Both versions have one shape (kubevirt.io/api core/register.go, GroupVersions).
    crd(CORE, "VirtualMachineInstance", {"v1": _VMI, "v1alpha3": _VMI}, short=["vmi", "vmis"]),
    crd(CORE, "VirtualMachine", {"v1": {"spec": _VM_SPEC, "status": _VM_STATUS}}, short=["vm", "vms"], status=True),
    crd(
        CORE,
        "VirtualMachineInstanceReplicaSet",
        {"v1": {"spec": _REPLICA_SET_SPEC, "status": _REPLICAS_STATUS}},
        short=["vmirs", "vmirss"],
        status=True,
        scale=True,
    ),
    crd(CORE, "VirtualMachineInstanceMigration", {"v1": _MIGRATION}, short=["vmim", "vmims"], status=True),
    crd(CORE, "KubeVirt", {"v1": _KUBEVIRT}, short=["kv", "kvs"], status=True),
    crd(
        POOLS,
        "VirtualMachinePool",
        {"v1beta1": _POOL, "v1alpha1": _POOL},
        short=["vmpool", "vmpools"],
        status=True,
        scale=True,
    ),
    crd(INSTANCETYPES, "VirtualMachineInstancetype", {"v1beta1": _INSTANCETYPE}),
    crd(INSTANCETYPES, "VirtualMachineClusterInstancetype", {"v1beta1": _INSTANCETYPE}, cluster=True),
    crd(INSTANCETYPES, "VirtualMachinePreference", {"v1beta1": _PREFERENCE}),
    crd(INSTANCETYPES, "VirtualMachineClusterPreference", {"v1beta1": _PREFERENCE}, cluster=True),
]
