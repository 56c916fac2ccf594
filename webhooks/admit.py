"""Objects taken through both paths as kube-apiserver would take them."""

from collections.abc import Mapping
from typing import Any

import orjson

from gpu import names
from webhooks.admission import Admission
from webhooks.differences import difference
from webhooks.embedded import EmbeddedCatalog
from webhooks.outcome import Outcome
from webhooks.settings import MEBIBYTE, Settings
from webhooks.testing.reply import Reply
from webhooks.testing.reviews import User, persisted, review


class TooLargeError(Exception):
    """An object whose review is larger than the service reads; its text says so."""


class Admitter:
    """Asks the pair, bytes in and bytes out, on a catalog that grows by the VMIs that are admitted."""

    def __init__(self, catalog: EmbeddedCatalog, settings: Settings) -> None:
        self._catalog = catalog
        self._settings = settings
        self._admission = Admission.of(catalog=catalog, settings=settings)
        self._asked = 0

    async def ask(
        self, path: str, obj: Mapping[str, Any], user: User, *, operation: str, old: Mapping[str, Any] | None = None
    ) -> Reply:
        """The reply of ``mutate`` or ``validate``; a DELETE is about the object that was. Raises TooLargeError."""
        self._asked += 1
        uid = f"review-{self._asked}"
        gone = operation == "DELETE"
        body = orjson.dumps(
            review(None if gone else obj, operation=operation, old=obj if gone else old, user=user, uid=uid)
        )
        most = self._settings.largest_body
        if len(body) > most:
            raise TooLargeError(f"is larger than an API server takes, and than the {most // MEBIBYTE} MiB read here")
        return Reply.of(await self._admission.answered(body, path), uid=uid)

    async def admit(
        self,
        outcome: Outcome,
        obj: Mapping[str, Any],
        user: User,
        *,
        operation: str,
        old: Mapping[str, Any] | None = None,
    ) -> None:
        """Take an object through both paths and note what comes of it. Raises TooLargeError."""
        namespace, kind = obj["metadata"]["namespace"], obj["kind"]
        before = {device.name for device in self._catalog.devices(namespace)}
        mutated = await self.ask("mutate", obj, user, operation=operation, old=old)
        built = [device for device in self._catalog.devices(namespace) if device.name not in before]
        devices = [f"GPUDevice {device.name}: {device.count} of class {device.class_name}" for device in built]
        outcome.changes += outcome.noted(
            [line for line in mutated.warnings if line.removeprefix("built ") not in devices]
        )
        if not let_in(mutated, outcome):
            return
        changed = mutated.applied_to(obj) if mutated.patch else obj
        final = self._persisted(changed) if operation == "CREATE" else changed
        validated = await self.ask("validate", final, user, operation=operation, old=old)
        outcome.warnings += outcome.noted(validated.warnings)
        if not let_in(validated, outcome):
            for device in built:
                self._catalog.remove(names.GPU_DEVICE, namespace, device.name)
            return
        outcome.devices += devices
        outcome.diff = difference(obj, changed, name=kind)
        if operation == "CREATE" and kind == names.VMI:
            self._catalog.add(final)

    def _persisted(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        """The object as it is stored; a VMI that the catalog has is that one."""
        final = persisted(obj)
        metadata = final["metadata"]
        existing = self._catalog.vmi(metadata["namespace"], metadata["name"]) if obj["kind"] == names.VMI else None
        if existing is not None and "uid" not in obj["metadata"]:
            metadata["uid"] = existing.uid
        return final


def let_in(reply: Reply, outcome: Outcome) -> bool:
    """Whether a reply lets the object in; a refusal is noted, with what to do about it."""
    if not reply.allowed:
        outcome.refuse(reply.code, reply.causes or [("", reply.message)], _advice(reply))
    return reply.allowed


def _advice(reply: Reply) -> str:
    """What to do: the message's end, after the causes, which it names first."""
    causes = "; ".join(f"{field}: {message}" for field, message in reply.causes)
    for end in (causes, "…") if causes else ():
        _, found, advice = reply.message.partition(end)
        if found and advice.startswith("; "):
            return advice.removeprefix("; ")
    return ""
