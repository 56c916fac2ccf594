"""The product's client, on a way to the API server that can be broken."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import yaml
from controlplane.plane import ControlPlane
from proxy import Proxy

from cluster.api import Api
from cluster.connect import connect


@asynccontextmanager
async def through_proxy(plane: ControlPlane) -> AsyncIterator[tuple[Proxy, Api]]:
    """A proxy before the API server, and an Api that goes through it."""
    async with Proxy(urlsplit(plane.url).port or 0) as proxy:
        kubeconfig = yaml.safe_load(plane.kubeconfig().read_text())
        kubeconfig["clusters"][0]["cluster"]["server"] = proxy.url
        path = plane.directory / f"kubeconfig-through-{urlsplit(proxy.url).port}"
        path.write_text(yaml.safe_dump(kubeconfig))
        api = await connect(kubeconfig=path)
        try:
            yield proxy, api
        finally:
            await api.close()
