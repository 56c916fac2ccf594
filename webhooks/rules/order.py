"""Rules on what is ordered."""

from collections.abc import Mapping
from typing import Any

from gpu import fields, names
from gpu.gpuclass import GPUClass
from gpu.offer import Offer
from webhooks.answer import Refusal, forbidden, invalid, merged


def class_is_offered(offer: Offer, class_name: str, *, field: str) -> Refusal | None:
    """The class exists and is not being deleted."""
    gpu_class = offer.classes.get(class_name)
    if gpu_class is None:
        message = f"there is no GPUClass {fields.clip(class_name)!r}"
        return invalid(field, message, _choice(offer, class_name), reason="FieldValueNotFound")
    if gpu_class.deleting:
        message = f"GPUClass {class_name!r} is being deleted and takes no new orders"
        return forbidden(field, message, _choice(offer, class_name))
    return None


def _choice(offer: Offer, missed: str) -> str:
    offered = sorted(name for name, gpu_class in offer.classes.items() if not gpu_class.deleting)
    if missed.lower() in offered:
        return f"did you mean {missed.lower()!r}?"
    if not offered:
        return "no class is offered at present: ask the platform's operator"
    more = "" if len(offered) <= 8 else f" and {len(offered) - 8} more (kubectl get gpuclasses)"
    return f"choose one of: {', '.join(offered[:8])}{more}"


def count_is_offered(gpu_class: GPUClass, count: int, *, field: str) -> Refusal | None:
    """A device orders at least one GPU and at most its class's maxCount."""
    if 1 <= count <= gpu_class.max_count:
        return None
    message = f"GPUClass {gpu_class.name!r} sells 1 to {gpu_class.max_count} GPUs a device, not {count}"
    return invalid(field, message, "order less, or several devices for several VMs")


def order_is_offered(offer: Offer, class_name: str, count: int, *, field: str) -> Refusal | None:
    """The class exists, is not being deleted, and sells that many GPUs in one device."""
    if refusal := class_is_offered(offer, class_name, field=f"{field}.className"):
        return refusal
    return count_is_offered(offer.classes[class_name], count, field=f"{field}.count")


def orders_are_shaped_by_the_platform(metadata: Mapping[str, Any], status: object) -> Refusal | None:
    """Who is not the platform may not give a new GPUDevice a finalizer other than the garbage collector's, the
    template-device label, or a status.
    """
    finalizers = fields.texts(metadata, "finalizers", "metadata")
    foreign = [finalizer for finalizer in finalizers if finalizer not in names.DELETION_FINALIZERS]
    labels = fields.optional_object(metadata, "labels", "metadata") or {}
    return merged(
        [
            forbidden(
                "metadata.finalizers", f"{fields.clip(foreign[0])!r} is set by the platform alone", "leave it out"
            )
            if foreign
            else None,
            forbidden(
                f"metadata.labels[{names.TEMPLATE_DEVICE}]",
                "marks the devices that the platform builds from a device-template annotation",
                "leave the label out",
            )
            if names.TEMPLATE_DEVICE in labels
            else None,
            forbidden("status", "is written by the platform alone", "leave status out") if status else None,
        ]
    )
