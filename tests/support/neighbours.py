"""Kinds of others that stand beside KubeVirt's: Multus' attachment definitions and Cozystack's usage records."""

from typing import Any, Final

from structural import FLAG, INT32, INT64, QUANTITY, TEXT, crd, fields, mapping

CRDS: Final[list[dict[str, Any]]] = [
    crd(
        "k8s.cni.cncf.io",
        "NetworkAttachmentDefinition",
        {"v1": {"spec": fields(config=TEXT)}},
        plural="network-attachment-definitions",
        short=["net-attach-def"],
    ),
    crd(
        "cozystack.io",
        "WorkloadMonitor",
        {
            "v1alpha1": {
                "spec": fields(
                    "selector",
                    selector=mapping(TEXT),
                    kind=TEXT,
                    type=TEXT,
                    version=TEXT,
                    replicas={**INT32, "minimum": 0},
                    minReplicas={**INT32, "minimum": 0},
                ),
                "status": fields(
                    operational=FLAG, availableReplicas=INT32, observedReplicas=INT32, observedGeneration=INT64
                ),
            }
        },
        status=True,
    ),
    crd(
        "cozystack.io",
        "Workload",
        {
            "v1alpha1": {
                "status": fields(
                    "kind",
                    "operational",
                    "resources",
                    kind=TEXT,
                    type=TEXT,
                    resources=mapping(QUANTITY),
                    operational=FLAG,
                )
            }
        },
        status=True,
    ),
]
