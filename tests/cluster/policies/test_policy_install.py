"""A first install: policies that are there before the kinds that they look at, and classes that come and go."""

import asyncio
import time

from policies.callers import TENANT
from policies.cases import Case
from policies.force import enforce, put_into_force, until_in_force
from policies.stored import gpu_class
from policies.table_devices import LEAVING, order
from policies.world import Verdict, World, create_all, install_crds, policies_of
from waiting import eventually, gone

from gpu import names

POLICY = "class-deletion.gpu.cozystack.io"


def orders(class_name: str) -> Case:
    return Case(title="", who=TENANT, call=order(class_name))


async def becomes(world: World, class_name: str, verdict: Verdict) -> None:
    async def is_so() -> bool:
        found = await world.verdict(orders(class_name))
        assert found == verdict
        return True

    await eventually(is_so, seconds=40)


async def test_policies_that_come_before_the_kinds_heal_by_themselves(bare_world: World) -> None:
    # given the policies, and no GPUClass nor GPUDevice as a kind
    world = bare_world
    await world.make_namespaces()
    await world.grant()
    await enforce(world, known=False)
    # when the kinds come
    await asyncio.to_thread(install_crds, world.plane)
    come = time.monotonic()
    # then an order is let in, though no class is there, when the API server has looked kinds up again: every 30 s
    await becomes(world, "h200", Verdict())
    print(f"orders are judged {time.monotonic() - come:.1f} s after the kinds are there")
    assert time.monotonic() - come < 40


async def test_orders_are_judged_by_each_of_many_classes_and_by_a_class_that_was_made_again(bare_world: World) -> None:
    # given no class, then fifty, one of which is being deleted
    world = bare_world
    await world.make_namespaces()
    await world.grant()
    await asyncio.to_thread(install_crds, world.plane)
    policy, binding = policies_of(world.plane)[POLICY]
    await put_into_force(world, [policy], [binding])
    await becomes(world, "class-7", Verdict())
    classes = [gpu_class(f"class-{at}", finalizers=(names.CLASS_FINALIZER,)) for at in range(50)]
    await create_all(world.kube, classes)
    await world.kube.delete(classes[7])
    # then its orders are refused, and nobody else's
    await becomes(world, "class-7", Verdict(POLICY, LEAVING.format("class-7"), 403))
    verdicts = await world.verdicts([orders(f"class-{at}") for at in range(50) if at != 7])
    assert set(verdicts) == {Verdict()}
    # when it is gone and made again
    await world.kube.patch(classes[7], {"metadata": {"finalizers": None}})
    await gone(world.kube, classes[7])
    await becomes(world, "class-7", Verdict())
    await world.kube.create(classes[7])
    # then it takes orders again
    await until_in_force(world)
    await becomes(world, "class-7", Verdict())
    for made in classes:
        await world.kube.delete(made)
        await world.kube.patch(made, {"metadata": {"finalizers": None}})


async def test_where_no_class_is_there_orders_go_on_because_the_binding_says_so(bare_world: World) -> None:
    # given a binding that says the opposite
    world = bare_world
    await world.make_namespaces()
    await world.grant()
    await asyncio.to_thread(install_crds, world.plane)
    policy, binding = policies_of(world.plane)[POLICY]
    strict = {**binding, "spec": {**binding["spec"], "paramRef": {"selector": {}, "parameterNotFoundAction": "Deny"}}}
    await put_into_force(world, [policy], [strict])
    # then an order is refused while there is none
    found = await world.verdict(orders("h200"))
    assert found.policy == POLICY
    assert "no params found" in found.message
