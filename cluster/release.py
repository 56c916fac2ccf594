"""Where the chart is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster import kinds
from gpu import names

if TYPE_CHECKING:
    from cluster.api import Api

_HELM: Final = "meta.helm.sh/release-namespace"


async def release_namespace(api: Api, configuration: str = names.WEBHOOKS) -> str | None:
    """The namespace of the release, as its validating configuration tells; None where there is none.

    Raises CatalogError.
    """
    found = await api.find(kinds.VALIDATING_WEBHOOKS, configuration)
    if found is None:
        return None
    if namespace := (found["metadata"].get("annotations") or {}).get(_HELM):
        return str(namespace)
    services = [webhook["clientConfig"].get("service") for webhook in found.get("webhooks") or ()]
    return next((str(service["namespace"]) for service in services if service), None)
