"""The catalog: what both admission paths look things up in."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from gpu.gpudevice import GPUDevice
from gpu.migration import Migration
from gpu.offer import Offer
from gpu.pod import Pod
from gpu.template import DeviceTemplate
from gpu.vmi import VMI


class Catalog(Protocol):
    """Lookups from memory are plain calls; a fresh read and a write are awaited.

    A fresh read answers from the API itself, and raises CatalogError when that can't be had. Names are taken as they
    come: one that no object can have is the name of none.
    """

    @property
    def synced(self) -> bool:
        """Whether memory is filled, so that what it lacks does not exist."""

    @property
    def offer(self) -> Offer:
        """The classes and the settings."""

    def device(self, namespace: str, name: str) -> GPUDevice | None:
        """A device."""

    def devices(self, namespace: str) -> Sequence[GPUDevice]:
        """A namespace's devices."""

    def vmi(self, namespace: str, name: str) -> VMI | None:
        """A VMI."""

    def vmis(self, namespace: str) -> Sequence[VMI]:
        """A namespace's VMIs."""

    def referrers(self, namespace: str, device: str) -> Sequence[VMI]:
        """The VMIs whose device-reference label names the device."""

    def pods(self, namespace: str, vmi_uid: str) -> Sequence[Pod]:
        """The pods whose controller owner is the VMI, and that ask for an extended resource."""

    def migration(self, namespace: str, uid: str) -> Migration | None:
        """A migration, by its uid."""

    async def fresh_offer(self) -> Offer:
        """The classes and the settings, read afresh."""

    async def fresh_device(self, namespace: str, name: str) -> GPUDevice | None:
        """A device, read afresh."""

    async def fresh_devices(self, namespace: str) -> Sequence[GPUDevice]:
        """A namespace's devices, read afresh."""

    async def fresh_vmi(self, namespace: str, name: str) -> VMI | None:
        """A VMI, read afresh."""

    async def fresh_vmis(self, namespace: str) -> Sequence[VMI]:
        """A namespace's VMIs, read afresh."""

    async def fresh_referrers(self, namespace: str, device: str) -> Sequence[VMI]:
        """The VMIs whose device-reference label names the device, read afresh."""

    async def fresh_pods(self, namespace: str, vmi_uid: str) -> Sequence[Pod]:
        """The pods of a VMI, read afresh."""

    async def fresh_migration(self, namespace: str, uid: str) -> Migration | None:
        """A migration, by its uid, read afresh."""

    async def claimed_classes(self, namespace: str, *, claim: str | None, template: str | None) -> frozenset[str]:
        """The DeviceClasses that a ResourceClaim or a ResourceClaimTemplate asks for, read afresh.

        Every alternative of ``firstAvailable`` counts. Empty where the claim does not exist.
        """

    async def build_device(
        self, namespace: str, name: str, template: DeviceTemplate, *, dry_run: bool = False
    ) -> GPUDevice:
        """Create a template device. Raises NameTaken, BuildRefused (a quota), or another CatalogError.

        On a dry run it is only asked whether it could be, and the device as it would be is given.
        """

    async def take_over(self, device: GPUDevice, *, at: datetime) -> GPUDevice:
        """Write on a template device that another VMI takes it over, provided that it is as it was read.

        Raises Changed when it was changed or deleted since.
        """
