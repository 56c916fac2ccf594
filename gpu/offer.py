"""What the platform offers: its classes, and the names that count as GPUs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpu import fields
from gpu.gpuclass import OF_DEVICE_CLASSES, GPUClass


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUSettings:
    """The ConfigMap ``gpu-settings``, read."""

    resource_names: frozenset[str]
    device_class_names: frozenset[str]

    @classmethod
    def from_dict(cls, obj: Mapping[str, Any]) -> "GPUSettings":
        """Read a ConfigMap whose values are comma-separated names. Raises FieldError."""
        data = fields.optional_object(obj, "data", "") or {}
        return cls(
            resource_names=_listed(fields.optional_text(data, "resourceNames", "data")),
            device_class_names=_listed(fields.optional_text(data, "deviceClassNames", "data")),
        )

    @classmethod
    def of_classes(cls, classes: Iterable[GPUClass]) -> "GPUSettings":
        """The settings that a controller publishes for these classes, where nothing else is set."""
        return cls(resource_names=_sold(classes), device_class_names=frozenset())


def _listed(text: str | None) -> frozenset[str]:
    return frozenset(name for part in (text or "").split(",") if (name := part.strip()))


@dataclass(frozen=True, slots=True)
class Offer:
    """The classes by name, and the settings; None where the ConfigMap is not there."""

    classes: Mapping[str, GPUClass]
    settings: GPUSettings | None
    names: frozenset[str] = field(init=False)
    """The GPU resource names: those of the settings, those of every class, those of guarded DeviceClasses."""

    def __post_init__(self) -> None:
        published = self.settings.resource_names if self.settings else frozenset()
        guarded = {f"{OF_DEVICE_CLASSES}{name}" for name in self.device_class_names}
        object.__setattr__(self, "names", published | guarded | _sold(self.classes.values()))

    @property
    def device_class_names(self) -> frozenset[str]:
        """The DeviceClasses (DRA) that may not be claimed by name."""
        return self.settings.device_class_names if self.settings else frozenset()


def _sold(classes: Iterable[GPUClass]) -> frozenset[str]:
    return frozenset(name for gpu_class in classes for name in gpu_class.resource_names)
