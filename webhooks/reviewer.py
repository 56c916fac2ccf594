"""Manifests reviewed as a cluster would take them, without a cluster."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from gpu import fields, names
from gpu.errors import FieldError
from gpu.gpudevice import GPUDevice
from gpu.pod import owning_vmi
from webhooks.admit import Admitter, TooLargeError, let_in
from webhooks.embedded import EmbeddedCatalog
from webhooks.instancetypes import INSTANCETYPES, Applied, Instancetype, with_instancetype
from webhooks.manifests import Manifest
from webhooks.outcome import COUNTED, GROUPS, LOOKED_UP, SKIPPED, Outcome, Place
from webhooks.settings import Settings
from webhooks.testing.reviews import VIRT_CONTROLLER, User
from webhooks.validating.family import foretells_refusal
from webhooks.virtcontroller import TEMPLATE_PATHS, vmi_of, vmi_template

_RANKS: Final = {**dict.fromkeys(LOOKED_UP, 0), names.GPU_CLASS: 1, names.GPU_DEVICE: 2, names.VMI: 3}
_LAST: Final = 4
_ADMIN: Final = User("kubernetes-admin", ("system:authenticated",))


class _UnusableError(Exception):
    """An object that can't be judged: the field, and why."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(problem)
        self.field = field
        self.problem = problem


class Reviewer:
    """Takes manifests through both paths, on a catalog that grows by what is admitted.

    Whatever the order of the manifests, what is looked up counts for all; classes are judged first, then devices, VMIs,
    and the rest: as things are once everything is applied. The VMIs of VMs, replica sets and pools are asked for by
    virt-controller, and everything else by ``user``; without one, by virt-controller what a VMI owns, and by somebody
    who is not the platform what nobody owns. ``namespace`` is for manifests that do not say.
    """

    def __init__(
        self,
        catalog: EmbeddedCatalog,
        settings: Settings,
        *,
        user: User | None = None,
        operation: str = "CREATE",
        namespace: str = "default",
    ) -> None:
        self._catalog = catalog
        self._user = user
        self._operation = operation
        self._namespace = namespace
        self._controller = VIRT_CONTROLLER._replace(username=settings.virt_controller)
        self._pair = Admitter(catalog, settings)
        self._instancetypes: dict[tuple[str, str, str], Manifest] = {}

    async def review(self, manifests: Iterable[Manifest]) -> list[Outcome]:
        """An outcome for each manifest, in their order."""
        outcomes = [Outcome.of(manifest, namespace=self._namespace) for manifest in manifests]
        for outcome in sorted(outcomes, key=lambda outcome: _RANKS.get(outcome.kind, _LAST)):
            try:
                await self._judge(outcome)
            except FieldError as error:
                outcome.refuse(422, [(error.path, error.problem)])
            except TooLargeError as error:
                outcome.unusable("", str(error))
            except _UnusableError as error:
                outcome.unusable(error.field, error.problem)
        return outcomes

    async def _judge(self, outcome: Outcome) -> None:
        obj = outcome.manifest.obj
        if outcome.kind in LOOKED_UP:
            self._look_up(outcome, obj)
        elif outcome.kind not in GROUPS or _group(obj) != GROUPS[outcome.kind]:
            outcome.verdict = SKIPPED
        elif outcome.kind == names.GPU_CLASS:
            self._class(outcome, _identified(obj, outcome))
        elif outcome.kind == names.GPU_DEVICE:
            await self._device(outcome, _identified(obj, outcome))
        elif outcome.kind in TEMPLATE_PATHS:
            await self._family(outcome, _identified(obj, outcome))
        else:
            obj = _identified(obj, outcome)
            await self._pair.admit(
                outcome, obj, self._asker(outcome, obj), operation=self._operation, old=self._old(outcome)
            )

    def _look_up(self, outcome: Outcome, obj: Mapping[str, Any]) -> None:
        """Have it count for the others; where it is malformed they can't be judged rightly."""
        if outcome.kind == "ConfigMap" and outcome.name != names.SETTINGS:
            outcome.verdict = SKIPPED
            return
        outcome.verdict = COUNTED
        try:
            if outcome.kind in INSTANCETYPES:
                Instancetype.from_dict(obj)
                self._instancetypes[outcome.kind, outcome.namespace, outcome.name] = outcome.manifest
            else:
                metadata = fields.required_object(obj, "metadata", "")
                self._catalog.add({**obj, "metadata": {**metadata, "namespace": outcome.namespace}})
        except FieldError as error:
            raise _UnusableError(error.path, error.problem) from None

    def _class(self, outcome: Outcome, obj: Mapping[str, Any]) -> None:
        stored = self._catalog.stored(names.GPU_CLASS, "", outcome.name)
        self._old(outcome)
        if self._operation != "DELETE":
            self._catalog.add({"status": (stored or {}).get("status"), **obj})

    async def _device(self, outcome: Outcome, obj: Mapping[str, Any]) -> None:
        user = self._asker(outcome, obj)
        reply = await self._pair.ask("validate", obj, user, operation=self._operation, old=self._old(outcome))
        if not let_in(reply, outcome) or self._operation != "CREATE":
            return
        device = GPUDevice.from_dict(obj)
        known = self._catalog.device(device.namespace, device.name)
        if known is None:
            self._catalog.add(obj)
        elif not known.fits(device.class_name, device.count):
            told = "spec: the catalog has this device with another spec, which never changes; that one counts"
            outcome.warnings += outcome.noted([told])

    async def _family(self, outcome: Outcome, obj: Mapping[str, Any]) -> None:
        """A VM, a replica set or a pool: what it is told, and what its VMI meets, which is not told twice."""
        user = self._asker(outcome, obj)
        reply = await self._pair.ask("validate", obj, user, operation=self._operation, old=self._old(outcome))
        if not let_in(reply, outcome) or self._operation == "DELETE":
            return
        outcome.warnings += outcome.noted([line for line in reply.warnings if not foretells_refusal(line)])
        found = vmi_template(obj)
        if found is None:
            missing = ".".join(TEMPLATE_PATHS[outcome.kind])
            outcome.warnings += outcome.noted([f"{missing}: is missing, so that there is no VMI to review"])
            return
        vmi = vmi_of(obj, namespace=outcome.namespace)
        applied = with_instancetype(obj, vmi, namespace=outcome.namespace, stored=self._stored)
        outcome.warnings += outcome.noted([f"{path}: {message}" for path, message in applied.missing])
        outcome.places = [Place(outcome.manifest, "", found[1]), *self._origins(outcome, applied, found[1])]
        if applied.conflicts:
            outcome.refuse(422, applied.conflicts, "take it out of the one or the other")
            return
        await self._pair.admit(outcome, applied.vmi, self._controller, operation="CREATE")
        if outcome.kind != names.VM:
            outcome.devices = [f"{device}, for each replica" for device in outcome.devices]

    def _stored(self, kind: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        manifest = self._instancetypes.get((kind, namespace, name))
        return manifest.obj if manifest else self._catalog.stored(kind, namespace, name)

    def _origins(self, outcome: Outcome, applied: Applied, path: str) -> Iterator[Place]:
        """Where the fields stand that an instancetype gave: in its manifest, or for the catalog's in what names it."""
        for field, (instancetype, there) in applied.origins.items():
            of = f"{instancetype.kind} {instancetype.name}"
            keys = [(instancetype.kind, namespace, instancetype.name) for namespace in ("", outcome.namespace)]
            manifest = next((self._instancetypes[key] for key in keys if key in self._instancetypes), None)
            if manifest is not None:
                yield Place(manifest, field, there, of)
            else:
                yield Place(
                    outcome.manifest, field, there, of, f"{path.removesuffix('.template')}.{instancetype.field}"
                )

    def _asker(self, outcome: Outcome, obj: Mapping[str, Any]) -> User:
        user = self._user or (self._controller if owning_vmi(obj["metadata"]) else _ADMIN)
        outcome.user = user.username
        return user

    def _old(self, outcome: Outcome) -> Mapping[str, Any] | None:
        """What an UPDATE changes."""
        if self._operation != "UPDATE":
            return None
        namespace = "" if outcome.kind == names.GPU_CLASS else outcome.namespace
        old = self._catalog.stored(outcome.kind, namespace, outcome.name)
        if old is None:
            raise _UnusableError("metadata.name", "the catalog has no object of this name that could be updated")
        return old


def _group(obj: Mapping[str, Any]) -> str:
    version = obj.get("apiVersion")
    if not isinstance(version, str) or not version:
        raise _UnusableError("apiVersion", f"must be a group and a version, not {fields.described(version)}")
    return version.rpartition("/")[0]


def _identified(obj: Mapping[str, Any], outcome: Outcome) -> dict[str, Any]:
    """The object with a namespace, and with a name where that is not made in between the paths. Raises FieldError."""
    metadata = fields.required_object(obj, "metadata", "")
    name, generate_name, _ = (
        fields.optional_text(metadata, key, "metadata") for key in ("name", "generateName", "namespace")
    )
    if not name and not generate_name:
        raise FieldError("metadata.name", "is required, or a generateName", reason="FieldValueRequired")
    known = {"namespace": outcome.namespace} if outcome.namespace else {}
    if not name and outcome.kind not in {names.VMI, "Pod"}:
        known["name"] = f"{generate_name}xxxxx"
    return {**obj, "metadata": {**metadata, **known}}
