"""While the service takes calls and answers none: the worst that can be, since whoever calls it waits."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from functools import partial

import pytest
from actors import Tenant
from controlplane.client import Client
from controlplane.versions import NEWEST
from gpukinds import H200
from installed import Installed
from machines import device, plain_pod, vm, vmi
from outages import BY_RAW_NAMES, fresh, made, promptly, vmis_with_gpus
from refusals import Refused, refused

pytestmark = pytest.mark.parametrize("installed", [NEWEST], indirect=True)


@pytest.fixture
def frozen(installed: Installed) -> Iterator[None]:
    """The process is stopped within."""
    assert installed.service
    os.kill(installed.service.pid, signal.SIGSTOP)
    yield
    os.kill(installed.service.pid, signal.SIGCONT)
    installed.service.wait_until(installed.is_ready)


async def test_what_asks_for_gpus_is_refused_in_time_and_nothing_else_waits(
    kube: Client,
    tenant: Tenant,
    virt_controller: Client,
    frozen: None,  # noqa: ARG001
) -> None:
    namespace = tenant.namespace
    machines = vmis_with_gpus(namespace)
    by_raw_names = [machines.pop(road) for road in BY_RAW_NAMES & set(machines)]
    asking = [
        *(virt_controller.create(machine) for machine in machines.values()),
        tenant.kube.create(fresh(plain_pod, namespace, resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}])),
        tenant.kube.create(device(namespace)),
    ]
    began = time.monotonic()
    waiting = [asyncio.create_task(refused(call)) for call in asking]
    warned = asyncio.create_task(tenant.kube.create(fresh(vm, namespace, refers_to="my-gpu")))

    # All of this while those wait.
    await promptly(partial(made, tenant.kube, plain_pod, namespace, limits={"cpu": "1"}))
    await promptly(partial(made, virt_controller, vmi, namespace))
    await promptly(partial(made, tenant.kube, vm, namespace))
    pod = plain_pod("kube-system", limits={H200: "1"}, serviceAccountName="default")
    await promptly(lambda: kube.create(pod, dry_run=True))

    async def refusals_of_raw_names() -> list[Refused]:
        return [await refused(virt_controller.create(machine)) for machine in by_raw_names]

    for refusal in await promptly(refusals_of_raw_names):
        assert refusal[:3] == (403, "Forbidden", "vmi-raw-names.gpu.cozystack.io")
    own = await promptly(lambda: refused(tenant.kube.create(fresh(plain_pod, namespace, limits={H200: "1"}))))
    assert own[:3] == (403, "Forbidden", "pod-raw-names.gpu.cozystack.io")
    assert not any(task.done() for task in waiting)

    # Warnings are waited for no longer than 2 s, verdicts no longer than 5 s.
    assert (await warned).warnings == []
    assert time.monotonic() - began < 4
    refusals = await asyncio.gather(*waiting)
    assert time.monotonic() - began < 8
    for refusal in refusals:
        assert refusal.code == 500
        assert "failed calling webhook" in refusal.said
        assert "context deadline exceeded" in refusal.said
