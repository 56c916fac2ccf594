"""Nothing in a policy is there for nothing: whatever is replaced, its table tells."""

import asyncio
from typing import Final

import pytest
from policies.cases import telling_first
from policies.force import until_in_force, until_kinds_are_known
from policies.hunt import Table, Version, agrees, noticed, part_of, stand, version
from policies.mutants import Mutant, mutants
from policies.tables import TABLES
from policies.telltales import keep, recalled
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
@pytest.mark.timeout(300, func_only=True)
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
    telltales = recalled()
    tables = {policy: Table(telling_first(cases), telltales) for policy, cases in TABLES.items()}
    as_is = [version for version in versions if version.title == "as it is"]
    mark = world.plane.audited
    # when its table is run on each, and on the policy as it is what told any of them
    gate = asyncio.Semaphore(MANY)

    async def hunt(version: Version) -> bool:
        async with gate:
            table = tables[version.of]
            is_noticed = await noticed(parts[version.of], version, table.for_(version))
            if is_noticed:
                table.tells_by(version.asked[-1])
            return is_noticed

    async def run(version: Version) -> None:
        async with gate:
            await noticed(parts[version.of], version, tables[version.of].that_told())

    changed = [version for version in versions if version not in as_is]
    found = await asyncio.gather(*map(hunt, changed))
    unnoticed = [version for version, is_noticed in zip(changed, found, strict=True) if not is_noticed]
    keep({version.called: version.asked[-1].title for version, told in zip(changed, found, strict=True) if told})
    await asyncio.gather(*map(run, as_is))
    # then the policy as it is does what its table says, in the audit log too
    heard = await world.heard((verdict for one in (*as_is, *unnoticed) for verdict in one.verdicts), since=mark)
    wrong = [
        f"{version.of}: {case.title}: {found}, the audit log has {told}"
        for version in as_is
        for case, found, told in zip(
            version.asked, version.verdicts, heard.told(version.name, version.verdicts), strict=True
        )
        if not agrees(version.name, case, found) or told != case.audit
    ]
    assert not wrong, "\n".join(wrong)
    # and each but that is told from it, by a verdict or by what the audit log has
    same = [
        version
        for version in unnoticed
        if heard.told(version.name, version.verdicts) == [case.audit for case in version.asked]
    ]
    expected = {
        f"{policy}.gpu.cozystack.io: matchConstraints.resourceRules.{rule}.operations = ['*']" for policy, rule in SAME
    }
    assert {version.called for version in same} == expected
    print(f"{len(versions)} versions, {sum(len(version.verdicts) for version in versions)} requests")
