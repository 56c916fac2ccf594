"""Who the API server is to the webhooks that it calls: it shows each of them a client certificate."""

from pathlib import Path
from typing import Final

import yaml
from identities import Issuer

NAME: Final = "kube-apiserver"
CONFIGURATION: Final = "admission.yaml"
AUTHORITY: Final = "client-ca.crt"
_PLUGINS: Final = ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")


def write_identity(directory: Path) -> None:
    """Write its certificate for NAME, the AUTHORITY's own that it is of, and the CONFIGURATION that has it shown.

    As docs/client-certificates.md tells it.
    """
    issuer = Issuer()
    identity = issuer.identity(NAME)
    certificate, key = directory / "webhooks.crt", directory / "webhooks.key"
    (directory / AUTHORITY).write_bytes(issuer.pem)
    certificate.write_bytes(identity.certificate)
    key.touch(mode=0o600)
    key.write_bytes(identity.key)
    kubeconfig = directory / "webhooks.kubeconfig"
    shown = {"client-certificate": str(certificate), "client-key": str(key)}
    users = [{"name": "*", "user": shown}]
    kubeconfig.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "users": users}))
    configuration = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(kubeconfig),
    }
    plugins = [{"name": name, "configuration": configuration} for name in _PLUGINS]
    whole = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins}
    (directory / CONFIGURATION).write_text(yaml.safe_dump(whole))
