"""The cluster's catalog: memory kept by watches, fresh reads and writes of the API server."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final, Self, TypeVar

from cluster import kinds
from cluster.api import Api
from cluster.errors import ApiError, Conflict, NotFound
from cluster.kinds import Kind
from cluster.memory import Memory
from cluster.watch import SILENCE, Watch
from gpu import names
from gpu.claims import claimed_device_classes
from gpu.errors import BuildRefused, CatalogError, Changed, FieldError, NameTaken
from gpu.fields import clip, printable
from gpu.gpuclass import GPUClass
from gpu.gpudevice import GPUDevice, is_device_name
from gpu.migration import Migration
from gpu.offer import GPUSettings, Offer
from gpu.pod import Pod, owning_vmi
from gpu.template import DeviceTemplate
from gpu.vmi import VMI

T = TypeVar("T")

STALE: Final = 2 * SILENCE
"""Seconds without news of a kind after which memory is not relied on.

A positive answer rests on memory. The pods that get GPUs are let in on fresh reads only, so a memory that is some
minutes behind costs no guarantee, only a VM that is let in and then waits; while refusing at once would stop every GPU
VM for a watch that is just being taken up again. It takes SILENCE to find out that a connection is dead, and as long
once more to be sure that no other can be had.
"""

_NOT_REFUSED: Final = frozenset({401, 408, 409, 410, 429})
"""Answers to a create that say nothing about the device: it is worth another try."""

_STARTING: Final = "failed to configure policy"
"""What an API server says that has just started and does not know yet, for up to half a minute, what kind a policy's
parameters are (k8s.io/apiserver, admission/plugin/policy/generic)."""


class ClusterCatalog:
    """A gpu.catalog.Catalog of a cluster: ``namespace`` is the release's, where the settings are.

    Not synced before everything was read once, nor when a kind has not been heard of for ``stale`` seconds.
    """

    def __init__(self, api: Api, *, namespace: str, silence: float = SILENCE, stale: float = STALE) -> None:
        self.memory = Memory()
        self._api = api
        self._namespace = namespace
        self._stale = stale
        memory = self.memory
        settings = f"metadata.name={names.SETTINGS}"
        watch = partial(Watch, api, silence=silence)
        self.watches = (
            watch(kinds.GPU_CLASSES, memory.classes),
            watch(kinds.CONFIG_MAPS, memory.settings, namespace=namespace, fields=settings),
            watch(kinds.GPU_DEVICES, memory.devices),
            watch(kinds.VMIS, memory.vmis),
            watch(kinds.MIGRATIONS, memory.migrations),
            watch(kinds.PODS, memory.pods),
        )
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    @asynccontextmanager
    async def of(cls, api: Api, *, namespace: str) -> AsyncIterator[Self]:
        """One that is kept up to date within; it is not filled yet when it is given."""
        catalog = cls(api, namespace=namespace)
        catalog.start()
        try:
            yield catalog
        finally:
            await catalog.stop()

    def start(self) -> None:
        """Begin to watch."""
        self._tasks = [asyncio.create_task(watch.run(), name=f"watch {watch.kind.resource}") for watch in self.watches]

    async def stop(self) -> None:
        """End the watches; the Api stays open."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def wait_synced(self, within: float) -> None:
        """Wait until everything was read. Raises CatalogError, with what was not and why, after so many seconds."""
        try:
            async with asyncio.timeout(within):
                for watch in self.watches:
                    await watch.filled.wait()
        except TimeoutError:
            raise CatalogError(f"not read within {within:g} s: {self._told(self._unfilled())}") from None

    def _unfilled(self) -> list[Watch]:
        return [watch for watch in self.watches if not watch.filled.is_set()]

    def _silent(self) -> list[Watch]:
        oldest = time.monotonic() - self._stale
        return [watch for watch in self.watches if watch.filled.is_set() and watch.heard < oldest]

    @staticmethod
    def _told(watches: Iterable[Watch]) -> str:
        return "; ".join(f"{watch.kind.resource} ({watch.problem or 'still being read'})" for watch in watches)

    @property
    def synced(self) -> bool:
        """See Catalog."""
        oldest = time.monotonic() - self._stale
        return all(watch.filled.is_set() and watch.heard >= oldest for watch in self.watches)

    def waiting(self) -> str:
        """Which kinds it is not synced for, and why; empty where it is."""
        lines = []
        if unfilled := self._unfilled():
            lines.append(f"not read yet: {self._told(unfilled)}")
        if silent := self._silent():
            told = "; ".join(f"{watch.kind.resource} ({watch.problem or 'no answer'})" for watch in silent)
            lines.append(f"not heard of for {self._stale:g} s: {told}")
        return "\n".join(lines)

    @property
    def offer(self) -> Offer:
        """See Catalog."""
        return self.memory.offer

    def device(self, namespace: str, name: str) -> GPUDevice | None:
        """See Catalog."""
        return self.memory.devices.get(namespace, name)

    def devices(self, namespace: str) -> Sequence[GPUDevice]:
        """See Catalog."""
        return self.memory.devices.of(namespace)

    def vmi(self, namespace: str, name: str) -> VMI | None:
        """See Catalog."""
        return self.memory.vmis.get(namespace, name)

    def vmis(self, namespace: str) -> Sequence[VMI]:
        """See Catalog."""
        return self.memory.vmis.of(namespace)

    def referrers(self, namespace: str, device: str) -> Sequence[VMI]:
        """See Catalog."""
        return self.memory.vmis.found(namespace, device)

    def pods(self, namespace: str, vmi_uid: str) -> Sequence[Pod]:
        """See Catalog."""
        return self.memory.pods.found(namespace, vmi_uid)

    def migration(self, namespace: str, uid: str) -> Migration | None:
        """See Catalog."""
        return next(iter(self.memory.migrations.found(namespace, uid)), None)

    async def fresh_offer(self) -> Offer:
        """See Catalog."""
        classes, settings = await asyncio.gather(
            self._list(kinds.GPU_CLASSES, GPUClass.from_dict),
            self._get(kinds.CONFIG_MAPS, GPUSettings.from_dict, self._namespace, names.SETTINGS),
        )
        return Offer({found.name: found for found in classes}, settings)

    async def fresh_device(self, namespace: str, name: str) -> GPUDevice | None:
        """See Catalog."""
        return await self._get(kinds.GPU_DEVICES, GPUDevice.from_dict, namespace, name)

    async def fresh_devices(self, namespace: str) -> Sequence[GPUDevice]:
        """See Catalog."""
        return await self._list(kinds.GPU_DEVICES, GPUDevice.from_dict, namespace)

    async def fresh_vmi(self, namespace: str, name: str) -> VMI | None:
        """See Catalog."""
        return await self._get(kinds.VMIS, VMI.from_dict, namespace, name)

    async def fresh_vmis(self, namespace: str) -> Sequence[VMI]:
        """See Catalog."""
        return await self._list(kinds.VMIS, VMI.from_dict, namespace)

    async def fresh_referrers(self, namespace: str, device: str) -> Sequence[VMI]:
        """See Catalog."""
        if not is_device_name(device):
            return ()
        return await self._list(kinds.VMIS, VMI.from_dict, namespace, labels=f"{names.DEVICE_REFERENCE}={device}")

    async def fresh_pods(self, namespace: str, vmi_uid: str) -> Sequence[Pod]:
        """See Catalog."""

        def of_the_vmi(obj: Mapping[str, Any]) -> Pod | None:
            pod = Pod.from_dict(obj) if owning_vmi(obj["metadata"]) == vmi_uid else None
            return pod if pod and pod.resources else None

        return [pod for pod in await self._list(kinds.PODS, of_the_vmi, namespace) if pod]

    async def fresh_migration(self, namespace: str, uid: str) -> Migration | None:
        """See Catalog."""
        found = await self._list(kinds.MIGRATIONS, Migration.from_dict, namespace)
        return next((migration for migration in found if migration.uid == uid), None)

    async def claimed_classes(self, namespace: str, *, claim: str | None, template: str | None) -> frozenset[str]:
        """See Catalog."""
        kind, name = (kinds.RESOURCE_CLAIMS, claim) if claim else (kinds.RESOURCE_CLAIM_TEMPLATES, template)
        return await self._get(kind, claimed_device_classes, namespace, name or "") or frozenset()

    async def build_device(
        self, namespace: str, name: str, template: DeviceTemplate, *, dry_run: bool = False
    ) -> GPUDevice:
        """See Catalog."""
        manifest = template.manifest(namespace, name)
        try:
            obj = await self._api.create(kinds.GPU_DEVICES, manifest, namespace=namespace, dry_run=dry_run)
        except ApiError as error:
            if error.reason == "AlreadyExists":
                raise NameTaken(error.message) from None
            if 400 <= error.code < 500 and error.code not in _NOT_REFUSED and _STARTING not in error.message:
                raise BuildRefused(error.message, code=error.code, reason=error.reason) from None
            raise
        return template.device(namespace, name) if dry_run else self._remembered(obj)

    async def take_over(self, device: GPUDevice, *, at: datetime) -> GPUDevice:
        """See Catalog."""
        metadata = {"resourceVersion": device.resource_version, "annotations": {names.TAKEN_OVER: at.isoformat()}}
        try:
            obj = await self._api.merge(
                kinds.GPU_DEVICES, device.name, {"metadata": metadata}, namespace=device.namespace
            )
        except (Conflict, NotFound) as error:
            raise Changed(error.message) from None
        return self._remembered(obj)

    def _remembered(self, obj: Mapping[str, Any]) -> GPUDevice:
        """What we wrote, put into memory too, so that the call that follows finds it there."""
        with _readable(kinds.GPU_DEVICES, obj):
            self.memory.devices.remember(obj)
            return GPUDevice.from_dict(obj)

    async def _get(self, kind: Kind, read: Callable[[Mapping[str, Any]], T], namespace: str, name: str) -> T | None:
        obj = await self._api.find(kind, name, namespace=namespace)
        if obj is None:
            return None
        with _readable(kind, obj):
            return read(obj)

    async def _list(
        self, kind: Kind, read: Callable[[Mapping[str, Any]], T], namespace: str = "", *, labels: str = ""
    ) -> list[T]:
        if kind.namespaced and not namespace:
            return []
        found = []
        try:
            async with aclosing(self._api.pages(kind, namespace=namespace, labels=labels)) as pages:
                async for page in pages:
                    for obj in page["items"]:
                        with _readable(kind, obj):
                            found.append(read(obj))
        except NotFound:
            return []
        return found


@contextmanager
def _readable(kind: Kind, obj: Mapping[str, Any]) -> Iterator[None]:
    try:
        yield
    except FieldError as error:
        name = (obj.get("metadata") or {}).get("name")
        raise CatalogError(f"{kind.name} {printable(clip(str(name), 253))!r} can't be read: {error}") from None
