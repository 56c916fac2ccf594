"""A Kubernetes API, spoken to in plain dicts, so that fields we do not know are kept."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import aiohttp
import orjson

from cluster.errors import ApiError, Unreachable, api_error
from cluster.kinds import Kind

if TYPE_CHECKING:
    from kubernetes_asyncio.client import Configuration

REQUEST_SECONDS: Final = 10.0
PAGE: Final = 500
"""Objects in one answer to a list: what kubectl asks for, and what keeps an answer of pods at a few megabytes."""

_JSON: Final = "application/json"
_MERGE_PATCH: Final = "application/merge-patch+json"
_JSON_PATCH: Final = "application/json-patch+json"
_APPLY: Final = "application/apply-patch+yaml"

Obj = dict[str, Any]


class Api:
    """Reads and writes of one API server.

    All calls raise ApiError where the server refuses (NotFound, Conflict and Expired have classes of their own) and
    Unreachable where it gives no answer within ``REQUEST_SECONDS``.
    """

    def __init__(self, configuration: "Configuration", *, user_agent: str = "gpu-webhooks") -> None:
        # Only here: with all its models it takes two seconds and 60 MiB, of those commands too that talk to no cluster.
        from kubernetes_asyncio.client import ApiClient  # noqa: PLC0415

        self._client = ApiClient(configuration)
        self._client.user_agent = user_agent

    async def close(self) -> None:
        """Close every connection."""
        await self._client.close()

    async def get(self, kind: Kind, name: str, *, namespace: str = "") -> Obj:
        """An object."""
        return await self._json("GET", kind, namespace, name)

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
        return await self._json("GET", kind, namespace, "", query=query)

    async def pages(
        self, kind: Kind, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> AsyncGenerator[Obj, None]:
        """The pages of a consistent list, one after the other."""
        after = ""
        while True:
            page = await self.page(kind, namespace=namespace, labels=labels, fields=fields, after=after)
            yield page
            after = page["metadata"].get("continue") or ""
            if not after:
                return

    async def items(self, kind: Kind, *, namespace: str = "", labels: str = "", fields: str = "") -> list[Obj]:
        """Every object of a consistent list."""
        async with aclosing(self.pages(kind, namespace=namespace, labels=labels, fields=fields)) as pages:
            return [item async for page in pages for item in page.get("items") or ()]

    async def create(self, kind: Kind, obj: Mapping[str, Any], *, namespace: str = "", dry_run: bool = False) -> Obj:
        """Create an object; what the API server made of it."""
        return await self._json("POST", kind, namespace, "", body=obj, query=_dry(dry_run))

    async def replace(self, kind: Kind, obj: Mapping[str, Any], *, namespace: str = "") -> Obj:
        """Put an object in place of what has its name; with a resourceVersion only if that is still the stored one."""
        return await self._json("PUT", kind, namespace, obj["metadata"]["name"], body=obj)

    async def merge(self, kind: Kind, name: str, patch: Mapping[str, Any], *, namespace: str = "") -> Obj:
        """Apply a merge patch (RFC 7386); with ``metadata.resourceVersion`` only if that is still the stored one."""
        return await self._json("PATCH", kind, namespace, name, body=patch, content=_MERGE_PATCH)

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
        return await self._read("GET", path, asked=f"get {path}")

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
        timeout = aiohttp.ClientTimeout(sock_connect=REQUEST_SECONDS, sock_read=silence)
        async with self._answer("GET", path_of(kind, namespace), asked=asked, query=query, timeout=timeout) as answer:
            yield _lines(answer, asked)

    async def _json(
        self,
        method: str,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content: str = _JSON,
    ) -> Obj:
        asked = " ".join(part for part in (method.lower(), kind.resource, f"{namespace}/{name}".strip("/")) if part)
        path = path_of(kind, namespace, name)
        return await self._read(method, path, asked=asked, query=query, body=body, content=content)

    async def _read(
        self,
        method: str,
        path: str,
        *,
        asked: str,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content: str = _JSON,
    ) -> Obj:
        timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
        async with self._answer(
            method, path, asked=asked, query=query, body=body, content=content, timeout=timeout
        ) as answer:
            return _object(await answer.read(), asked)

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        *,
        asked: str,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own kind of timeout
        query: Mapping[str, str] | None = None,
        body: object = None,
        content: str = _JSON,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer of a call that was not refused, its body still to be read."""
        try:
            answer = cast(
                "aiohttp.ClientResponse",
                await self._client.call_api(
                    path,
                    method,
                    query_params=[(key, value) for key, value in (query or {}).items() if value],
                    header_params={"Accept": _JSON, "Content-Type": content},
                    body=body,
                    auth_settings=["BearerToken"],
                    _preload_content=False,
                    _request_timeout=timeout,
                ),
            )
            async with answer:
                if answer.status >= 400:
                    raise refusal(answer.status, await answer.read(), asked=asked)
                yield answer
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"{asked}: {str(error) or type(error).__name__}") from error


def path_of(kind: Kind, namespace: str = "", name: str = "") -> str:
    """The path of an object, or of the list where no name is given."""
    parts = ["/apis", kind.group, kind.version] if kind.group else ["/api", kind.version]
    if namespace:
        parts += ["namespaces", namespace]
    parts.append(kind.plural)
    if name:
        parts.append(name)
    return "/".join(parts)


def refusal(code: int, body: bytes, *, asked: str) -> ApiError:
    """The error of an answer that is no success; what is not a Status is shown as it came."""
    try:
        status = orjson.loads(body)
    except ValueError:
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        status = {"message": f"HTTP {code}: {body[:200].decode(errors='replace')}"}
    return api_error({**status, "code": code}, asked=asked)


def _object(body: bytes, asked: str) -> Obj:
    try:
        value = orjson.loads(body)
    except ValueError:
        raise Unreachable(f"{asked}: the answer is no JSON") from None
    if not isinstance(value, dict):
        raise Unreachable(f"{asked}: the answer is no object")
    return value


async def _lines(answer: aiohttp.ClientResponse, asked: str) -> AsyncIterator[bytes]:
    """Lines of any length: aiohttp's own reader has a limit for one."""
    pending: list[bytes] = []
    async for chunk in answer.content.iter_any():
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            pending.append(line)
            if found := b"".join(pending):
                yield found
            pending.clear()
        if rest:
            pending.append(rest)
    if pending:
        raise Unreachable(f"{asked}: cut off in the middle of an event")


def _dry(dry_run: bool) -> dict[str, str]:  # noqa: FBT001 - a flag of the caller's, passed on
    return {"dryRun": "All"} if dry_run else {}
