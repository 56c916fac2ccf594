"""What a VirtualMachineInstance asks for, as a schema: its spec, and the parts that other kinds share with it."""

from typing import Final

from structural import (
    ANYTHING,
    EMPTY,
    FLAG,
    INT32,
    INT64,
    NULLABLE_TIME,
    NUMBER,
    QUANTITY,
    TEXT,
    UINT32,
    Schema,
    atomic,
    fields,
    items,
    keyed,
    mapping,
)

NAMED: Final = fields(name=TEXT)
CONDITIONS: Final = items(
    fields(
        "type",
        "status",
        type=TEXT,
        status=TEXT,
        reason=TEXT,
        message=TEXT,
        lastProbeTime=NULLABLE_TIME,
        lastTransitionTime=NULLABLE_TIME,
    )
)
PHASES: Final = atomic(fields(phase=TEXT, phaseTransitionTimestamp=NULLABLE_TIME))
SELECTOR: Final = fields(
    matchLabels=mapping(TEXT),
    matchExpressions=items(fields("key", "operator", key=TEXT, operator=TEXT, values=items(TEXT))),
)

_CLAIM: Final[dict[str, Schema]] = {"claimName": TEXT, "requestName": TEXT}
GPU: Final = fields(
    "name",
    name=TEXT,
    deviceName=TEXT,
    tag=TEXT,
    virtualGPUOptions=fields(display=fields(enabled=FLAG, ramFB=fields(enabled=FLAG))),
    **_CLAIM,
)
HOST_DEVICE: Final = fields("name", name=TEXT, deviceName=TEXT, tag=TEXT, **_CLAIM)
_DISK_TARGET: Final = fields(bus=TEXT, readonly=FLAG, pciAddress=TEXT)
_DISK: Final = fields(
    "name",
    name=TEXT,
    disk=_DISK_TARGET,
    lun=fields(bus=TEXT, readonly=FLAG, reservation=FLAG),
    cdrom=fields(bus=TEXT, readonly=FLAG, tray=TEXT),
    bootOrder=NUMBER,
    serial=TEXT,
    dedicatedIOThread=FLAG,
    cache=TEXT,
    io=TEXT,
    tag=TEXT,
    blockSize=ANYTHING,
    shareable=FLAG,
    errorPolicy=TEXT,
    changedBlockTracking=FLAG,
)
_INTERFACE: Final = fields(
    "name",
    name=TEXT,
    model=TEXT,
    bridge=EMPTY,
    slirp=EMPTY,
    masquerade=EMPTY,
    sriov=EMPTY,
    macvtap=EMPTY,
    passt=EMPTY,
    passtBinding=EMPTY,
    binding=fields("name", name=TEXT),
    ports=items(fields("port", name=TEXT, protocol=TEXT, port=INT32)),
    macAddress=TEXT,
    bootOrder=NUMBER,
    pciAddress=TEXT,
    dhcpOptions=ANYTHING,
    tag=TEXT,
    acpiIndex=NUMBER,
    state=TEXT,
)
_DEVICES: Final = fields(
    gpus=atomic(GPU),
    hostDevices=atomic(HOST_DEVICE),
    filesystems=atomic(fields("name", "virtiofs", name=TEXT, virtiofs=EMPTY)),
    disks={**items(_DISK), "maxItems": 256},
    interfaces={**items(_INTERFACE), "maxItems": 256},
    inputs=items(fields("name", "type", name=TEXT, type=TEXT, bus=TEXT)),
    panicDevices=items(fields(model=TEXT)),
    **dict.fromkeys(
        (
            "useVirtioTransitional",
            "disableHotplug",
            "autoattachPodInterface",
            "autoattachGraphicsDevice",
            "autoattachSerialConsole",
            "logSerialConsole",
            "autoattachMemBalloon",
            "autoattachInputDevice",
            "autoattachVSOCK",
            "blockMultiQueue",
            "networkInterfaceMultiqueue",
        ),
        FLAG,
    ),
    **dict.fromkeys(("watchdog", "rng", "downwardMetrics", "clientPassthrough", "sound", "tpm", "video"), ANYTHING),
)
_CPU: Final = fields(
    cores=UINT32,
    sockets=UINT32,
    maxSockets=UINT32,
    threads=UINT32,
    model=TEXT,
    features=items(fields("name", name=TEXT, policy=TEXT)),
    dedicatedCpuPlacement=FLAG,
    numa=fields(guestMappingPassthrough=EMPTY),
    isolateEmulatorThread=FLAG,
    realtime=fields(mask=TEXT),
)
_DOMAIN: Final = fields(
    "devices",
    devices=_DEVICES,
    resources=fields(requests=mapping(QUANTITY), limits=mapping(QUANTITY), overcommitGuestOverhead=FLAG),
    memory=fields(guest=QUANTITY, maxGuest=QUANTITY, hugepages=fields(pageSize=TEXT), reservedOverhead=ANYTHING),
    cpu=_CPU,
    machine=fields(type=TEXT),
    ioThreadsPolicy=TEXT,
    rebootPolicy=TEXT,
    **dict.fromkeys(("firmware", "clock", "features", "ioThreads", "chassis", "launchSecurity"), ANYTHING),
)
_CLOUD_INIT: Final = fields(
    userData=TEXT,
    userDataBase64=TEXT,
    networkData=TEXT,
    networkDataBase64=TEXT,
    secretRef=NAMED,
    networkDataSecretRef=NAMED,
)
_VOLUME: Final = fields(
    "name",
    name=TEXT,
    persistentVolumeClaim=fields("claimName", claimName=TEXT, readOnly=FLAG, hotpluggable=FLAG),
    dataVolume=fields("name", name=TEXT, hotpluggable=FLAG),
    containerDisk=fields("image", image=TEXT, imagePullSecret=TEXT, path=TEXT, imagePullPolicy=TEXT),
    emptyDisk=fields("capacity", capacity=QUANTITY),
    ephemeral=fields(persistentVolumeClaim=fields("claimName", claimName=TEXT, readOnly=FLAG)),
    cloudInitNoCloud=_CLOUD_INIT,
    cloudInitConfigDrive=_CLOUD_INIT,
    **dict.fromkeys(
        (
            "hostDisk",
            "sysprep",
            "configMap",
            "secret",
            "downwardAPI",
            "serviceAccount",
            "downwardMetrics",
            "memoryDump",
            "containerPath",
        ),
        ANYTHING,
    ),
)
_NETWORK: Final = fields(
    "name",
    name=TEXT,
    pod=fields(vmNetworkCIDR=TEXT, vmIPv6NetworkCIDR=TEXT),
    multus=fields("networkName", networkName=TEXT, default=FLAG),
    resourceClaim=fields(**_CLAIM),
)

_TERM: Final = fields(
    matchExpressions=items(fields("key", "operator", key=TEXT, operator=TEXT, values=items(TEXT))),
    matchFields=items(fields("key", "operator", key=TEXT, operator=TEXT, values=items(TEXT))),
)
_NODE_AFFINITY: Final = fields(
    requiredDuringSchedulingIgnoredDuringExecution=fields("nodeSelectorTerms", nodeSelectorTerms=items(_TERM)),
    preferredDuringSchedulingIgnoredDuringExecution=items(
        fields("preference", "weight", preference=_TERM, weight=INT32)
    ),
)
_TOLERATION: Final = fields(key=TEXT, operator=TEXT, value=TEXT, effect=TEXT, tolerationSeconds=INT64)

VMI_SPEC: Final = fields(
    "domain",
    domain=_DOMAIN,
    volumes={**items(_VOLUME), "maxItems": 256},
    networks={**items(_NETWORK), "maxItems": 256},
    resourceClaims=keyed(fields("name", name=TEXT, resourceClaimName=TEXT, resourceClaimTemplateName=TEXT), "name"),
    nodeSelector=mapping(TEXT),
    affinity=fields(nodeAffinity=_NODE_AFFINITY, podAffinity=ANYTHING, podAntiAffinity=ANYTHING),
    tolerations=items(_TOLERATION),
    topologySpreadConstraints=keyed(
        fields(
            "maxSkew",
            "topologyKey",
            "whenUnsatisfiable",
            maxSkew=INT32,
            topologyKey=TEXT,
            whenUnsatisfiable=TEXT,
            labelSelector=SELECTOR,
        ),
        "topologyKey",
        "whenUnsatisfiable",
    ),
    utilityVolumes=keyed(fields("name", "claimName", name=TEXT, claimName=TEXT, type=TEXT), "name"),
    accessCredentials=atomic(ANYTHING),
    terminationGracePeriodSeconds=INT64,
    **dict.fromkeys(
        (
            "priorityClassName",
            "schedulerName",
            "evictionStrategy",
            "startStrategy",
            "hostname",
            "subdomain",
            "dnsPolicy",
            "architecture",
        ),
        TEXT,
    ),
    **dict.fromkeys(("livenessProbe", "readinessProbe", "dnsConfig"), ANYTHING),
)
