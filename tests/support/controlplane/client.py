"""A client for tests: plain objects in, plain objects out, as anybody.

It shares nothing with the product's, so that it can play tenants, KubeVirt and the platform against it.
"""

import json
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Literal, Self
from urllib.parse import quote

import aiohttp
from controlplane.discovery import Discovery
from controlplane.errors import APIError
from controlplane.warnings import warnings_of

Object = Mapping[str, Any]
Propagation = Literal["Background", "Foreground", "Orphan"]
_PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class Answer(dict[str, Any]):
    """An object as the API server gave it, and the warnings that came with it."""

    def __init__(self, obj: Mapping[str, Any], warnings: Sequence[str] = ()) -> None:
        super().__init__(obj)
        self.warnings = list(warnings)


def ref(api_version: str, kind: str, name: str, namespace: str | None = None) -> dict[str, Any]:
    """What names an object: as good as the object itself where one is asked for, changed or deleted."""
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


class Client:
    """Calls one API server. Every call raises APIError when it is refused."""

    def __init__(self, url: str, *, token: str, tls: ssl.SSLContext) -> None:
        self._url = url
        self._tls = tls
        self._headers: tuple[tuple[str, str], ...] = (("Authorization", f"Bearer {token}"),)
        self._session: aiohttp.ClientSession | None = None
        self._discovery = Discovery(self._json)

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        self._session = aiohttp.ClientSession(self._url, connector=connector)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session:
            await self._session.close()

    def as_(self, user: str, groups: Sequence[str] = ()) -> "Client":
        """The same client as somebody else.

        The API server adds the group ``system:authenticated``, and a service account's groups where none are given.
        """
        impersonated = [("Impersonate-User", user), *(("Impersonate-Group", group) for group in groups)]
        return self._with((*self._headers[:1], *impersonated))

    def with_headers(self, headers: Mapping[str, str]) -> "Client":
        """The same client, which sends these headers too, such as ``Audit-ID`` or ``Impersonate-Extra-KEY``."""
        return self._with((*self._headers, *headers.items()))

    def _with(self, headers: tuple[tuple[str, str], ...]) -> "Client":
        other = Client.__new__(Client)
        other.__dict__.update(self.__dict__)
        other._headers = headers
        return other

    async def get(self, obj: Object, *, subresource: str = "") -> Answer:
        """The object as it is stored now; ``obj`` names it."""
        return await self.raw("GET", await self._path(obj, subresource))

    async def list(
        self, api_version: str, kind: str, namespace: str | None = None, **parameters: str
    ) -> list[dict[str, Any]]:
        """The objects of a kind; ``parameters`` are those of the call, such as ``labelSelector``."""
        found = await self.raw("GET", await self._collection(api_version, kind, namespace), parameters=parameters)
        return list(found["items"])

    async def create(self, obj: Object, *, dry_run: bool = False) -> Answer:
        path = await self._collection(obj["apiVersion"], obj["kind"], obj["metadata"].get("namespace"))
        return await self.raw("POST", path, obj, parameters=_dry(dry_run))

    async def post(self, obj: Object, subresource: str, body: Object, *, dry_run: bool = False) -> Answer:
        """Post to a subresource (``eviction``, ``binding``, ``token``) of the object that ``obj`` names."""
        return await self.raw("POST", await self._path(obj, subresource), body, parameters=_dry(dry_run))

    async def update(self, obj: Object, *, subresource: str = "", dry_run: bool = False) -> Answer:
        """Put it in the place of what is stored."""
        return await self.raw("PUT", await self._path(obj, subresource), obj, parameters=_dry(dry_run))

    async def patch(
        self,
        obj: Object,
        change: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        subresource: str = "",
        strategic: bool = False,
        dry_run: bool = False,
    ) -> Answer:
        """Change the object that ``obj`` names: a list is a JSON patch, an object a merge patch."""
        kind = "strategic" if strategic else "merge" if isinstance(change, Mapping) else "json"
        path = await self._path(obj, subresource)
        return await self.raw("PATCH", path, change, parameters=_dry(dry_run), content_type=_PATCHES[kind])

    async def apply(
        self, obj: Object, *, manager: str = "tests", force: bool = False, subresource: str = "", dry_run: bool = False
    ) -> Answer:
        """Apply it server-side, as the field manager named."""
        parameters = {**_dry(dry_run), "fieldManager": manager, "force": str(force).lower()}
        path = await self._path(obj, subresource)
        return await self.raw("PATCH", path, obj, parameters=parameters, content_type=_PATCHES["apply"])

    async def delete(
        self,
        obj: Object,
        *,
        propagation: Propagation | None = None,
        grace: int | None = None,
        preconditions: Mapping[str, str] | None = None,
        dry_run: bool = False,
        **others: object,
    ) -> Answer:
        """Delete the object that ``obj`` names: propagation policy, grace period in seconds, uid or resourceVersion;
        ``others`` are fields of the DeleteOptions by their own names.
        """
        options = {"propagationPolicy": propagation, "gracePeriodSeconds": grace, "preconditions": preconditions}
        body = {name: value for name, value in {**options, **others}.items() if value is not None}
        if dry_run:  # a body's options go before those of the query, so it has to stand there
            body["dryRun"] = ["All"]
        return await self.raw("DELETE", await self._path(obj), body or None)

    async def watch(
        self, api_version: str, kind: str, namespace: str | None = None, **parameters: str
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """The types and objects of a watch's events until the server ends it; an ERROR is raised as APIError."""
        path = await self._collection(api_version, kind, namespace)
        async with self._request("GET", path, parameters={"watch": "1", **parameters}) as response:
            if response.status >= 400:
                raise APIError(json.loads(await response.read()))
            try:
                async for line in response.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise APIError(event["object"])
                    yield event["type"], event["object"]
            finally:
                # Closed in the middle, it would wait for the server's goodbye, which may come after the loop's end.
                if response.connection and response.connection.transport:
                    response.connection.transport.abort()

    async def raw(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        parameters: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Answer:
        """The answer to any call; an empty or a plain text one is under the key ``text``."""
        call = self._request(method, path, body, parameters=parameters or {}, content_type=content_type)
        async with call as response:
            warnings = warnings_of(response.headers.getall("Warning", []))
            text = await response.text()
            if response.content_type == "application/json":
                obj = json.loads(text)
            else:
                obj = {"text": text, "code": response.status, "message": text}
            if response.status >= 400:
                raise APIError(obj, warnings)
            return Answer(obj, warnings)

    def _request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        parameters: Mapping[str, str],
        content_type: str = "application/json",
    ) -> "aiohttp.client._RequestContextManager":
        if self._session is None:
            raise RuntimeError("a client is entered before it is used: async with plane.client() as kube")
        headers = [*self._headers, ("Content-Type", content_type), ("Accept", "application/json")]
        data = json.dumps(body).encode() if body is not None else None
        return self._session.request(method, path, params=parameters, data=data, headers=headers)

    async def _json(self, path: str) -> dict[str, Any]:
        return await self.raw("GET", path)

    async def _collection(self, api_version: str, kind: str, namespace: str | None) -> str:
        return await self._discovery.path(api_version, kind, namespace)

    async def _path(self, obj: Object, subresource: str = "") -> str:
        metadata = obj["metadata"]
        collection = await self._collection(obj["apiVersion"], obj["kind"], metadata.get("namespace"))
        path = f"{collection}/{quote(metadata['name'], safe='')}"
        return f"{path}/{subresource}" if subresource else path


def _dry(dry_run: bool) -> dict[str, str]:  # noqa: FBT001 - an option passed on
    return {"dryRun": "All"} if dry_run else {}
