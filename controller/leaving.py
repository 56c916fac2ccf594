"""Leaving: our finalizers are taken off, the orders stay, and no controller of this installation puts them on again."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import structlog

from cluster.api import Api
from cluster.discovery import served
from cluster.errors import Conflict, NotFound
from cluster.kinds import GPU_CLASSES, GPU_DEVICES, LEASES, SERVICE_ACCOUNTS, Kind
from cluster.leader import Leader
from cluster.lease import manifest
from gpu import names
from gpu.errors import CatalogError

TAKEN_WITHIN: Final = 60.0
"""Seconds that the Lease may take to come: a leader gives it back within seconds, one that is gone keeps it for 15."""

_AT_ONCE: Final = 16
_TRIES: Final = 5

_FINALIZERS: Final[Mapping[Kind, str]] = {GPU_DEVICES: names.DEVICE_FINALIZER, GPU_CLASSES: names.CLASS_FINALIZER}

_log = structlog.get_logger("gpu-webhooks")


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """Which installation a controller belongs to: the uid of the service account in its namespace, empty where there
    is none. An installation that is made anew has another, so that what was left by the old one does not bind it."""

    uid: str

    @classmethod
    async def of(cls, api: Api, *, namespace: str, service_account: str) -> "Installation":
        """Ask for it. Raises CatalogError."""
        found = await api.find(SERVICE_ACCOUNTS, service_account, namespace=namespace)
        return cls(uid=str(found["metadata"]["uid"]) if found else "")

    def bars(self, lease: Mapping[str, Any]) -> str:
        """Why a controller of this installation may not hold this Lease; empty where it may."""
        annotations = lease["metadata"].get("annotations") or {}
        if annotations.get(names.RELEASED) != self.mark:
            return ""
        return (
            "release-all has released what this installation held; to have it hold GPUs again, take the annotation "
            f"{names.RELEASED} off the Lease {names.CONTROLLER} in namespace {lease['metadata']['namespace']}"
        )

    @property
    def mark(self) -> str:
        """What stands in the annotation of a Lease that is not to be held by it."""
        return self.uid or "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """How many objects a finalizer was taken off."""

    devices: int = 0
    classes: int = 0


async def release_all(api: Api, *, namespace: str, service_account: str, me: str) -> Released:
    """Bar the installation's controllers from the Lease, take it, and take our finalizers off everything.

    Raises CatalogError where the Lease does not come, or an object can't be written. To be called again then.
    """
    present = [kind for kind in _FINALIZERS if await served(api, kind)]
    if not present:
        return Released()
    installation = await Installation.of(api, namespace=namespace, service_account=service_account)
    await _bar(api, namespace, installation)
    async with Leader(api, namespace=namespace, name=names.CONTROLLER, me=me) as lead:
        try:
            async with asyncio.timeout(TAKEN_WITHIN):
                await lead.acquired()
        except TimeoutError:
            raise CatalogError(
                f"the Lease {namespace}/{names.CONTROLLER} is held by {lead.holder or 'nobody'} still, after "
                f"{TAKEN_WITHIN:g} s: is that a controller of this installation?"
            ) from None
        counts = {kind: await _take_off(api, kind, lead) for kind in present}
    return Released(devices=counts.get(GPU_DEVICES, 0), classes=counts.get(GPU_CLASSES, 0))


async def _bar(api: Api, namespace: str, installation: Installation) -> None:
    patch = {"metadata": {"annotations": {names.RELEASED: installation.mark}}}
    for _ in range(_TRIES):
        try:
            await api.merge(LEASES, names.CONTROLLER, patch, namespace=namespace)
        except NotFound:
            lease = manifest(namespace, names.CONTROLLER, {})
            lease["metadata"] |= patch["metadata"]
            try:
                await api.create(LEASES, lease, namespace=namespace)
            except Conflict:
                continue
        return
    raise CatalogError(f"the Lease {namespace}/{names.CONTROLLER} comes and goes")


async def _take_off(api: Api, kind: Kind, lead: Leader) -> int:
    """Take our finalizer off every object of a kind; off how many it was."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(obj: Mapping[str, Any]) -> bool:
        async with room:
            return await _without(api, kind, obj, lead)

    count = 0
    async with aclosing(api.pages(kind)) as pages:
        async for page in pages:
            count += sum(await asyncio.gather(*map(one, page["items"])))
    return count


async def _without(api: Api, kind: Kind, obj: Mapping[str, Any], lead: Leader) -> bool:
    """Take our finalizer off an object, leaving others' as they are; whether it was there."""
    finalizer, metadata = _FINALIZERS[kind], obj["metadata"]
    where = {"namespace": metadata.get("namespace", "")}
    for _ in range(_TRIES):
        if finalizer not in (metadata.get("finalizers") or ()):
            return False
        if not lead.is_leader:
            raise CatalogError("the Lease was lost")
        left = [other for other in metadata["finalizers"] if other != finalizer]
        patch = {"metadata": {"finalizers": left, "resourceVersion": metadata["resourceVersion"]}}
        try:
            await api.merge(kind, metadata["name"], patch, **where)
        except NotFound:
            return False
        except Conflict:
            try:
                metadata = (await api.get(kind, metadata["name"], **where))["metadata"]
            except NotFound:
                return False
        else:
            return True
    raise CatalogError(f"{kind.name} {metadata['name']} is written by others all the time")
