"""The command lines of the control plane's programs."""

from pathlib import Path
from typing import Final

import yaml
from controlplane.identity import CONFIGURATION
from controlplane.keys import PRIVATE, PUBLIC

AUDIT_LOG: Final = "audit.log"
ISSUER: Final = "https://kubernetes.default.svc"
LEFT_OUT: Final = (
    *("node-lifecycle", "taint-eviction", "device-taint-eviction", "node-ipam", "pod-garbage-collector"),
    *("cronjob", "daemonset", "statefulset", "replicationcontroller", "horizontal-pod-autoscaler"),
    *("endpoints", "endpointslice", "endpointslice-mirroring", "podgroup-protection", "ttl", "ttl-after-finished"),
    *("certificatesigningrequest-approving", "certificatesigningrequest-cleaner", "certificatesigningrequest-signing"),
    *("kube-apiserver-serving-clustertrustbundle-publisher", "podcertificaterequest-cleaner"),
    *("ephemeral-volume", "persistentvolume-attach-detach", "persistentvolume-expander"),
    *("resourcepoolstatusrequest", "storage-version-migrator", "storageversion-garbage-collector"),
    *("volumeattributesclass-protection", "legacy-serviceaccount-token-cleaner"),
)
"""Controllers that would take pods away from nodes that no kubelet stands behind, or that hand out addresses; and those
that nothing here has work for, which are half of what a controller manager takes."""
_AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


def etcd(program: Path, directory: Path, *, port: int, peer_port: int) -> list[str | Path]:
    """etcd that keeps nothing safe over a power cut, and is quick for it."""
    url, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    return [
        program,
        "--unsafe-no-fsync",
        f"--data-dir={directory}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
    ]


def apiserver(program: Path, directory: Path, *, version: str, port: int, etcd: str, audit: bool) -> list[str | Path]:
    """kube-apiserver with the authorizers and the admission that kubeadm gives it, and tokens from a file."""
    command: list[str | Path] = [
        program,
        f"--emulated-version={version}",
        f"--etcd-servers={etcd}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--cert-dir={directory / 'apiserver'}",
        f"--token-auth-file={directory / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--admission-control-config-file={directory / CONFIGURATION}",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={directory / PUBLIC}",
        f"--service-account-signing-key-file={directory / PRIVATE}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--allow-privileged=true",
    ]
    if audit:
        policy = directory / "audit-policy.yaml"
        policy.write_text(yaml.safe_dump(_AUDIT_POLICY))
        command += [f"--audit-policy-file={policy}", f"--audit-log-path={directory / AUDIT_LOG}"]
    return command


def controller_manager(program: Path, directory: Path, *, port: int, kubeconfig: Path) -> list[str | Path]:
    """kube-controller-manager whose controllers have service accounts of their own, as on clusters that people run."""
    return [
        program,
        f"--kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={directory / 'controller-manager'}",
        "--leader-elect=false",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={directory / PRIVATE}",
        f"--root-ca-file={directory / 'apiserver' / 'apiserver.crt'}",
        f"--controllers=*,{','.join(f'-{name}-controller' for name in LEFT_OUT)}",
    ]
