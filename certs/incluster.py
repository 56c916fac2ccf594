"""Serving certificates in a cluster: a shared authority, a leaf of one's own, the bundle in the configurations."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NoReturn

import structlog

from certs.authorities import trusts
from certs.authority import CLOCK_SKEW, Authority
from certs.context import ServingContext
from certs.errors import CertificateError, NotInstalled
from certs.figures import Figures, life
from certs.injector import Injector
from certs.keeping import Keeping
from certs.renewal import check_lifetimes
from certs.rotation import Trust, signing
from certs.shared import SharedAuthorities
from certs.troubles import Part, Troubles
from certs.wake import watching
from cluster.kinds import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS, Kind
from gpu import names as well_known
from gpu.clock import Clock, utc_now

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence
    from datetime import datetime

    from certs.authorities import Authorities
    from cluster.api import Api

CONFIGURATIONS: Final[Mapping[Kind, str]] = MappingProxyType(
    {MUTATING_WEBHOOKS: well_known.WEBHOOKS, VALIDATING_WEBHOOKS: well_known.WEBHOOKS}
)

_SHORTEST_PAUSE: Final = 0.05
_FIRST_BACKOFF: Final = 0.25
_FIRST_ROUND: Final = 2.0

_logger: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


def service_names(service: str, namespace: str) -> list[str]:
    """What a Service is called by; the API server asks for the first (k8s.io/apiserver, webhook.ClientManager)."""
    return [f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local", f"{service}.{namespace}"]


class ClusterCertificates(Keeping):
    """One replica's serving certificate, and its part in the life of the authority and the bundle.

    `async with` it, or `start` and `stop` it. Give `serving.context` to the server at once: handshakes are refused
    until there is a leaf. It is ready for calls when `injected`. All webhooks of `configurations` (name by kind) get
    the bundle, those with a `url` too; a configuration that is not there is waited for and never made.

    A round reads the Secret and the configurations, steps, injects and renews. There is one after each `interval`, or
    a tenth of the shortest third of a life, and one at once when either changes. A round that fails is told
    (`failures` counts) and tried again with growing pauses; meanwhile what is held goes on being served, and renewed.
    Where another authority is to sign, `settle` is how long every webhook must have had its certificate, so that every
    API server knows. An authority is valid from `skew` before it is made, for clocks that are behind.

    Raises CertificateError when names or lifetimes make no certificate, one that is due when it is born, or leave no
    time for a rotation.
    """

    def __init__(
        self,
        api: Api,
        *,
        namespace: str,
        names: Sequence[str],
        secret: str = well_known.AUTHORITY,
        configurations: Mapping[Kind, str] = CONFIGURATIONS,
        clock: Clock = utc_now,
        ca_lifetime: timedelta = timedelta(days=365),
        leaf_lifetime: timedelta = timedelta(days=7),
        interval: timedelta = timedelta(seconds=10),
        settle: timedelta = timedelta(seconds=30),
        skew: timedelta = CLOCK_SKEW,
    ) -> None:
        self._api = api
        self._clock = clock
        _check(names=names, ca_lifetime=ca_lifetime, leaf_lifetime=leaf_lifetime, settle=settle, now=clock())
        self._names = tuple(names)
        self._leaf_lifetime = leaf_lifetime
        self._ca_lifetime = ca_lifetime
        self._interval = min(interval, ca_lifetime / 30, leaf_lifetime / 30).total_seconds()
        self._settle = settle.total_seconds()
        self._shared = SharedAuthorities(
            api, namespace=namespace, name=secret, lifetime=ca_lifetime, skew=skew, clock=clock
        )
        self._injector = Injector(api, configurations=configurations, clock=clock)
        self._serving = ServingContext(clock=clock)
        self._signer: Authority | None = None
        self._renewed_at: datetime | None = None
        self._troubles = Troubles([Part.AUTHORITY, Part.BUNDLE, Part.CERTIFICATE])
        self._watched = [(SECRETS, secret, namespace), *((kind, name, "") for kind, name in configurations.items())]
        self._looked = asyncio.Event()

    @property
    def serving(self) -> ServingContext:
        """The context to listen with: the same object for ever."""
        return self._serving

    @property
    def injected(self) -> bool:
        """Whether every webhook, so far as was last seen, trusts the authority of the leaf that is served."""
        return self._signer is not None and self._injector.trusted_for(self._signer) is not None

    @property
    def ca_pem(self) -> bytes | None:
        """What clients trust, PEM, without any key; None until it is known."""
        return None if self._shared.held is None else self._shared.held.bundle

    @property
    def authorities(self) -> Authorities | None:
        """What the replicas share, as last seen."""
        return self._shared.held

    @property
    def bundles(self) -> Mapping[Kind, Mapping[str, bytes] | None]:
        """The bundle of each webhook of each configuration as last seen; None where there is no configuration."""
        return MappingProxyType(self._injector.bundles)

    @property
    def injected_at(self) -> datetime | None:
        """When this replica last changed a bundle."""
        return self._injector.injected_at

    @property
    def rotated_at(self) -> datetime | None:
        """When this replica last had another authority sign."""
        return self._shared.rotated_at

    @property
    def failures(self) -> int:
        """The parts of rounds that failed so far."""
        return self._troubles.count

    def waiting(self) -> str:
        """Why an API server may not trust the serving certificate yet; empty where every one does."""
        if self.injected:
            return ""
        if missing := self._injector.missing:
            return f"the caBundle is not in {' and '.join(missing)}: not installed, or not to be read"
        return f"the caBundle is not in every webhook of {' and '.join(self._injector.by_name())} yet"

    def figures(self) -> Figures:
        """See certs.figures.Source."""
        leaf = None if self._serving.empty else self._serving.pair
        signer = None if self._shared.held is None else self._shared.held.current
        return Figures(
            leaf=life(leaf, lifetime=self._leaf_lifetime),
            renewed_at=self._renewed_at,
            ca=life(signer, lifetime=self._ca_lifetime),
            rotated_at=self.rotated_at,
            bundles={name: self._trusted_until(found) for name, found in self._injector.by_name().items()},
            injected_at=self.injected_at,
            failures=self._troubles.counts,
            failing=self._troubles.failing,
        )

    def _trusted_until(self, found: Mapping[str, bytes] | None) -> datetime | None:
        """When webhooks with these bundles stop trusting what is served; None where one of them does not."""
        signer = self._signer
        if signer is None or not found or not all(trusts(bundle, signer) for bundle in found.values()):
            return None
        return signer.not_after

    async def start(self) -> None:
        """Begin to keep everything right, in a task of its own; what can be had within 2 s is there afterwards."""
        await super().start()
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_ROUND):
                await self._looked.wait()

    async def keep(self) -> NoReturn:
        """Round after round until cancelled; `start` runs it."""
        woken = asyncio.Event()
        async with watching(self._api, self._watched, woken):
            backoff = _FIRST_BACKOFF
            while True:
                woken.clear()
                if await self._round():
                    pause, backoff = self._interval, _FIRST_BACKOFF
                else:
                    pause, backoff = min(backoff, self._interval), backoff * 2
                self._looked.set()
                # Changes come in bursts, our own among them: one more round is enough for what came meanwhile.
                await asyncio.sleep(_SHORTEST_PAUSE)
                with suppress(TimeoutError):
                    # Not wait_for, which in Python 3.11 can lose a cancellation.
                    async with asyncio.timeout(pause):
                        await woken.wait()

    async def _round(self) -> bool:
        """Every part, each also when the one before failed; whether all went well."""
        shared = await self._part(Part.AUTHORITY, self._share())
        injected = await self._part(Part.BUNDLE, self._inject(sure=shared))
        served = await self._part(Part.CERTIFICATE, self._serve())
        return shared and injected and served

    async def _part(self, part: Part, done: Awaitable[None]) -> bool:
        try:
            await done
        except Exception as error:  # noqa: BLE001 - whatever it was, the next round may do better
            self._troubles.failed(part, error)
            return False
        self._troubles.went_well(part)
        return True

    async def _share(self) -> None:
        await self._shared.refresh(trust=self._trust)

    def _trust(self, authority: Authority) -> Trust:
        return Trust(self._injector.trusted_for(authority), self._settle)

    async def _inject(self, *, sure: bool) -> None:
        """Put the bundle in; where the Secret could not be read others may know better, so only where it is missing."""
        held = self._shared.held
        if held is None:
            return
        await self._injector.refresh(held.bundle, enough=None if sure else held.current)
        if missing := self._injector.missing:
            raise NotInstalled(f"Not installed yet, so nobody calls this service: {', '.join(missing)}.")

    async def _serve(self) -> None:
        if self._shared.held is None:
            return
        now = self._clock()
        todo = signing(
            self._shared.held.current,
            signer=self._signer,
            leaf=None if self._serving.empty else self._serving.pair,
            now=now,
            lifetime=self._leaf_lifetime,
            trust=self._trust,
        )
        if todo is None:
            return
        leaf = todo.signer.issue(names=self._names, now=now, lifetime=self._leaf_lifetime)
        self._serving.swap(leaf)
        self._signer, self._renewed_at = todo.signer, now
        _logger.info(
            "serving certificate renewed",
            reason=todo.reason,
            serial=f"{leaf.serial:x}",
            not_after=leaf.not_after.isoformat(),
        )


def _check(
    *, names: Sequence[str], ca_lifetime: timedelta, leaf_lifetime: timedelta, settle: timedelta, now: datetime
) -> None:
    check_lifetimes(ca_lifetime, leaf_lifetime)
    if settle * 2 >= ca_lifetime / 3:
        raise CertificateError(
            f"A CA that lives {ca_lifetime} leaves no time for its rotation: a third of that must be longer than twice "
            f"the settle time, which is {settle}."
        )
    authority = Authority.create(common_name="gpu-webhooks", now=now, lifetime=ca_lifetime)
    authority.issue(names=names, now=now, lifetime=leaf_lifetime)
