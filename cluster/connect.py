"""Connecting to the API server that the surroundings name."""

import os
from collections.abc import Mapping
from pathlib import Path

from kubernetes_asyncio.config.incluster_config import (
    SERVICE_CERT_FILENAME,
    SERVICE_HOST_ENV_NAME,
    SERVICE_TOKEN_FILENAME,
)

from cluster.api import Api
from cluster.errors import NotConfigured
from cluster.login import Source, from_kubeconfig, in_cluster


async def connect(*, kubeconfig: Path | None = None, context: str | None = None) -> Api:
    """An Api for the kubeconfig, or else for what KUBECONFIG, the pod or ``~/.kube/config`` name, in this order.

    ``context`` takes another than the kubeconfig's current one; pods have none, so with it the pod is passed over.
    Raises NotConfigured. Nothing is asked of the API server yet.
    """
    return await Api.of(source(kubeconfig=kubeconfig, context=context))


def source(
    *,
    kubeconfig: Path | None,
    context: str | None,
    environ: Mapping[str, str] = os.environ,
    token_file: Path = Path(SERVICE_TOKEN_FILENAME),
    ca_file: Path = Path(SERVICE_CERT_FILENAME),
) -> Source:
    """Where the login is read from. Raises NotConfigured."""
    if kubeconfig is not None:
        return from_kubeconfig(str(kubeconfig), context=context)
    if named := environ.get("KUBECONFIG"):
        return from_kubeconfig(named, context=context)
    if context is None and environ.get(SERVICE_HOST_ENV_NAME) and token_file.is_file():
        return in_cluster(environ=environ, token_file=token_file, ca_file=ca_file)
    default = Path(environ.get("HOME") or Path.home()) / ".kube" / "config"
    if not default.is_file():
        raise NotConfigured(f"no API server: no kubeconfig is named, this is no pod, and there is no {default}")
    return from_kubeconfig(str(default), context=context)
