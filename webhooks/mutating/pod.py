"""Virt-launcher pod, CREATE: pin it to the node that its GPUs are held on."""

from gpu import fields, names
from gpu.gpudevice import is_device_name
from gpu.pod import owning_vmi, pin, pod_requests
from webhooks.answer import LET_IN, Answer, Refusal
from webhooks.context import Context
from webhooks.facts import known_migration
from webhooks.review import Request
from webhooks.rules.pod import device_serves, gpu_pods_belong_to_a_vmi, gpu_pods_have_a_device, node_for
from webhooks.rules.reference import device_exists


async def mutate_pod(request: Request, context: Context) -> Answer:
    """Hold a pod that virt-controller makes for a VMI with a device to the device's node; leave others untouched."""
    if request.username != context.settings.virt_controller:
        return LET_IN
    pod = request.manifest()
    metadata = fields.required_object(pod, "metadata", "")
    labels = fields.optional_object(metadata, "labels", "metadata") or {}
    reference = fields.optional_text(labels, names.DEVICE_REFERENCE, "metadata.labels")
    if reference is None:
        return LET_IN
    migration_uid = fields.optional_text(labels, names.MIGRATION_JOB, "metadata.labels")
    catalog, namespace = context.catalog, request.namespace
    device = catalog.device(namespace, reference)
    node = node_for(device, migration_uid) if device else None
    if node is None and not pod_requests(pod, catalog.offer.names.__contains__):
        return LET_IN
    if node is None and is_device_name(reference):
        device = await catalog.fresh_device(namespace, reference)
        node = node_for(device, migration_uid) if device else None
    if node is not None:
        return Answer(patch=pin(pod, node))
    if not pod_requests(pod, (await catalog.fresh_offer()).names.__contains__):
        return LET_IN
    vmi_uid = owning_vmi(metadata) or ""
    if refusal := gpu_pods_belong_to_a_vmi(vmi_uid) or gpu_pods_have_a_device(reference):
        return Answer(refusal)
    found = device_exists(device, reference, namespace=namespace)
    if isinstance(found, Refusal):
        return Answer(found)
    migration = await known_migration(catalog, namespace, migration_uid)
    return Answer(device_serves(found, vmi_uid, migration_uid, migration))
