"""The device-template annotation, and the names of the devices that are built from it."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import orjson

from gpu import fields, names
from gpu.errors import FieldError
from gpu.gpudevice import GPUDevice, read_count
from gpu.owner import controller_uid

LONGEST: Final = 4096
"""Bytes that the annotation may have."""

FIELD: Final = f"metadata.annotations[{names.DEVICE_TEMPLATE}]"

_KEYS: Final = frozenset({"className", "count"})
_NOT_DNS: Final = re.compile(r"[^a-z0-9]+")
_STEM: Final = 63 - 9


@dataclass(frozen=True, slots=True)
class DeviceTemplate:
    """The order that a VMI carries along: ``count`` GPUs of the class ``class_name``."""

    class_name: str
    count: int

    def manifest(self, namespace: str, name: str) -> dict[str, Any]:
        """The GPUDevice to create for it."""
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.GPU_DEVICE,
            "metadata": {"namespace": namespace, "name": name, "labels": {names.TEMPLATE_DEVICE: "true"}},
            "spec": {"className": self.class_name, "count": self.count},
        }

    def device(self, namespace: str, name: str) -> GPUDevice:
        """The GPUDevice as it will be, before it is created."""
        return GPUDevice(
            namespace=namespace, name=name, class_name=self.class_name, count=self.count, from_template=True
        )


@lru_cache(maxsize=256)
def read_template(text: str) -> DeviceTemplate:
    """The order that a device-template annotation holds.

    Raises FieldError unless it is a JSON object of at most 4 KiB with the key ``className``, the key ``count`` if more
    than one GPU is wanted, and no other.
    """
    if len(text) > LONGEST or len(text.encode(errors="surrogatepass")) > LONGEST:
        raise FieldError(FIELD, f"must be at most {LONGEST // 1024} KiB", reason="FieldValueTooLong")
    try:
        value = orjson.loads(text)
    except ValueError:
        raise FieldError(FIELD, 'must be JSON such as {"className":"h200","count":1}') from None
    if not isinstance(value, dict):
        raise FieldError(FIELD, f"must be a JSON object with className, not {fields.described(value)}")
    if unknown := sorted(value.keys() - _KEYS):
        raise FieldError(FIELD, f"has the unknown key {fields.clip(unknown[0])!r}: only className and count are read")
    return DeviceTemplate(fields.required_text(value, "className", FIELD), read_count(value, FIELD))


# Not frozen, for speed; nothing changes one.
@dataclass(slots=True, kw_only=True)
class Maker:
    """Who a device is built for, as far as the mutating phase knows: the VMI has no uid yet, perhaps no name.

    ``retry`` tells one nameless VMI from the next; it is the uid of the request, or empty on a dry run, where nothing
    is built and the answer should not change from call to call.
    """

    owner_uid: str
    name: str
    generate_name: str
    retry: str

    @classmethod
    def of(cls, metadata: Mapping[str, Any], *, request_uid: str) -> "Maker":
        """Read from a VMI's metadata. Raises FieldError."""
        return cls(
            owner_uid=controller_uid(metadata, "metadata"),
            name=fields.optional_text(metadata, "name", "metadata") or "",
            generate_name=fields.optional_text(metadata, "generateName", "metadata") or "",
            retry=request_uid,
        )

    def device_name(self, template: DeviceTemplate, *, salt: int = 0) -> str:
        """The name of the device to build: a DNS label of at most 63 characters.

        The same for a retry and for the next VMI of a restarted VM; another for each ``salt`` above zero.
        """
        identity: list[object] = [self.owner_uid, self.name or [self.generate_name, self.retry]]
        identity += [template.class_name, template.count]
        if salt:
            identity.append(salt)
        digest = hashlib.sha256(orjson.dumps(identity)).hexdigest()[:8]
        stem = _NOT_DNS.sub("-", (self.name or self.generate_name).lower()).strip("-")[:_STEM].rstrip("-")
        return f"{stem or 'vmi'}-{digest}"
