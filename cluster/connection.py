"""The client behind an Api, made anew when what it is made of changes."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import structlog
from kubernetes_asyncio.client import ApiClient

from cluster.errors import NotConfigured
from cluster.login import Login, Source

_log = structlog.get_logger("gpu-webhooks")

LOOK_EVERY: Final = 60.0
"""Seconds after which the login is read again: a pod's token is replaced long before the old one ends."""

_AT_MOST_EVERY: Final = 1.0
_READ_BUFFER: Final = 2 * 1024 * 1024
"""What the library gives its session, so that large objects fit (kubernetes_asyncio, rest.py)."""


class Loan(NamedTuple):
    """A client for one call, and the token that goes with it."""

    client: ApiClient
    token: str


class Connection:
    """One client at a time, for calls to borrow. One that was replaced is closed when its last call has ended."""

    def __init__(self, login: Login, *, source: Source | None, user_agent: str) -> None:
        self._login = login
        self._source = source
        self._user_agent = user_agent
        self._made_of = login.connection()
        self._client = _client(login, user_agent)
        self._users: dict[ApiClient, int] = {self._client: 0}
        self._lock = asyncio.Lock()
        self._looked = time.monotonic()
        self._renewed = float("-inf")
        self._failed = ""

    @asynccontextmanager
    async def borrowed(self) -> AsyncIterator[Loan]:
        """The client for one call."""
        if self._source and time.monotonic() - self._looked >= LOOK_EVERY:
            await self._look(anew=False)
        loan = self._loan
        self._users[loan.client] += 1
        try:
            yield loan
        finally:
            self._users[loan.client] -= 1
            await self._close_unused()

    async def renew(self, loan: Loan) -> bool:
        """Read the login at once, since the loan was not good enough; whether there is a better one now."""
        now = time.monotonic()
        if loan == self._loan and (self._lock.locked() or now - self._renewed >= _AT_MOST_EVERY):
            self._renewed = now
            await self._look(anew=True)
        return loan != self._loan

    @property
    def _loan(self) -> Loan:
        return Loan(self._client, self._login.token)

    async def close(self) -> None:
        """Close every connection."""
        for client in self._users:
            await client.close()

    async def _look(self, *, anew: bool) -> None:
        asked = time.monotonic()
        async with self._lock:
            if self._source is None or self._looked > asked:
                return
            try:
                await self._take(await self._source(anew=anew))
            except NotConfigured as error:
                self._complain(str(error))
            else:
                self._failed = ""
            self._looked = time.monotonic()

    async def _take(self, login: Login) -> None:
        made_of = login.connection()
        if made_of == self._made_of:
            self._login.use_token_of(login)
            return
        self._client = _client(login, self._user_agent)
        self._login, self._made_of = login, made_of
        _log.info("API server's CA or address, or our certificate changed", host=login.configuration.host)
        self._users[self._client] = 0
        await self._close_unused()

    async def _close_unused(self) -> None:
        for client in [client for client, users in self._users.items() if not users and client is not self._client]:
            del self._users[client]
            await client.close()

    def _complain(self, why: str) -> None:
        if why != self._failed:
            _log.warning("login can't be read again, the last one is kept", why=why)
        self._failed = why


def _client(login: Login, user_agent: str) -> ApiClient:
    try:
        client = ApiClient(login.configuration)
    except (OSError, ValueError) as error:
        raise NotConfigured(f"the CA or the client certificate can't be used: {error}") from None
    client.user_agent = user_agent
    _read_environment_once(client.rest_client, login.configuration.host or "")
    for key, value in login.headers:
        # The client's own default headers hold one value each; groups are told by a header for each.
        client.rest_client.pool_manager.headers.add(key, value)
    return client


def _read_environment_once(rest: Any, host: str) -> None:
    """Have the environment's proxy found now: the library has two threads look for it, and for ~/.netrc, at each call.

    That made a call take half as long again. A proxy that the configuration names goes before.
    """
    rest.proxy = rest.proxy or environment_proxy(host)
    connector = rest.pool_manager.connector
    rest.pool_manager.detach()
    rest.pool_manager = aiohttp.ClientSession(connector=connector, read_bufsize=_READ_BUFFER)


def environment_proxy(url: str) -> str | None:
    """The proxy that the environment names for a URL (HTTPS_PROXY, NO_PROXY), as urllib reads it."""
    target = urlsplit(url)
    return None if proxy_bypass(target.netloc) else getproxies().get(target.scheme)
