"""The pair and the policies say the same wherever the policies can see enough; where not, it is written down why."""

import copy
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
from controlplane.versions import NEWEST
from policies.callers import ADMISSION, CONTROLLER, CONTROLLER_OF_KUBEVIRT
from policies.cases import TENANTS, Case
from policies.corpus import WHO, Asked, corpus
from policies.stored import SETTINGS, device, gpu_class, settings
from policies.world import World
from release import NAMESPACE

from gpu import names
from webhooks.admit import Admitter
from webhooks.settings import Settings
from webhooks.testing import InMemoryCatalog, User, persisted

_OF_NOTHING: Final = ("a label of nothing", "an empty label")
GRANTED: Final = ("gpus",)
"""The roads of VMIs by which exactly what the device ``my-gpu`` grants is asked for."""
STRICTER: Final[Mapping[str, Callable[[Asked], bool]]] = {
    "that there is no such device can't be looked up from a policy": lambda asked: (
        asked.kind == "VMI" and asked.call.operation == "create" and asked.mark in _OF_NOTHING
    ),
    "what a device grants can't be looked up from a policy": lambda asked: (
        asked.kind == "VMI"
        and asked.call.operation == "create"
        and asked.mark == "the label"
        and asked.road not in GRANTED
    ),
    "nor that it was built from this annotation": lambda asked: (
        asked.kind == "VMI" and asked.call.operation == "create" and asked.mark == "both"
    ),
    "nor can the device of a launcher pod": lambda asked: (
        asked.kind == "pod" and asked.who == CONTROLLER_OF_KUBEVIRT and "a VMI as owner" in asked.road
    ),
    "a class that is not there is no parameter": lambda asked: "none-of-that-name" in asked.road,
    "how many a class sells is not what the policy on its deletion is about": lambda asked: asked.road == "9 of h200",
}
"""Why the pair refuses what the policies let in. The policies refuse nothing that the pair lets in."""


def catalog() -> InMemoryCatalog:
    """The same classes, settings and devices as on the API server."""
    found = InMemoryCatalog()
    leaving = gpu_class("leaving-class", finalizers=(names.CLASS_FINALIZER,))
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    for obj in (gpu_class("h200"), gpu_class("free-h200"), leaving, settings(NAMESPACE, SETTINGS)):
        found.add(obj)
    mine = device("my-gpu")
    mine["metadata"]["namespace"] = TENANTS
    found.add(mine)
    return found


async def lets_in(admitter: Admitter, asked: Asked, world: World) -> bool:
    """Whether the validating path lets a request in."""
    user = User(asked.who.user, asked.who.groups)
    if isinstance(asked.call.obj, Mapping):
        obj = persisted(world.manifest(asked.call.obj, TENANTS))
        return (await admitter.ask("validate", obj, user, operation="CREATE")).allowed
    old = dict(world.stored(asked.call.obj, TENANTS))
    return (await admitter.ask("validate", merged(old, asked.call.body), user, operation="UPDATE", old=old)).allowed


def merged(obj: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """The object with a merge patch applied (RFC 7396)."""
    found = copy.deepcopy(dict(obj))
    for key, value in change.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, Mapping):
            found[key] = merged(found.get(key) or {}, value)
        else:
            found[key] = value
    return found


@pytest.mark.parametrize("settled", [NEWEST], indirect=True)
async def test_the_pair_and_the_policies_differ_only_where_it_is_written_down(world: World) -> None:
    # given every combination of road, mark, caller and operation; that versions judge alike is the tables' to show
    requests = list(corpus())
    admitter = Admitter(
        catalog(), Settings(platform_users=Settings().platform_users | {ADMISSION.user, CONTROLLER.user})
    )
    # when both are asked
    by_policies = await world.verdicts([Case(title="", who=asked.who, call=asked.call) for asked in requests])
    by_pair = [await lets_in(admitter, asked, world) for asked in requests]
    # then the policies refuse nothing that the pair lets in, and nothing else speaks against a request
    outcomes = list(zip(requests, by_policies, by_pair, strict=True))
    assert [f"{asked.title}: {found}" for asked, found, _ in outcomes if found.problem] == []
    assert [f"{asked.title}: {found}" for asked, found, allowed in outcomes if found.policy and allowed] == []
    # and what the device grants is let in by both, whoever asks
    for road in GRANTED:
        asks = [
            (asked.title, found, allowed)
            for asked, found, allowed in outcomes
            if (asked.kind, asked.road, asked.mark) == ("VMI", road, "the label")
        ]
        assert len(asks) == len(WHO)
        assert [title for title, found, allowed in asks if found.policy or not allowed] == []
    # and the pair refuses more only for a reason that is written down, each of which holds somewhere
    reasons = Counter(
        next((why for why, holds in STRICTER.items() if holds(asked)), f"no reason: {asked.title}")
        for asked, found, allowed in outcomes
        if not found.policy and not allowed
    )
    assert set(reasons) == set(STRICTER)
    assert Counter(bool(found.policy) == (not allowed) for _, found, allowed in outcomes)[True] > len(outcomes) / 2
    print(f"{len(outcomes)} requests; the pair is stricter in: {dict(reasons)}")
