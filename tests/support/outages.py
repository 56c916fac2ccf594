"""What is tried while the service is down: what has to be refused then, and what must not notice."""

import itertools
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from actors import HOST_LABEL, VIRT_CONTROLLER, Tenant, admin_binding, bind_pod
from controlplane.client import Answer, Client, Object, ref
from gpukinds import H200, hold
from machines import device, launcher, plain_pod, vmi
from waiting import eventually

T = TypeVar("T")
PROMPT: Final = 1.0
"""Seconds that nothing takes which does not wait for a webhook; the shortest timeout of those is twice that."""

BY_RAW_NAMES: Final = frozenset(
    {"gpus", "hostDevices", "requests", "limits", "gpus by claims", "containers", "initContainers"}
)
"""The roads of ``vmis_with_gpus`` and ``pods_with_gpus`` that the policies refuse, without asking the service."""
_TRIES: Final = 3
_numbers = itertools.count(1)


def fresh(make: Callable[..., dict[str, Any]], namespace: str, **options: Any) -> dict[str, Any]:
    """A new object, under a name that there was not before."""
    return make(namespace, f"try-{next(_numbers)}", **options)


async def new_tenant(kube: Client, name: str, *, test: str) -> Tenant:
    """A tenant in a namespace of this name, which stays: deleting one takes hundreds of calls, and the plane goes."""
    namespace = await tenants_namespace(kube, name, test=test)
    user = f"{namespace}-user"
    await kube.create(admin_binding(namespace, user))
    tenant = Tenant(namespace=namespace, user=user, kube=kube.as_(user))
    await eventually(tenant.may_act)
    return tenant


async def made(kube: Client, make: Callable[..., dict[str, Any]], namespace: str, **options: Any) -> Answer:
    """Create such a new object."""
    return await kube.create(fresh(make, namespace, **options))


async def promptly(do: Callable[[], Awaitable[T]]) -> T:
    """Do what waits for no webhook. A busy machine may be slow once: what waits is slow each time."""
    took = []
    for _ in range(_TRIES):
        began = time.monotonic()
        done = await do()
        took.append(time.monotonic() - began)
        if took[-1] < PROMPT:
            return done
    raise AssertionError(f"{do} took {', '.join(f'{one:.2f}' for one in took)} s")


def vmis_with_gpus(namespace: str) -> dict[str, dict[str, Any]]:
    """VMIs that ask for GPUs, allowed or not, by the road: see ``BY_RAW_NAMES``."""
    by_claim = [{"name": "a", "claimName": "gpu", "requestName": "gpu"}]
    claims = [{"name": "gpu", "resourceClaimName": "mine"}]
    asks: dict[str, dict[str, Any]] = {
        "label": {"refers_to": "my-gpu"},
        "annotation": {"orders": {"className": "h200"}},
        "gpus": {"gpus": [{"name": "a", "deviceName": H200}]},
        "hostDevices": {"host_devices": [{"name": "a", "deviceName": H200}]},
        "requests": {"requests": {H200: "1"}},
        "limits": {"limits": {H200: "1"}},
        "gpus by claims": {"gpus": by_claim, "claims": claims},
        "hostDevices by claims": {"host_devices": by_claim, "claims": claims},
    }
    return {road: fresh(vmi, namespace, **options) for road, options in asks.items()}


def pods_with_gpus(namespace: str, machine: Object) -> dict[str, dict[str, Any]]:
    """Pods that ask for GPUs, a launcher of a VMI among them: see ``BY_RAW_NAMES``."""
    claims = [{"name": "gpu", "resourceClaimName": "mine"}]
    with_gpu = {"name": "side", "image": "example.org/image", "resources": {"limits": {H200: "1"}}}
    return {
        "launcher": launcher(machine),
        "containers": fresh(plain_pod, namespace, limits={H200: "1"}),
        "initContainers": fresh(plain_pod, namespace, initContainers=[with_gpu]),
        "claims": fresh(plain_pod, namespace, resourceClaims=claims),
    }


async def tenants_namespace(kube: Client, name: str, *, test: str = "") -> str:
    """A tenant's namespace in which pods can be made; ``test`` is noted on it."""
    metadata = {"name": name, "labels": {HOST_LABEL: "a"}, "annotations": {"test": test}}
    await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    await eventually(lambda: kube.get(ref("v1", "ServiceAccount", "default", name)))
    return name


async def lived_in(kube: Client, namespace: str, *, finalizers: bool) -> Mapping[str, Object]:
    """Everything that a tenant with GPUs has: a running VM with a device of its own, one with a template's device.

    With ``finalizers`` as KubeVirt and the GPU controller have them, and with the launcher on a node.
    """
    virt_controller = kube.as_(VIRT_CONTROLLER)
    order, machine = device(namespace), vmi(namespace, refers_to="my-gpu")
    if finalizers:
        order["metadata"]["finalizers"] = ["gpu.cozystack.io/device"]
        machine["metadata"]["finalizers"] = ["foregroundDeleteVirtualMachine"]
    order = await kube.create(order)
    machine = await virt_controller.create(machine)
    await hold(kube, order, machine)
    pod = launcher(machine)
    pod["spec"]["terminationGracePeriodSeconds"] = 1
    pod = await virt_controller.create(pod)
    if finalizers:
        await bind_pod(kube, pod, "node-a")
    await virt_controller.create(vmi(namespace, "worker", orders={"className": "l40s"}))
    await kube.create(plain_pod(namespace))
    return {"device": order, "machine": machine, "pod": pod}
