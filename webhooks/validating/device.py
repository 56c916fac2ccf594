"""GPUDevice, CREATE."""

from gpu import fields
from gpu.gpudevice import GPUDevice
from gpu.offer import Offer
from webhooks.answer import Refusal, merged
from webhooks.context import Context
from webhooks.facts import judged_by_offer
from webhooks.review import Request
from webhooks.rules.order import order_is_offered, orders_are_shaped_by_the_platform


async def validate_device(request: Request, context: Context) -> Refusal | None:
    """What speaks against a new GPUDevice."""
    obj = request.manifest()
    metadata = fields.required_object(obj, "metadata", "")
    device = GPUDevice.from_dict({**obj, "metadata": {"namespace": request.namespace, **metadata}})

    def judge(offer: Offer) -> Refusal | None:
        return order_is_offered(offer, device.class_name, device.count, field="spec")

    shape = None
    if not context.settings.is_platform(request):
        shape = orders_are_shaped_by_the_platform(metadata, obj.get("status"))
    return merged([shape, await judged_by_offer(judge, context.catalog)])
