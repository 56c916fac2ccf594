"""Nothing in a policy is there for nothing: whatever is replaced, its table tells."""

import asyncio
from typing import Final

import pytest
from policies.cases import telling_first
from policies.force import until_in_force, until_kinds_are_known
from policies.hunt import Version, agrees, noticed, part_of, stand, version
from policies.mutants import Mutant, mutants
from policies.tables import TABLES
from policies.world import MANY, World, install_crds, policies_of

SAME: Final = {
    ("device-protection", 1): "a status is neither created nor deleted by itself",
    ("pod-force-deletion", 0): "each of its rules has an operation of its own, which the expressions ask for",
    ("pod-force-deletion", 1): "an eviction is created, nothing else",
    ("pod-reference", 1): "a binding is created, nothing else",
    ("usage-monitor", 0): "what is deleted, and what is only connected to, has no label to place",
    ("vmi-orphan", 0): "a VMI is created, updated and deleted, nothing else",
}
"""Where a rule can have every operation and nothing comes of it, and why: by policy and number of the rule."""


@pytest.mark.mutants
@pytest.mark.timeout(120, func_only=True)
async def test_a_policy_without_one_of_its_parts_fails_its_table(bare_world: World) -> None:
    # given every policy as it is, and with each of its parts replaced in turn
    world = bare_world
    await asyncio.to_thread(install_crds, world.plane)
    await world.store_for_the_cluster()
    parts = {policy: world.part(part_of(policy)) for policy in TABLES}
    for policy, part in parts.items():
        await part.fill({case.call.obj for case in TABLES[policy] if isinstance(case.call.obj, str)})
    pairs = policies_of(world.plane)
    made = [mutant for pair in pairs.values() for mutant in (Mutant("as it is", *pair), *mutants(*pair))]
    versions = [version(number, mutant) for number, mutant in enumerate(made)]
    await stand(world, versions)
    await until_in_force(world)
    await until_kinds_are_known(world)
    tables = {policy: telling_first(cases) for policy, cases in TABLES.items()}
    mark = world.plane.audited
    # when its table is run on each
    gate = asyncio.Semaphore(MANY)

    async def hunt(version: Version) -> bool:
        async with gate:
            return await noticed(parts[version.of], version, tables[version.of])

    found = await asyncio.gather(*map(hunt, versions))
    as_is = [version for version in versions if version.title == "as it is"]
    wrong = [
        f"{version.of}: {case.title}: {found}"
        for version in as_is
        for case, found in zip(tables[version.of], version.verdicts, strict=False)
        if not agrees(version.name, case, found)
    ]
    wrong += [
        f"{version.of}: {case.title}: the audit log has {told}"
        for version in as_is
        for case, told in zip(tables[version.of], world.told(version.name, version.verdicts, since=mark), strict=False)
        if told != case.audit
    ]
    assert not wrong, "\n".join(wrong)
    # then each but the policy as it is is told from it, by a verdict or by what the audit log has
    unnoticed = [version for version, is_noticed in zip(versions, found, strict=True) if not is_noticed]
    same = [
        version
        for version in unnoticed
        if world.told(version.name, version.verdicts, since=mark) == [case.audit for case in tables[version.of]]
    ]
    expected = {f"{policy}: as it is" for policy in pairs} | {
        f"{policy}.gpu.cozystack.io: matchConstraints.resourceRules.{rule}.operations = ['*']" for policy, rule in SAME
    }
    assert {f"{version.of}: {version.title}" for version in same} == expected
    print(f"{len(versions)} versions, {sum(len(version.verdicts) for version in versions)} requests")
