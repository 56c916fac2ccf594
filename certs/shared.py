"""The authorities that the replicas share, read and stepped on in their Secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import structlog

from certs.authorities import Authorities, read_secret, secret_of
from certs.authority import Authority
from certs.errors import CertificateError
from certs.rotation import Action, Trust, step, taken
from cluster.errors import Conflict, NotFound
from cluster.kinds import SECRETS

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, timedelta

    from cluster.api import Api
    from gpu.clock import Clock

_TRIES: Final = 20
"""Writes that may be lost to other replicas in one round, and steps that may follow each other in it."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class SharedAuthorities:
    """What one replica knows of the Secret, and its steps on it.

    `held` is what was last read or written, None before that; it stays when the Secret or the API server goes.
    `rotated_at` is when this replica last had another authority sign.
    """

    def __init__(
        self, api: Api, *, namespace: str, name: str, lifetime: timedelta, skew: timedelta, clock: Clock
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._lifetime = lifetime
        self._skew = skew
        self._clock = clock
        self.held: Authorities | None = None
        self.rotated_at: datetime | None = None

    async def refresh(self, *, trust: Callable[[Authority], Trust]) -> None:
        """Read the Secret and take every step that is to be taken now.

        `trust` tells since when the webhooks trust an authority. Raises ForeignSecret when the Secret is not ours, and
        what the API raises.
        """
        for _ in range(_TRIES):
            secret = await self._read()
            found = None if secret is None else read_secret(secret)
            now = self._clock()
            todo = step(found, held=self.held, now=now, lifetime=self._lifetime, trust=trust)
            if todo is None:
                self.held = found
                return
            wanted = taken(todo.action, found, held=self.held, now=now, make=self._make)
            if not await self._write(wanted, secret):
                continue
            if self.held is None or self.held.current != wanted.current:
                self.rotated_at = now
            self.held = wanted
            self._tell(todo.action, todo.reason, wanted)
        raise CertificateError(
            f"Secret {self._namespace}/{self._name} changed at each of {_TRIES} tries to write it; "
            "see in its managedFields who else writes it."
        )

    async def _read(self) -> dict[str, Any] | None:
        return await self._api.find(SECRETS, self._name, namespace=self._namespace)

    async def _write(self, wanted: Authorities, secret: dict[str, Any] | None) -> bool:
        """Store it in place of what was read; False where that has changed meanwhile, so that it decides anew."""
        stored = secret_of(wanted, name=self._name, namespace=self._namespace, found=secret)
        try:
            if secret is None:
                await self._api.create(SECRETS, stored, namespace=self._namespace)
            else:
                await self._api.replace(SECRETS, stored, namespace=self._namespace)
        except Conflict:
            return False
        except NotFound:
            if secret is None:
                raise  # There is no such namespace.
            return False
        return True

    def _make(self, since: datetime | None) -> Authority:
        now = self._clock()
        # Each with a name of its own, so that nothing takes one for another by its subject.
        name = f"gpu-webhooks {now:%Y-%m-%dT%H:%M:%S.%fZ}"
        return Authority.create(common_name=name, now=now, lifetime=self._lifetime, skew=self._skew, since=since)

    def _tell(self, action: Action, reason: str, authorities: Authorities) -> None:
        signer = authorities.current
        _log.info(
            "certificate authority: " + action.value,
            reason=reason,
            secret=f"{self._namespace}/{self._name}",
            serial=f"{signer.serial:x}",
            not_after=signer.not_after.isoformat(),
        )
