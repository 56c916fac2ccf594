"""The ``caBundle`` kept in webhook configurations."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from certs.authorities import trusts
from certs.errors import CertificateError
from certs.injection import bundles, injection, release
from cluster.errors import Conflict, NotFound
from gpu import names

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from certs.authority import Authority
    from certs.injection import Injection
    from cluster.api import Api
    from cluster.calls import Obj
    from cluster.kinds import Kind
    from gpu.clock import Clock

_TRIES: Final = 10

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Injector:
    """Puts the bundle into every webhook of the configurations (name by kind), and tells what they have.

    `bundles` is what was last seen: for each kind the bundle of each webhook, None where there is no configuration.
    `injected_at` is when this replica last changed one.
    """

    def __init__(self, api: Api, *, configurations: Mapping[Kind, str], clock: Clock) -> None:
        self._api = api
        self._configurations = dict(configurations)
        self._clock = clock
        self._since: tuple[bytes, float] | None = None
        self.bundles: dict[Kind, dict[str, bytes] | None] = dict.fromkeys(self._configurations)
        self.injected_at: datetime | None = None

    async def refresh(self, bundle: bytes) -> None:
        """Look at each configuration and put right what differs; raises what the API raises, after trying each."""
        results = await asyncio.gather(
            *(self._refresh(kind, name, bundle) for kind, name in self._configurations.items()), return_exceptions=True
        )
        self._note(bundle)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    @property
    def missing(self) -> list[str]:
        """The configurations that are not there, as resource and name."""
        return [f"{kind.plural}/{self._configurations[kind]}" for kind, found in self.bundles.items() if found is None]

    def trusted(self, authority: Authority) -> bool:
        """Whether every webhook of every configuration trusts the authority, so far as was last seen."""
        seen = [None if found is None else set(found.values()) for found in self.bundles.values()]
        return all(found is not None and all(trusts(bundle, authority) for bundle in found) for found in seen)

    def published(self, bundle: bytes, *, seconds: float) -> bool:
        """Whether every webhook was seen to have exactly `bundle`, first so many seconds ago and ever since."""
        if self._since is None or self._since[0] != bundle:
            return False
        return asyncio.get_running_loop().time() >= self._since[1] + seconds

    def _note(self, bundle: bytes) -> None:
        everywhere = all(
            found is not None and all(has == bundle for has in found.values()) for found in self.bundles.values()
        )
        if not everywhere:
            self._since = None
        elif self._since is None or self._since[0] != bundle:
            self._since = (bundle, asyncio.get_running_loop().time())

    async def _refresh(self, kind: Kind, name: str, bundle: bytes) -> None:
        for _ in range(_TRIES):
            configuration = await self._api.find(kind, name)
            if configuration is None:
                self.bundles[kind] = None
                return
            self.bundles[kind] = bundles(configuration)
            try:
                if todo := injection(configuration, bundle):
                    configuration = await self._apply(kind, todo)
                if patch := release(configuration):
                    await self._api.merge(kind, name, patch)
            except (Conflict, NotFound):
                # Changed, deleted or made anew since it was read, by another replica as a rule: look again.
                continue
            return
        raise CertificateError(
            f"{kind.plural}/{name} changed at each of {_TRIES} tries to put the caBundle in; "
            "see in its managedFields who else writes it."
        )

    async def _apply(self, kind: Kind, todo: Injection) -> Obj:
        applied = await self._api.apply(kind, todo.document, field_manager=names.BUNDLE_MANAGER, force=True)
        self.bundles[kind] = bundles(applied)
        self.injected_at = self._clock()
        name = todo.document["metadata"]["name"]
        _log.info("caBundle injected", configuration=f"{kind.plural}/{name}", reason=todo.reason)
        return applied
