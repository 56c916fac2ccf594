"""Calls of the API server: sent once more with a new login where the old one is not taken, errors made ours."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, NamedTuple, cast

import aiohttp
import orjson

from cluster.connection import Connection, Loan
from cluster.errors import ApiError, Silent, Unreachable, api_error
from cluster.keepalive import cut

REQUEST_SECONDS: Final = 10.0
LIST_SECONDS: Final = 60.0
"""As long as an API server itself takes at most to answer a list: one that is given up would be asked for again."""

JSON: Final = "application/json"

Obj = dict[str, Any]


class Call(NamedTuple):
    """What is asked; ``asked`` is that in words, for messages. Parameters without a value are left out."""

    method: str
    path: str
    asked: str
    query: Mapping[str, str] = {}
    body: object = None
    content: str = JSON
    seconds: float = REQUEST_SECONDS


async def read(connection: Connection, call: Call) -> Obj:
    """The object that a call is answered with. Raises ApiError and Unreachable."""
    limits = aiohttp.ClientTimeout(total=call.seconds)
    async with answered(connection, call, limits=limits) as answer:
        return _object(await answer.read(), call.asked)


@asynccontextmanager
async def answered(
    connection: Connection,
    call: Call,
    *,
    limits: aiohttp.ClientTimeout,
) -> AsyncIterator[aiohttp.ClientResponse]:
    """The answer of a call that was not refused, its body still to be read. Raises ApiError and Unreachable."""
    try:
        async with AsyncExitStack() as stack:
            answer = await _accepted(stack, connection, call, limits)
            stack.callback(cut, answer)
            yield answer
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Unreachable(f"{call.asked}: {str(error) or type(error).__name__}") from error


async def _accepted(
    stack: AsyncExitStack, connection: Connection, call: Call, limits: aiohttp.ClientTimeout
) -> aiohttp.ClientResponse:
    loan = await stack.enter_async_context(connection.borrowed())
    try:
        return await _tried(stack, loan, call, limits)
    except (ApiError, aiohttp.ClientSSLError) as error:
        if isinstance(error, ApiError) and error.code != 401:
            raise
        if not await connection.renew(loan):
            raise
    loan = await stack.enter_async_context(connection.borrowed())
    return await _tried(stack, loan, call, limits)


async def _tried(
    stack: AsyncExitStack, loan: Loan, call: Call, limits: aiohttp.ClientTimeout
) -> aiohttp.ClientResponse:
    async with asyncio.timeout(call.seconds):
        answer = await loan.client.call_api(
            call.path,
            call.method,
            query_params=[(key, value) for key, value in call.query.items() if value],
            header_params={"Accept": JSON, "Accept-Encoding": "identity", "Content-Type": call.content},
            body=call.body,
            auth_settings=["BearerToken"],
            _preload_content=False,
            _request_timeout=limits,
        )
        answer = cast("aiohttp.ClientResponse", await stack.enter_async_context(answer))
        if answer.status < 400:
            return answer
        retry_after = answer.headers.get("Retry-After", "")
        raise refusal(answer.status, await answer.read(), asked=call.asked, retry_after=_seconds(retry_after))


def refusal(code: int, body: bytes, *, asked: str, retry_after: float = 0) -> ApiError:
    """The error of an answer that is no success; what is not a Status is shown as it came."""
    try:
        status = orjson.loads(body)
    except ValueError:
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        text = " ".join(body[:200].decode(errors="replace").split())
        status = {"message": f"HTTP {code}: {text}"}
    return api_error({**status, "code": code}, asked=asked, retry_after=retry_after)


async def lines(answer: aiohttp.ClientResponse, asked: str) -> AsyncIterator[bytes]:
    """Lines of any length: aiohttp's own reader has a limit for one.

    Raises Unreachable when the last has no end, and Silent when nothing has come for as long as the answer may take.
    """
    pending: list[bytes] = []
    try:
        async for chunk in answer.content.iter_any():
            *whole, rest = chunk.split(b"\n")
            for line in whole:
                pending.append(line)
                if found := b"".join(pending):
                    yield found
                pending.clear()
            if rest:
                pending.append(rest)
    except aiohttp.SocketTimeoutError:
        raise Silent(f"{asked}: nothing has come for too long") from None
    if pending:
        raise Unreachable(f"{asked}: cut off in the middle of an event")


def _object(body: bytes, asked: str) -> Obj:
    try:
        value = orjson.loads(body)
    except ValueError:
        raise Unreachable(f"{asked}: the answer is no JSON") from None
    if not isinstance(value, dict):
        raise Unreachable(f"{asked}: the answer is no object")
    return value


def _seconds(text: str) -> float:
    """A Retry-After in seconds; the other form of it, a date, is not sent by API servers."""
    return float(text) if text.isascii() and text.isdigit() else 0
