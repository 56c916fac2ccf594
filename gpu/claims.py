"""Which DeviceClasses a resource claim asks for (DRA)."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpu import fields


def claimed_device_classes(obj: Mapping[str, Any]) -> frozenset[str]:
    """The DeviceClasses that a ResourceClaim or a ResourceClaimTemplate asks for, every alternative counted.

    Reads every served version of resource.k8s.io: ``exactly`` and ``firstAvailable``, and the request itself, where
    v1beta1 has the class. Raises FieldError.
    """
    spec = fields.optional_object(obj, "spec", "") or {}
    if obj.get("kind") == "ResourceClaimTemplate":
        spec = fields.optional_object(spec, "spec", "spec") or {}
    devices = fields.optional_object(spec, "devices", "spec") or {}
    return frozenset(_classes(devices))


def _classes(devices: Mapping[str, Any]) -> Iterator[str]:
    for index, request in enumerate(fields.objects(devices, "requests", "spec.devices")):
        path = f"spec.devices.requests[{index}]"
        exactly = fields.optional_object(request, "exactly", path) or {}
        for ask in (request, exactly, *fields.objects(request, "firstAvailable", path)):
            if name := fields.optional_text(ask, "deviceClassName", path):
                yield name
