"""A VM that is started again at the moment at which the device of its template goes: whichever write comes first, the
VM never refers to a device that is deleted."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest
from controlled import Controller
from controlplane.client import Answer, Client
from gate import Call, Gate, Held
from installed import Installed
from machines import DEVICE_REFERENCE, vm, vmi
from pooled import Pool
from rerouted import served_by
from waiting import gone

# Whoever comes first sets the cluster up; and what is broken off here would leave the webhooks to be called elsewhere.
pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True, kw_only=True)
class Running:
    """A VM that runs with the device of its template. Calls on that device of the API server can be held back, those of
    the controller and those of the webhooks."""

    pool: Pool
    owner: Answer
    machine: Answer
    of_controller: Gate
    of_webhooks: Gate

    @property
    def device(self) -> str:
        return str(self.machine["metadata"]["labels"][DEVICE_REFERENCE])

    def the_status(self) -> Held:
        """The controller's write that nobody uses the device any more."""
        return self.of_controller.hold(self._is("PATCH", "/status"))

    def the_delete(self) -> Held:
        """The controller's, when the time is over."""
        return self.of_controller.hold(self._is("DELETE"))

    def the_release(self) -> Held:
        """The controller's write that takes our finalizer off."""
        return self.of_controller.hold(self._is("PATCH"))

    def the_take_over(self) -> Held:
        """The webhook's write, by which the next VMI takes the device."""
        return self.of_webhooks.hold(self._is("PATCH"))

    def _is(self, method: str, subresource: str = "") -> Callable[[Call], bool]:
        end = f"/gpudevices/{self.device}{subresource}"
        return lambda call: call.method == method and call.path.endswith(end)

    async def stops(self) -> None:
        await self.pool.virt_controller.delete(self.machine)
        await gone(self.pool.kube, self.machine)

    def starts(self) -> asyncio.Task[Answer]:
        """virt-controller makes the next VMI."""
        name = self.machine["metadata"]["name"]
        return asyncio.create_task(self.pool.machine(name, owner=self.owner, orders=one_of(self.pool)))

    async def device_is_gone(self) -> None:
        await gone(self.pool.kube, self.pool.device(self.device), seconds=10)


def one_of(pool: Pool) -> dict[str, Any]:
    return {"className": pool.name, "count": 1}


async def the_take_over_before_the_delete(vm: Running) -> Answer:
    delete = vm.the_delete()
    await vm.stops()
    await delete.comes()
    started = await vm.starts()
    assert await delete.goes_on() == 409
    return started


async def the_delete_before_the_take_over(vm: Running) -> Answer:
    delete, take_over = vm.the_delete(), vm.the_take_over()
    await vm.stops()
    await delete.comes()
    starting = vm.starts()
    await take_over.comes()
    assert await delete.goes_on() == 200
    await vm.device_is_gone()
    assert await take_over.goes_on() == 404
    return await starting


async def the_take_over_between_delete_and_release(vm: Running) -> Answer:
    delete, release, take_over = vm.the_delete(), vm.the_release(), vm.the_take_over()
    await vm.stops()
    await delete.comes()
    starting = vm.starts()
    await take_over.comes()
    assert await delete.goes_on() == 200
    await release.comes()
    assert await take_over.goes_on() == 409
    started = await starting
    assert await release.goes_on() == 200
    await vm.device_is_gone()
    return started


async def the_start_between_delete_and_release(vm: Running) -> Answer:
    release = vm.the_release()
    await vm.stops()
    await release.comes()
    started = await vm.starts()
    assert await release.goes_on() == 200
    await vm.device_is_gone()
    return started


async def the_take_over_before_the_status(vm: Running) -> Answer:
    status = vm.the_status()
    await vm.stops()
    await status.comes()
    started = await vm.starts()
    assert await status.goes_on() == 409
    return started


async def the_status_before_the_take_over(vm: Running) -> Answer:
    status, take_over = vm.the_status(), vm.the_take_over()
    await vm.stops()
    await status.comes()
    starting = vm.starts()
    await take_over.comes()
    assert await status.goes_on() == 200
    assert await take_over.goes_on() == 409
    return await starting


KEPT: Final = {
    the_take_over_before_the_delete: True,
    the_delete_before_the_take_over: False,
    the_take_over_between_delete_and_release: False,
    the_start_between_delete_and_release: False,
    the_take_over_before_the_status: True,
    the_status_before_the_take_over: True,
}
"""Orders of the writes, and whether the next VMI gets the device of the one before."""


@asynccontextmanager
async def held_back(kube: Client, home: Installed, pool: Pool) -> AsyncIterator[tuple[Gate, Gate]]:
    """The one controller and the one service that run, each with a gate before the API server."""
    async with Gate(home.plane) as of_controller, Gate(home.plane) as of_webhooks:
        controller = Controller(Installed(home.plane, server=of_controller.url), "--template-kept-seconds", "1")
        service = Installed(home.plane, server=of_webhooks.url)
        attempt = vmi(pool.namespace, "try", orders=one_of(pool))
        try:
            async with served_by(
                kube, home, [service], attempt=lambda: pool.virt_controller.create(attempt, dry_run=True)
            ):
                await asyncio.to_thread(controller.start)
                yield of_controller, of_webhooks
        finally:
            await asyncio.to_thread(controller.terminate)


async def test_whichever_write_comes_first_the_vm_never_refers_to_a_device_that_is_deleted(
    kube: Client, pool: Pool, home: Installed, both: Sequence[Controller]
) -> None:
    await pool.node("b", gpus=2 * len(KEPT))
    await asyncio.gather(*(asyncio.to_thread(one.terminate) for one in both))
    async with held_back(kube, home, pool) as (of_controller, of_webhooks):

        async def running(number: int) -> Running:
            name = f"desk-{number}"
            owner = await pool.tenant.kube.create(vm(pool.namespace, name, orders=one_of(pool)))
            machine = await pool.machine(name, owner=owner, orders=one_of(pool))
            found = Running(
                pool=pool, owner=owner, machine=machine, of_controller=of_controller, of_webhooks=of_webhooks
            )
            await pool.becomes(found.device, phase="InUse", vm=machine["metadata"]["uid"], seconds=30)
            return found

        async def uid(device: str) -> str:
            return str((await kube.get(pool.device(device)))["metadata"]["uid"])

        machines = await asyncio.gather(*map(running, range(len(KEPT))))
        for machine, (order, kept) in zip(machines, KEPT.items(), strict=True):
            before = await uid(machine.device)
            started = await order(machine)

            device = started["metadata"]["labels"][DEVICE_REFERENCE]
            await pool.becomes(device, phase="InUse", vm=started["metadata"]["uid"])
            # One that is built anew may have the name of the one that is gone.
            assert (await uid(device) == before) is kept, order
            await pool.runs(started)
            assert (await pool.status(device))["phase"] == "InUse", order
