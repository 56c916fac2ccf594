"""Pod, CREATE."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpu import fields, names
from gpu.gpudevice import GPUDevice, is_device_name
from gpu.offer import Offer
from gpu.pod import PodRequest, extended_resources, owning_vmi, pod_claims, pod_requests
from webhooks.answer import Refusal
from webhooks.context import Context
from webhooks.facts import known_migration
from webhooks.review import Request
from webhooks.rules.pod import (
    claims_ask_for_no_gpu,
    device_serves,
    gpu_pods_belong_to_a_vmi,
    gpu_pods_have_a_device,
    no_other_pod_has_the_gpus,
    node_for,
    only_virt_controller_makes_gpu_pods,
    pod_stays_on_its_node,
    requests_are_what_is_granted,
)
from webhooks.rules.reference import device_exists, what_is_granted
from webhooks.rules.vmi import settings_are_there


async def validate_pod(request: Request, context: Context) -> Refusal | None:
    """What speaks against a new pod. One that asks for no GPU is let in."""
    return await _claims(request, context) or await _resources(request, context)


async def _claims(request: Request, context: Context) -> Refusal | None:
    catalog = context.catalog
    offer = catalog.offer
    nothing_to_look_for = offer.settings is not None and not offer.device_class_names
    for claim in () if nothing_to_look_for else pod_claims(request.manifest()):
        asked = await catalog.claimed_classes(request.namespace, claim=claim.claim, template=claim.template)
        if claims_ask_for_no_gpu(claim, asked, offer):
            offer = await catalog.fresh_offer()
            if refusal := claims_ask_for_no_gpu(claim, asked, offer):
                return refusal
    return None


async def _resources(request: Request, context: Context) -> Refusal | None:
    pod = request.manifest()
    asked = extended_resources(pod)
    offer = context.catalog.offer
    if offer.names.isdisjoint(asked) and settings_are_there(offer, asked) is None:
        return None
    offer = await context.catalog.fresh_offer()
    requests = pod_requests(pod, offer.names.__contains__)
    if not requests:
        return settings_are_there(offer, asked)
    launcher = _Launcher.read(request, pod)
    refusal = (
        only_virt_controller_makes_gpu_pods(
            requests, username=request.username, virt_controller=context.settings.virt_controller
        )
        or gpu_pods_belong_to_a_vmi(launcher.vmi_uid)
        or gpu_pods_have_a_device(launcher.reference)
    )
    return refusal or await launcher.refusal(requests, offer, context) or settings_are_there(offer, asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Launcher:
    """A pod that asks for GPUs, as far as the rules look at it."""

    pod: Mapping[str, Any]
    namespace: str
    name: str
    vmi_uid: str
    reference: str
    migration_uid: str | None

    @classmethod
    def read(cls, request: Request, pod: Mapping[str, Any]) -> "_Launcher":
        metadata = fields.required_object(pod, "metadata", "")
        labels = fields.optional_object(metadata, "labels", "metadata") or {}
        return cls(
            pod=pod,
            namespace=request.namespace,
            name=fields.optional_text(metadata, "name", "metadata") or "",
            vmi_uid=owning_vmi(metadata) or "",
            reference=fields.optional_text(labels, names.DEVICE_REFERENCE, "metadata.labels") or "",
            migration_uid=fields.optional_text(labels, names.MIGRATION_JOB, "metadata.labels"),
        )

    async def refusal(self, requests: Sequence[PodRequest], offer: Offer, context: Context) -> Refusal | None:
        """What speaks against the pod by its device, which is read afresh before the pod is let in."""
        catalog = context.catalog
        readable = is_device_name(self.reference)
        found = await catalog.fresh_device(self.namespace, self.reference) if readable else None
        device = device_exists(found, self.reference, namespace=self.namespace)
        if isinstance(device, Refusal):
            return device
        migration = await known_migration(catalog, self.namespace, self.migration_uid)
        if refusal := device_serves(device, self.vmi_uid, self.migration_uid, migration):
            return refusal
        grant = what_is_granted(device, offer)
        if isinstance(grant, Refusal):
            return grant
        return requests_are_what_is_granted(requests, grant) or await self._place(device, offer, context)

    async def _place(self, device: GPUDevice, offer: Offer, context: Context) -> Refusal | None:
        node = node_for(device, self.migration_uid) or ""
        others = await context.catalog.fresh_pods(self.namespace, self.vmi_uid)
        return pod_stays_on_its_node(self.pod, node) or no_other_pod_has_the_gpus(
            others,
            offer.names,
            name=self.name,
            vmi_uid=self.vmi_uid,
            reserved_node=node if self.migration_uid else None,
        )
