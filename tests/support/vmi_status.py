"""What became of a VirtualMachineInstance, as a schema: its status, and the state of its migration."""

from typing import Final

from structural import (
    ANYTHING,
    FLAG,
    INT32,
    INT64,
    NULLABLE_TIME,
    NUMBER,
    QUANTITY,
    TEXT,
    TIME,
    UINT32,
    Schema,
    atomic,
    fields,
    items,
    mapping,
)
from vmi_spec import CONDITIONS, PHASES

_MIGRATION_SIDE: Final[dict[str, Schema]] = {
    "node": TEXT,
    "pod": TEXT,
    "migrationUID": TEXT,
    "syncAddress": TEXT,
    "virtualMachineInstanceUID": TEXT,
}
MIGRATION_STATE: Final = fields(
    startTimestamp=NULLABLE_TIME,
    endTimestamp=NULLABLE_TIME,
    targetNodeDomainReadyTimestamp=TIME,
    targetNodeDomainDetected=FLAG,
    targetDirectMigrationNodePorts=mapping(NUMBER),
    completed=FLAG,
    failed=FLAG,
    abortRequested=FLAG,
    migrationConfiguration=ANYTHING,
    targetCPUSet=atomic(NUMBER),
    sourceState=fields(nodeSelectors=mapping(TEXT), **_MIGRATION_SIDE),
    targetState=fields(nodeAddress=TEXT, attachmentPodUID=TEXT, **_MIGRATION_SIDE),
    targetMemoryOverhead=QUANTITY,
    **dict.fromkeys(
        (
            "targetNodeAddress",
            "targetNode",
            "targetPod",
            "targetAttachmentPodUID",
            "sourceNode",
            "sourcePod",
            "abortStatus",
            "failureReason",
            "migrationUid",
            "mode",
            "migrationPolicyName",
            "targetNodeTopology",
            "migrationNetworkType",
        ),
        TEXT,
    ),
)
VMI_STATUS: Final = fields(
    phase=TEXT,
    reason=TEXT,
    nodeName=TEXT,
    conditions=CONDITIONS,
    activePods=mapping(TEXT),
    phaseTransitionTimestamps=PHASES,
    migrationState=MIGRATION_STATE,
    migrationMethod=TEXT,
    migrationTransport=TEXT,
    evacuationNodeName=TEXT,
    guestOSInfo=ANYTHING,
    interfaces=items(
        fields(
            ipAddress=TEXT,
            ipAddresses=items(TEXT),
            mac=TEXT,
            name=TEXT,
            podInterfaceName=TEXT,
            interfaceName=TEXT,
            infoSource=TEXT,
            queueCount=INT32,
            linkState=TEXT,
        )
    ),
    volumeStatus=atomic(
        fields(
            "name",
            "target",
            name=TEXT,
            target=TEXT,
            phase=TEXT,
            reason=TEXT,
            message=TEXT,
            size=INT64,
            persistentVolumeClaimInfo=ANYTHING,
            hotplugVolume=ANYTHING,
            containerDiskVolume=ANYTHING,
        )
    ),
    memory=fields(guestAtBoot=QUANTITY, guestCurrent=QUANTITY, guestRequested=QUANTITY, memoryOverhead=QUANTITY),
    currentCPUTopology=fields(cores=UINT32, sockets=UINT32, threads=UINT32),
    runtimeUser=INT64,
    qosClass=TEXT,
    launcherContainerImageVersion=TEXT,
    virtualMachineRevisionName=TEXT,
    selinuxContext=TEXT,
    fsFreezeStatus=TEXT,
    machine=fields(type=TEXT),
)
