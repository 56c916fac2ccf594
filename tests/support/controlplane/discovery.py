"""Which path a kind is served under, as the API server itself says."""

from collections.abc import Awaitable, Callable
from typing import Any


class Discovery:
    """Knows what was asked for once, and asks again for a kind that it does not know."""

    def __init__(self, get: Callable[[str], Awaitable[dict[str, Any]]]) -> None:
        self._get = get
        self._kinds: dict[tuple[str, str], tuple[str, bool]] = {}

    async def path(self, api_version: str, kind: str, namespace: str | None) -> str:
        """The path of a kind's objects, in a namespace or all. Raises LookupError when it is not served."""
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        if (api_version, kind) not in self._kinds:
            for resource in (await self._get(root))["resources"]:
                if "/" not in resource["name"]:
                    self._kinds[api_version, resource["kind"]] = resource["name"], resource["namespaced"]
        if (api_version, kind) not in self._kinds:
            raise LookupError(f"{kind} of {api_version} is not served")
        plural, namespaced = self._kinds[api_version, kind]
        return f"{root}/namespaces/{namespace}/{plural}" if namespaced and namespace else f"{root}/{plural}"
