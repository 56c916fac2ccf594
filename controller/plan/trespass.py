"""Tenants' pods that have GPUs, or wait for them, without a device."""

from collections import defaultdict
from collections.abc import Iterator

from cluster import kinds
from controller.plan.ledger import place_of
from controller.state import State
from controller.writes import Event, Trespasser


def trespassers(state: State, published: frozenset[str]) -> Iterator[Trespasser]:
    """Tenants' unfinished pods that ask for a published name beyond what the devices of their VMI cover."""
    covered: defaultdict[tuple[str, str], int] = defaultdict(int)
    for device in state.devices:
        if device.held and device.binding:
            covered[device.binding.uid, device.resource_name or ""] += device.count
    tenants: dict[str, bool] = {}
    unread = [one for one in state.unread if one.kind == kinds.GPU_DEVICES]
    for pod in state.pods:
        if pod.vmi_uid and any(one.namespace == pod.namespace and one.vmi in {pod.vmi_uid, None} for one in unread):
            continue
        for resource, amount in pod.resources.items():
            if resource not in published or not amount:
                continue
            if amount <= (covered.get((pod.vmi_uid, resource), 0) if pod.vmi_uid else 0):
                continue
            if pod.namespace not in tenants:
                tenants[pod.namespace] = state.is_tenant(pod.namespace)
            if tenants[pod.namespace]:
                yield Trespasser(
                    namespace=pod.namespace,
                    name=pod.name,
                    uid=pod.uid,
                    resource_name=resource,
                    amount=amount,
                    node=place_of(pod),
                )


def notice(found: Trespasser) -> Event:
    """What a trespasser is told."""
    where = f"on node {found.node}" if found.node else "on any node"
    message = (
        f"it asks for {found.amount} of {found.resource_name} {where} without a GPUDevice, and may win what another"
        " holds: order a GPUDevice and run a VM that refers to it"
    )
    return Event(
        kind=kinds.PODS,
        namespace=found.namespace,
        name=found.name,
        uid=found.uid,
        reason="GPUWithoutDevice",
        message=message,
        type="Warning",
    )
