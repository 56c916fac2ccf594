"""Which version of a kind an API server serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.errors import NotFound

if TYPE_CHECKING:
    from cluster.api import Api
    from cluster.kinds import Kind


async def served(api: Api, kind: Kind) -> Kind | None:
    """The kind in the version that the API server prefers; None where it does not serve the kind in that version.

    Raises CatalogError.
    """
    version = kind.version
    try:
        if kind.group:
            group = await api.document(f"/apis/{kind.group}")
            version = group["preferredVersion"]["version"]
        found = kind._replace(version=version)
        root = f"/apis/{found.api_version}" if found.group else f"/api/{version}"
        resources = (await api.document(root)).get("resources") or ()
    except NotFound:
        return None
    return found if any(resource["name"] == found.plural for resource in resources) else None
