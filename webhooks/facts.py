"""What a decision about a device rests on, from memory or read afresh."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gpu.catalog import Catalog
from gpu.gpudevice import GPUDevice, is_device_name
from gpu.migration import Migration
from gpu.offer import Offer
from gpu.pod import Pod
from gpu.usage import in_use
from gpu.vmi import VMI
from webhooks.answer import Refusal

Verdict = TypeVar("Verdict")


@dataclass(slots=True, kw_only=True)
class Facts:
    """The offer, a device, and who uses it: ``holder`` is the VMI that has the binding's name, ``pods`` the binding's,
    ``referrers`` the VMIs that name the device.
    """

    offer: Offer
    device: GPUDevice | None
    holder: VMI | None
    pods: Sequence[Pod]
    referrers: Sequence[VMI]
    fresh: bool

    @property
    def in_use(self) -> bool:
        """Whether the device is in use."""
        return self.device is not None and in_use(self.device, vmi=self.holder, pods=self.pods)


def remembered(catalog: Catalog, namespace: str, name: str) -> Facts:
    """The facts about a device, from memory."""
    device = catalog.device(namespace, name)
    binding = device.binding if device else None
    return Facts(
        offer=catalog.offer,
        device=device,
        holder=catalog.vmi(namespace, binding.name) if binding else None,
        pods=catalog.pods(namespace, binding.uid) if binding else (),
        referrers=catalog.referrers(namespace, name) if device else (),
        fresh=False,
    )


async def afresh(catalog: Catalog, namespace: str, name: str) -> Facts:
    """The facts about a device, read afresh; the VMI before its pods, since it can go before they do.

    Raises CatalogError. A name that no device can have is not asked for: it may not be fit for a URL either.
    """
    if not is_device_name(name):
        return Facts(offer=await catalog.fresh_offer(), device=None, holder=None, pods=(), referrers=(), fresh=True)
    offer, device = await asyncio.gather(catalog.fresh_offer(), catalog.fresh_device(namespace, name))
    if device is None:
        return Facts(offer=offer, device=None, holder=None, pods=(), referrers=(), fresh=True)
    holder = await catalog.fresh_vmi(namespace, device.binding.name) if device.binding else None
    pods = await catalog.fresh_pods(namespace, device.binding.uid) if device.binding else ()
    referrers = await catalog.fresh_referrers(namespace, name)
    return Facts(offer=offer, device=device, holder=holder, pods=pods, referrers=referrers, fresh=True)


async def known_migration(catalog: Catalog, namespace: str, uid: str | None) -> Migration | None:
    """The migration of that uid; one that memory lacks is looked for afresh. Raises CatalogError."""
    if not uid:
        return None
    return catalog.migration(namespace, uid) or await catalog.fresh_migration(namespace, uid)


async def judged(
    judge: Callable[[Facts], Verdict | Refusal], catalog: Catalog, namespace: str, name: str
) -> Verdict | Refusal:
    """Judge by memory; what speaks against the request is read afresh before it is acted on. Raises CatalogError."""
    verdict = judge(remembered(catalog, namespace, name))
    return judge(await afresh(catalog, namespace, name)) if isinstance(verdict, Refusal) else verdict


async def judged_by_offer(judge: Callable[[Offer], Verdict | Refusal], catalog: Catalog) -> Verdict | Refusal:
    """Like ``judged``, for what rests on the classes and the settings alone. Raises CatalogError."""
    verdict = judge(catalog.offer)
    return judge(await catalog.fresh_offer()) if isinstance(verdict, Refusal) else verdict
