"""The device of a VMI that orders one by the device-template annotation: kept, taken over or built."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from gpu import template
from gpu.errors import BuildRefused, CatalogError, Changed, NameTaken
from gpu.gpudevice import GPUDevice
from gpu.offer import Offer
from gpu.rewrite import Grant
from gpu.template import DeviceTemplate, Maker
from gpu.usage import idle_template_devices
from gpu.vmi import VMISpec
from webhooks.answer import Cause, Refusal, forbidden, unavailable
from webhooks.context import Context
from webhooks.facts import Facts, afresh, judged, judged_by_offer
from webhooks.review import Request
from webhooks.rules.order import order_is_offered
from webhooks.rules.reference import Claimant, idle_device, what_is_granted, what_is_to_be_granted
from webhooks.rules.vmi import no_more_entries_than_granted

MOST_IDLE: Final = 64
"""Template devices without a VMI that a namespace may have."""

_TRIES: Final = 16
_JUST_TOUCHED: Final = timedelta(seconds=5)
_GONE: Final = unavailable("the device is gone")

_Rule: TypeAlias = Callable[[Facts, str, DeviceTemplate, Claimant], GPUDevice | Refusal]


class Fit(NamedTuple):
    """What a device grants, and the resource names that count as GPUs beside it."""

    grant: Grant
    gpu_names: AbstractSet[str]


class Found(NamedTuple):
    """The device to use, what fits it, and a line for the person who asked, if there is news."""

    device: GPUDevice
    fit: Fit
    note: str = ""


async def template_device(request: Request, context: Context, vmi: VMISpec, wanted: DeviceTemplate) -> Found | Refusal:
    """The device that a device-template annotation has a VMI use.

    A label beside the annotation keeps the device that it names; a label of nothing that exists is replaced. Raises
    FieldError for malformed metadata and CatalogError for what can't be decided now.
    """
    search = _Search(request, context, Claimant(request.namespace, vmi.name, None), wanted)
    catalog = context.catalog
    if vmi.reference is not None:
        kept = await search.keep(vmi.reference)
        if isinstance(kept, Refusal):
            return kept
        if kept is not None:
            fit = await judged_by_offer(partial(_fits, vmi, kept), catalog)
            return fit if isinstance(fit, Refusal) else Found(kept, fit)

    maker = Maker.of(vmi.metadata, request_uid="" if request.dry_run else request.uid)
    name = maker.device_name(wanted)

    def judge(offer: Offer) -> Fit | Refusal:
        refusal = order_is_offered(offer, wanted.class_name, wanted.count, field=template.FIELD)
        return refusal or what_fits(vmi, what_is_to_be_granted(wanted, name, offer), offer)

    fit = await judged_by_offer(judge, catalog)
    if isinstance(fit, Refusal):
        return fit
    found = await search.build(maker, name)
    if isinstance(found, Refusal):
        return found
    device, note = found
    if device.held:
        fit = await judged_by_offer(partial(_fits, vmi, device), catalog)
    return fit if isinstance(fit, Refusal) else Found(device, fit, note)


def _fits(vmi: VMISpec, device: GPUDevice, offer: Offer) -> Fit | Refusal:
    return what_fits(vmi, what_is_granted(device, offer), offer)


def what_fits(vmi: VMISpec, grant: Grant | Refusal, offer: Offer) -> Fit | Refusal:
    """What is granted, where the VMI has no more entries than that; what keeps it from being granted where it isn't."""
    if isinstance(grant, Refusal):
        return grant
    gpu_names = grant.with_names(offer.names)
    return no_more_entries_than_granted(vmi, grant, gpu_names) or Fit(grant, gpu_names)


@dataclass(slots=True)
class _Search:
    request: Request
    context: Context
    claimant: Claimant
    wanted: DeviceTemplate

    async def keep(self, reference: str) -> GPUDevice | Refusal | None:
        """The device that the label names; None where there is none."""

        return await self._claim(reference, idle_device, spare=_JUST_TOUCHED)

    async def build(self, maker: Maker, name: str) -> tuple[GPUDevice, str] | Refusal:
        """A device of its own: an earlier one of the same VM where that is idle, else a new one.

        ``name`` is the first that it could have.
        """
        namespace = self.request.namespace
        for salt in range(_TRIES):
            if salt:
                name = maker.device_name(self.wanted, salt=salt)
            known = self.context.catalog.device(namespace, name) is not None
            claimed = await self._claim(name, idle_device) if known else None
            if claimed is None:
                created = await self._create(name)
                if created is not None:
                    return created if isinstance(created, Refusal) else (created, self._note(created, "built", "built"))
                claimed = await self._claim(name, idle_device)
            if isinstance(claimed, GPUDevice):
                return claimed, self._note(claimed, "took over", "taken over")
        raise CatalogError(f"no free name for a device was found in {_TRIES} tries")

    def _note(self, device: GPUDevice, did: str, done: str) -> str:
        what = f"would have {done}" if self.request.dry_run else did
        return f"{what} GPUDevice {device.name}: {device.count} of class {device.class_name}"

    async def _claim(self, name: str, rule: _Rule, *, spare: timedelta = timedelta()) -> GPUDevice | Refusal | None:
        """The device after a write on it that tells others it is wanted; None where it does not exist.

        Without that write the controller could delete an idle device at the moment at which a VMI comes to refer to it.
        It is spared where the device was written on less than ``spare`` ago.
        """
        catalog, namespace = self.context.catalog, self.request.namespace

        def judge(facts: Facts) -> GPUDevice | Refusal | None:
            return rule(facts, name, self.wanted, self.claimant) if facts.device else None

        device = await judged(lambda facts: judge(facts) or _GONE, catalog, namespace, name)
        for _ in range(_TRIES):
            if isinstance(device, Refusal):
                return None if device is _GONE else device
            now = self.context.clock()
            if self.request.dry_run or (device.touched is not None and now - device.touched < spare):
                return device
            try:
                device = await catalog.take_over(device, at=now)
            except Changed:
                device = judge(await afresh(catalog, namespace, name)) or _GONE
                continue
            self.context.devices("taken over")
            return device
        raise CatalogError(f"GPUDevice {name!r} was changed by others in {_TRIES} tries to take it over")

    async def _create(self, name: str) -> GPUDevice | Refusal | None:
        """The new device; None where the name is taken by now."""
        catalog, namespace = self.context.catalog, self.request.namespace
        if len(catalog.devices(namespace)) >= MOST_IDLE and (refusal := await self._too_many_idle()):
            return refusal
        dry_run = self.request.dry_run
        try:
            created = await catalog.build_device(namespace, name, self.wanted, dry_run=dry_run)
        except NameTaken:
            return None
        except BuildRefused as error:
            if not dry_run:
                self.context.devices("refused")
            cause = Cause(template.FIELD, f"its device can't be created: {error}")
            return Refusal(code=error.code, reason=error.reason, causes=(cause,))
        if not dry_run:
            self.context.devices("built")
        return created

    async def _too_many_idle(self) -> Refusal | None:
        """A namespace has at most 64 template devices without a VMI."""
        catalog, namespace = self.context.catalog, self.request.namespace
        if idle_template_devices(catalog.devices(namespace), catalog.vmis(namespace)) < MOST_IDLE:
            return None
        idle = idle_template_devices(await catalog.fresh_devices(namespace), await catalog.fresh_vmis(namespace))
        if idle < MOST_IDLE:
            return None
        message = f"the namespace has {idle} devices from templates that no VM came for, and {MOST_IDLE} are the most"
        return forbidden(template.FIELD, message, "wait two minutes until they are gone, or delete some")
