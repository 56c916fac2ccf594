"""The embedded catalog: the pair's whole world in memory, read from a directory of manifests."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final, Self
from uuid import uuid4

from gpu import fields, names
from gpu.clock import Clock, utc_now
from gpu.errors import BuildRefused, Changed, FieldError, NameTaken
from gpu.gpudevice import GPUDevice
from gpu.migration import Migration
from gpu.offer import Offer
from gpu.pod import Pod
from gpu.template import DeviceTemplate
from gpu.usage import idle_template_devices
from gpu.vmi import VMI
from webhooks.manifests import ManifestError, read_manifests
from webhooks.shelf import QUOTA, Shelf

_NEVER_CAME: Final = timedelta(minutes=2)


class EmbeddedCatalog:
    """A catalog that holds what it was given and what is built in it; memory and truth are the same.

    It does two things that a cluster's controller does: where no ``gpu-settings`` is given the names are those of its
    classes, and a template device that no VMI came for within two minutes goes when the next one is built. It holds no
    devices: give them a status.
    """

    def __init__(self, *, clock: Clock = utc_now) -> None:
        self._clock = clock
        self._truth = Shelf()
        self._memory = self._truth
        self._versions = count(1)

    @classmethod
    def from_directory(cls, directory: Path, *, clock: Clock = utc_now) -> Self:
        """Read every manifest below a directory; kinds that admission does not look at are passed over.

        Raises ManifestError, with the file, the object and the field.
        """
        catalog = cls(clock=clock)
        for manifest in read_manifests(directory):
            obj = manifest.obj
            try:
                catalog.add(obj)
            except FieldError as error:
                name = manifest.metadata.get("name")
                shown = f" {fields.clip(name)!r}" if isinstance(name, str) else ""
                problem = f"{fields.clip(obj['kind'])}{shown}: {error}"
                raise ManifestError(manifest.file, problem, manifest.line(error.path)) from None
        return catalog

    def add(self, obj: Mapping[str, Any]) -> None:
        """Put an object in, in place of what has its name. Raises FieldError."""
        self._truth.put(self._stored(obj))

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """Take an object out, if it is there; ``namespace`` is empty for what has none."""
        self._truth.drop(kind, namespace, name)

    def stored(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """An object as it came in, or as it was built; ``namespace`` is empty for what has none."""
        return self._truth.stored(kind, namespace, name)

    def every_device(self) -> list[GPUDevice]:
        """The devices of all namespaces."""
        return [device for devices in self._truth.devices.values() for device in devices.values()]

    def _stored(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        metadata = fields.required_object(obj, "metadata", "")
        given = {"namespace": "default", "uid": str(uuid4()), **metadata}
        return {**obj, "metadata": {**given, "resourceVersion": str(next(self._versions))}}

    @property
    def synced(self) -> bool:
        """True: it is filled before anybody has it."""
        return True

    @property
    def offer(self) -> Offer:
        """See Catalog."""
        return self._memory.offer

    def device(self, namespace: str, name: str) -> GPUDevice | None:
        """See Catalog."""
        return self._memory.devices[namespace].get(name)

    def devices(self, namespace: str) -> Sequence[GPUDevice]:
        """See Catalog."""
        return list(self._memory.devices[namespace].values())

    def vmi(self, namespace: str, name: str) -> VMI | None:
        """See Catalog."""
        return self._memory.vmis[namespace].get(name)

    def vmis(self, namespace: str) -> Sequence[VMI]:
        """See Catalog."""
        return list(self._memory.vmis[namespace].values())

    def referrers(self, namespace: str, device: str) -> Sequence[VMI]:
        """See Catalog."""
        return self._memory.referrers(namespace, device)

    def pods(self, namespace: str, vmi_uid: str) -> Sequence[Pod]:
        """See Catalog."""
        return self._memory.pods_of(namespace, vmi_uid)

    def migration(self, namespace: str, uid: str) -> Migration | None:
        """See Catalog."""
        return self._memory.migration(namespace, uid)

    async def fresh_offer(self) -> Offer:
        """See Catalog."""
        return self._truth.offer

    async def fresh_device(self, namespace: str, name: str) -> GPUDevice | None:
        """See Catalog."""
        return self._truth.devices[namespace].get(name)

    async def fresh_devices(self, namespace: str) -> Sequence[GPUDevice]:
        """See Catalog."""
        self._drop_abandoned(namespace)
        return list(self._truth.devices[namespace].values())

    async def fresh_vmi(self, namespace: str, name: str) -> VMI | None:
        """See Catalog."""
        return self._truth.vmis[namespace].get(name)

    async def fresh_vmis(self, namespace: str) -> Sequence[VMI]:
        """See Catalog."""
        return list(self._truth.vmis[namespace].values())

    async def fresh_referrers(self, namespace: str, device: str) -> Sequence[VMI]:
        """See Catalog."""
        return self._truth.referrers(namespace, device)

    async def fresh_pods(self, namespace: str, vmi_uid: str) -> Sequence[Pod]:
        """See Catalog."""
        return self._truth.pods_of(namespace, vmi_uid)

    async def fresh_migration(self, namespace: str, uid: str) -> Migration | None:
        """See Catalog."""
        return self._truth.migration(namespace, uid)

    async def claimed_classes(self, namespace: str, *, claim: str | None, template: str | None) -> frozenset[str]:
        """See Catalog."""
        table, name = (self._truth.claims, claim) if claim else (self._truth.claim_templates, template)
        return table[namespace].get(name or "", frozenset())

    async def build_device(
        self, namespace: str, name: str, template: DeviceTemplate, *, dry_run: bool = False
    ) -> GPUDevice:
        """See Catalog; a ResourceQuota among the manifests is kept."""
        self._drop_abandoned(namespace)
        existing = self._truth.devices[namespace]
        if name in existing:
            raise NameTaken(f"gpudevices.{names.GROUP} {name!r} already exists")
        for quota, most in self._truth.quotas[namespace].items():
            if len(existing) >= most:
                used = f"requested: {QUOTA}=1, used: {QUOTA}={len(existing)}, limited: {QUOTA}={most}"
                raise BuildRefused(f"exceeded quota: {quota}, {used}")
        if dry_run:
            return template.device(namespace, name)
        return self._written(template.manifest(namespace, name), {"creationTimestamp": self._clock().isoformat()})

    async def take_over(self, device: GPUDevice, *, at: datetime) -> GPUDevice:
        """See Catalog."""
        stored = self._truth.stored(names.GPU_DEVICE, device.namespace, device.name)
        if stored is None or stored["metadata"]["resourceVersion"] != device.resource_version:
            raise Changed(f"GPUDevice {device.name!r} was changed since it was read")
        annotations = {**(stored["metadata"].get("annotations") or {}), names.TAKEN_OVER: at.isoformat()}
        return self._written(stored, {"annotations": annotations})

    def _written(self, obj: Mapping[str, Any], metadata: Mapping[str, Any]) -> GPUDevice:
        self.add({**obj, "metadata": {**obj["metadata"], **metadata}})
        return self._truth.devices[obj["metadata"]["namespace"]][obj["metadata"]["name"]]

    def _drop_abandoned(self, namespace: str) -> None:
        built = [device for device in self._truth.devices[namespace].values() if device.from_template]
        if not built:
            return
        vmis, now = self._truth.vmis[namespace].values(), self._clock()
        for device in built:
            old = device.touched is not None and now - device.touched > _NEVER_CAME
            if old and idle_template_devices([device], vmis):
                self._truth.drop(names.GPU_DEVICE, namespace, device.name)
