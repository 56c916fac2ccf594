"""A first install: policies that are there before the kinds that they look at, and classes that come and go."""

import asyncio
import time

from controlplane.client import Object
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


async def in_force(world: World) -> Object:
    """Have the kinds, and this policy alone in force; gives its binding."""
    await world.make_namespaces()
    await world.grant()
    await asyncio.to_thread(install_crds, world.plane)
    policy, binding = policies_of(world.plane)[POLICY]
    await put_into_force(world, [policy], [binding])
    return binding


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
    await in_force(world)
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
    # then it takes orders, as is seen when it is told from the one before: deleted again, it is refused again
    await until_in_force(world)
    await becomes(world, "class-7", Verdict())
    await world.kube.delete(classes[7])
    await becomes(world, "class-7", Verdict(POLICY, LEAVING.format("class-7"), 403))
    await world.kube.patch(classes[7], {"metadata": {"finalizers": None}})
    await gone(world.kube, classes[7])
    for made in classes:
        if made is not classes[7]:
            await world.kube.delete(made)
            await world.kube.patch(made, {"metadata": {"finalizers": None}})


async def test_orders_of_the_only_class_are_judged_by_it(bare_world: World) -> None:
    # given one class alone
    world = bare_world
    await in_force(world)
    only = await world.kube.create(gpu_class("only", finalizers=(names.CLASS_FINALIZER,)))
    # then it takes orders, and those of another are not its business
    await becomes(world, "only", Verdict())
    await becomes(world, "other", Verdict())
    # when it is being deleted
    await world.kube.delete(only)
    # then its own are refused, and no others
    await becomes(world, "only", Verdict(POLICY, LEAVING.format("only"), 403))
    assert await world.verdict(orders("other")) == Verdict()
    await world.kube.patch(only, {"metadata": {"finalizers": None}})
    await gone(world.kube, only)
    # and with none left they are nobody's again
    await becomes(world, "only", Verdict())


async def test_where_no_class_is_there_orders_go_on_because_the_binding_says_so(bare_world: World) -> None:
    # given no class
    world = bare_world
    # then an order is let in while there is none, by the binding as it is
    binding = await in_force(world)
    await becomes(world, "h200", Verdict())
    strict = {**binding, "spec": {**binding["spec"], "paramRef": {"selector": {}, "parameterNotFoundAction": "Deny"}}}
    # when the binding says the opposite
    await world.kube.patch(binding, {"spec": strict["spec"]})
    await until_in_force(world)

    # then it is refused
    async def refused() -> bool:
        found = await world.verdict(orders("h200"))
        return found.policy == POLICY and "no params found" in found.message

    await eventually(refused)
