"""A Kubernetes API, spoken to in plain dicts, so that fields we do not know are kept."""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, Self

import aiohttp
from kubernetes_asyncio.client import Configuration

from cluster.calls import JSON, LIST_SECONDS, Call, Obj, answered, lines, read
from cluster.connection import Connection
from cluster.errors import NotFound, Unreachable, api_error
from cluster.keepalive import keep_alive
from cluster.kinds import Kind
from cluster.login import Headers, Login, Source
from gpu.fields import clip, printable

PAGE: Final = 250
"""Objects in one answer to a list: of pods some megabytes, which weigh ten times as much once they are read."""

_SEGMENT: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9:._]{0,251}[A-Za-z0-9])?")
_MERGE_PATCH: Final = "application/merge-patch+json"
_JSON_PATCH: Final = "application/json-patch+json"
_APPLY: Final = "application/apply-patch+yaml"


class Api:
    """Reads and writes of one API server.

    All calls raise ApiError where the server refuses (NotFound, Conflict and Expired have classes of their own) and
    Unreachable where it gives no answer within ten seconds, a minute for a list.
    """

    def __init__(
        self,
        configuration: Configuration,
        *,
        headers: Headers = (),
        source: Source | None = None,
        user_agent: str = "gpu-webhooks",
    ) -> None:
        login = Login(configuration, headers)
        self._connection = Connection(login, source=source, user_agent=user_agent)

    @classmethod
    async def of(cls, source: Source) -> Self:
        """One that reads its login from ``source`` again when it changes. Raises NotConfigured."""
        login = await source(anew=True)
        return cls(login.configuration, headers=login.headers, source=source)

    async def close(self) -> None:
        """Close every connection."""
        await self._connection.close()

    async def get(self, kind: Kind, name: str, *, namespace: str = "") -> Obj:
        """An object."""
        return await self._json("GET", kind, namespace, name)

    async def find(self, kind: Kind, name: str, *, namespace: str = "") -> Obj | None:
        """An object; None where it is not there, or its kind is not served."""
        try:
            return await self.get(kind, name, namespace=namespace)
        except NotFound:
            return None

    async def page(
        self, kind: Kind, *, namespace: str = "", labels: str = "", fields: str = "", version: str = "", after: str = ""
    ) -> Obj:
        """One page of a list: ``items``, and ``metadata`` with ``resourceVersion`` and ``continue`` where more follows.

        ``version`` "0" takes what the API server has in memory (and then the whole list at once); ``after`` is the
        ``continue`` of the page before. Without a namespace: those of all namespaces.
        """
        query = {
            "labelSelector": labels,
            "fieldSelector": fields,
            "resourceVersion": version,
            "limit": "" if version else str(PAGE),
            "continue": after,
        }
        asked = f"list {kind.resource}"
        call = Call("GET", path_of(kind, namespace), asked, query, seconds=LIST_SECONDS)
        page = await read(self._connection, call)
        metadata, items = page.get("metadata"), page.get("items")
        if not isinstance(metadata, dict) or not metadata.get("resourceVersion") or not isinstance(items, list | None):
            raise Unreachable(f"{asked}: the answer is no list")
        return {**page, "items": items or []}

    async def pages(
        self, kind: Kind, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> AsyncGenerator[Obj, None]:
        """The pages of a consistent list, one after the other."""
        after = ""
        while True:
            page = await self.page(kind, namespace=namespace, labels=labels, fields=fields, after=after)
            after = page["metadata"].get("continue") or ""
            yield page
            if not after:
                return

    async def items(self, kind: Kind, *, namespace: str = "", labels: str = "", fields: str = "") -> list[Obj]:
        """Every object of a consistent list."""
        async with aclosing(self.pages(kind, namespace=namespace, labels=labels, fields=fields)) as pages:
            return [item async for page in pages for item in page["items"]]

    async def create(self, kind: Kind, obj: Mapping[str, Any], *, namespace: str = "", dry_run: bool = False) -> Obj:
        """Create an object; what the API server made of it."""
        return await self._json("POST", kind, namespace, None, body=obj, query=_dry(dry_run))

    async def replace(self, kind: Kind, obj: Mapping[str, Any], *, namespace: str = "") -> Obj:
        """Put an object in place of what has its name; with a resourceVersion only if that is still the stored one."""
        return await self._json("PUT", kind, namespace, obj["metadata"]["name"], body=obj)

    async def merge(
        self, kind: Kind, name: str, patch: Mapping[str, Any], *, namespace: str = "", subresource: str = ""
    ) -> Obj:
        """Apply a merge patch (RFC 7386); with ``metadata.resourceVersion`` only if that is still the stored one."""
        return await self._json(
            "PATCH", kind, namespace, name, subresource=subresource, body=patch, content=_MERGE_PATCH
        )

    async def patch(self, kind: Kind, name: str, operations: list[Obj], *, namespace: str = "") -> Obj:
        """Apply a JSON patch (RFC 6902)."""
        return await self._json("PATCH", kind, namespace, name, body=operations, content=_JSON_PATCH)

    async def apply(
        self, kind: Kind, obj: Mapping[str, Any], *, field_manager: str, force: bool = False, namespace: str = ""
    ) -> Obj:
        """Server-side apply: the fields of ``obj``, and no others, are this manager's."""
        query = {"fieldManager": field_manager, "force": "true" if force else ""}
        name = obj["metadata"]["name"]
        return await self._json("PATCH", kind, namespace, name, body=obj, query=query, content=_APPLY)

    async def delete(self, kind: Kind, name: str, *, namespace: str = "", version: str = "", uid: str = "") -> Obj:
        """Delete an object, where given only if it still has this resource version or this uid."""
        preconditions = {key: value for key, value in (("resourceVersion", version), ("uid", uid)) if value}
        body = {"preconditions": preconditions} if preconditions else None
        return await self._json("DELETE", kind, namespace, name, body=body)

    async def document(self, path: str) -> Obj:
        """What the API server says at a path of its own, such as ``/version`` or ``/apis/GROUP``."""
        return await read(self._connection, Call("GET", path, f"get {path}"))

    @asynccontextmanager
    async def watch(
        self,
        kind: Kind,
        *,
        version: str,
        seconds: int,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        silence: float | None = None,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The events since a resource version: a line of JSON each, bookmarks among them, for at most ``seconds``.

        Raises Unreachable when nothing has come for ``silence`` seconds, or the connection breaks.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
            "labelSelector": labels,
            "fieldSelector": fields,
        }
        asked = f"watch {kind.resource}"
        limits = aiohttp.ClientTimeout(sock_read=silence)
        call = Call("GET", path_of(kind, namespace), asked, query)
        async with answered(self._connection, call, limits=limits) as answer:
            keep_alive(answer)
            yield lines(answer, asked)

    async def _json(
        self,
        method: str,
        kind: Kind,
        namespace: str,
        name: str | None,
        *,
        subresource: str = "",
        query: Mapping[str, str] | None = None,
        body: object = None,
        content: str = JSON,
    ) -> Obj:
        resource = f"{kind.resource}/{subresource}" if subresource else kind.resource
        parts = (method.lower(), resource, _shown("/".join(part for part in (namespace, name) if part)))
        asked = " ".join(part for part in parts if part)
        path = path_of(kind, namespace, name) + (f"/{subresource}" if subresource else "")
        return await read(self._connection, Call(method, path, asked, query or {}, body, content))


def path_of(kind: Kind, namespace: str = "", name: str | None = None) -> str:
    """The path of an object, or of the list where no name is given.

    Raises NotFound for a name that no object can have: put into a path it could lead anywhere.
    """
    parts = ["/apis", kind.group, kind.version] if kind.group else ["/api", kind.version]
    if namespace:
        parts += ["namespaces", _segment(namespace, kind)]
    parts.append(kind.plural)
    if name is not None:
        parts.append(_segment(name, kind))
    return "/".join(parts)


def _segment(name: str, kind: Kind) -> str:
    if not _SEGMENT.fullmatch(name):
        raise api_error({"code": 404, "message": f"nothing can have the name {_shown(name)!r}"}, asked=kind.resource)
    return name


def _shown(name: str) -> str:
    return printable(clip(name, 2 * 63))


def _dry(dry_run: bool) -> dict[str, str]:  # noqa: FBT001 - a flag of the caller's, passed on
    return {"dryRun": "All"} if dry_run else {}
