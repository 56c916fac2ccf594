"""The ``caBundle`` kept in webhook configurations."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from certs.authorities import certificate_of, trusts
from certs.errors import CertificateError
from certs.injection import bundles, injection, release
from certs.pem import read_certificates
from cluster.errors import Conflict, NotFound
from gpu import names

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from cryptography import x509

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
        self._since: dict[x509.Certificate, float] = {}
        self.bundles: dict[Kind, dict[str, bytes] | None] = dict.fromkeys(self._configurations)
        self.injected_at: datetime | None = None

    async def refresh(self, bundle: bytes, *, enough: Authority | None = None) -> None:
        """Look at each configuration and put right what differs; raises what the API raises, after trying each.

        With `enough` a configuration whose webhooks all trust that authority is left as it is: what is to be said of
        a `bundle` that may be out of date.
        """
        results = await asyncio.gather(
            *(self._refresh(kind, name, bundle, enough) for kind, name in self._configurations.items()),
            return_exceptions=True,
        )
        self._note()
        for result in results:
            if isinstance(result, BaseException):
                raise result

    @property
    def missing(self) -> list[str]:
        """The configurations that are not there, as resource and name."""
        return [name for name, found in self.by_name().items() if found is None]

    def by_name(self) -> dict[str, dict[str, bytes] | None]:
        """What was last seen, by resource and name."""
        return {f"{kind.plural}/{self._configurations[kind]}": found for kind, found in self.bundles.items()}

    def trusted_for(self, authority: Authority) -> float | None:
        """For how many seconds every webhook of every configuration was seen to trust it; None where one does not."""
        since = self._since.get(certificate_of(authority))
        return None if since is None else asyncio.get_running_loop().time() - since

    def _note(self) -> None:
        now = asyncio.get_running_loop().time()
        self._since = {certificate: self._since.get(certificate, now) for certificate in self._everywhere()}

    def _everywhere(self) -> set[x509.Certificate]:
        """What every webhook of every configuration trusts."""
        if any(found is None for found in self.bundles.values()):
            return set()
        seen = {bundle for found in self.bundles.values() if found for bundle in found.values()}
        return set.intersection(*map(_certificates, seen)) if seen else set()

    async def _refresh(self, kind: Kind, name: str, bundle: bytes, enough: Authority | None) -> None:
        for _ in range(_TRIES):
            configuration = await self._api.find(kind, name)
            if configuration is None:
                self.bundles[kind] = None
                return
            found = self.bundles[kind] = bundles(configuration)
            if enough is not None and all(trusts(has, enough) for has in found.values()):
                return
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


def _certificates(bundle: bytes) -> set[x509.Certificate]:
    try:
        return set(read_certificates(bundle))
    except CertificateError:
        return set()
