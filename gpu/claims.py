"""Which DeviceClasses a resource claim asks for (DRA)."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpu import fields


def claimed_device_classes(obj: Mapping[str, Any]) -> frozenset[str]:
    """The DeviceClasses that a ResourceClaim or a ResourceClaimTemplate asks for, every alternative counted.

    Reads every served version of resource.k8s.io: ``exactly`` and ``firstAvailable``, and the request itself, where
    v1beta1 has the class. Raises FieldError.
    """
    spec, path = fields.optional_object(obj, "spec", "") or {}, "spec"
    if obj.get("kind") == "ResourceClaimTemplate":
        spec, path = fields.optional_object(spec, "spec", path) or {}, "spec.spec"
    devices = fields.optional_object(spec, "devices", path) or {}
    return frozenset(_classes(devices, f"{path}.devices"))


def _classes(devices: Mapping[str, Any], at: str) -> Iterator[str]:
    for index, request in enumerate(fields.objects(devices, "requests", at)):
        path = f"{at}.requests[{index}]"
        asks = [(request, path), (fields.optional_object(request, "exactly", path) or {}, f"{path}.exactly")]
        alternatives = fields.objects(request, "firstAvailable", path)
        asks += [(ask, f"{path}.firstAvailable[{place}]") for place, ask in enumerate(alternatives)]
        for ask, where in asks:
            if name := fields.optional_text(ask, "deviceClassName", where):
                yield name
