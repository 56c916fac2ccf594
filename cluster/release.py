"""Where the chart is installed."""

from typing import Final

from cluster import kinds
from cluster.api import Api
from cluster.errors import NotFound
from gpu import names

_HELM: Final = "meta.helm.sh/release-namespace"


async def release_namespace(api: Api) -> str | None:
    """The namespace of the release, as its validating configuration tells; None where there is none.

    Raises CatalogError.
    """
    try:
        found = await api.get(kinds.VALIDATING_WEBHOOKS, names.WEBHOOKS)
    except NotFound:
        return None
    if namespace := (found["metadata"].get("annotations") or {}).get(_HELM):
        return str(namespace)
    services = [webhook["clientConfig"].get("service") for webhook in found.get("webhooks") or ()]
    return next((str(service["namespace"]) for service in services if service), None)
