"""An in-memory catalog whose memory can lag behind the truth, as a cluster's can."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gpu import names
from webhooks.embedded import EmbeddedCatalog


class InMemoryCatalog(EmbeddedCatalog):
    """The embedded catalog with the means to set a scene: hold devices, and let memory grow stale."""

    @contextmanager
    def stale(self) -> Iterator[None]:
        """Within, plain lookups answer as of now, whatever is put in or taken out; fresh reads tell the truth."""
        self._memory = self._truth.copy()
        try:
            yield
        finally:
            self._memory = self._truth

    def hold(
        self, namespace: str, name: str, *, node: str, vmi: Mapping[str, Any] | None = None, **status: Any
    ) -> None:
        """Have a device held on a node, as the controller would, and bound to a VMI if one is given."""
        device = self._truth.devices[namespace][name]
        stored = self._truth.stored(names.GPU_DEVICE, namespace, name) or {}
        resource_name = self.offer.classes[device.class_name].resource_name
        held: dict[str, Any] = {
            "phase": "Held",
            "resourceName": resource_name,
            "nodeName": node,
            "heldAt": self._clock().isoformat(),
        }
        if vmi is not None:
            held["binding"] = {"name": vmi["metadata"]["name"], "uid": vmi["metadata"]["uid"]}
        self.add({**stored, "status": {**held, **status}})
