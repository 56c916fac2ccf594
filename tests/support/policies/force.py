"""Putting policies into force, and knowing when they are."""

import copy
import itertools
from collections.abc import Sequence
from typing import Any, Final

from controlplane.client import Client, Object
from controlplane.errors import APIError
from policies.callers import MASTERS
from policies.cases import Case, create
from policies.stored import device, named
from policies.world import Verdict, World, create_all, policies_of
from waiting import eventually

_V1: Final = "admissionregistration.k8s.io/v1"
_BINDING: Final = "ValidatingAdmissionPolicyBinding"
_numbers = itertools.count(1)


async def enforce(world: World, *, known: bool = True) -> None:
    """Create the chart's policies and their bindings; back when they are in force, for ``known`` kinds too."""
    pairs = policies_of(world.plane).values()
    await put_into_force(world, [policy for policy, _ in pairs], [binding for _, binding in pairs])
    if known:
        await until_kinds_are_known(world)


async def until_kinds_are_known(world: World) -> None:
    """Wait until the API server has looked up the kinds of the parameters; it looks every 30 s for those it missed."""
    order = Case(title="", who=MASTERS, call=create(device(class_name="none-of-that-name")))

    async def is_judged() -> bool:
        return (await world.verdict(order)) == Verdict()

    await eventually(is_judged, seconds=40)


async def put_into_force(world: World, policies: Sequence[Object], bindings: Sequence[Object]) -> None:
    """Create policies and bindings; back when the API server goes by them.

    It takes them up once a second and all at a time, in the order of their watches, so they are in force when one that
    came after them is.
    """
    await create_all(world.kube, policies)
    await create_all(world.kube, bindings)
    await until_in_force(world)


async def take_bindings_away(kube: Client) -> list[Object]:
    """Have no policy in force, so that whoever is asked next is heard; gives what ``put_back`` takes."""
    bindings: list[Object] = [_anew(binding) for binding in await kube.list(_V1, _BINDING)]
    assert bindings, "policies are in force before"
    for binding in bindings:
        await kube.delete(binding)
    await until_taken_up(kube)
    return bindings


async def put_back(kube: Client, bindings: Sequence[Object]) -> None:
    """Have the policies in force again."""
    await create_all(kube, bindings)
    await until_taken_up(kube)


def _anew(binding: Object) -> Object:
    """As it was created, with what helm knows it by."""
    metadata = {key: binding["metadata"].get(key, {}) for key in ("name", "labels", "annotations")}
    return {"apiVersion": _V1, "kind": _BINDING, "metadata": metadata, "spec": binding["spec"]}


async def until_in_force(world: World) -> None:
    """Wait until the world's API server goes by every policy and binding that is there now."""
    await until_taken_up(world.kube)


async def until_taken_up(kube: Client) -> None:
    """Wait until the API server goes by the policies and bindings as they are now."""
    name = f"sentinel-{next(_numbers)}.example.org"
    await kube.create(_sentinel(name))
    binding = {"policyName": name, "validationActions": ["Deny"]}
    await kube.create({**named(_V1, _BINDING, name), "spec": binding})
    probe = {**named("v1", "ConfigMap", name, namespace="default"), "data": {}}

    async def refused() -> bool:
        try:
            await kube.create(probe, dry_run=True)
        except APIError as error:
            return name in error.message
        return False

    await eventually(refused)


def _sentinel(name: str) -> dict[str, Any]:
    """A policy that refuses one ConfigMap, which has its own name."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": f"object.metadata.name != '{name}'"}],
    }
    return copy.deepcopy({**named(_V1, "ValidatingAdmissionPolicy", name), "spec": spec})
