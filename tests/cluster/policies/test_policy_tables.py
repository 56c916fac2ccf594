"""Each policy, read out of the rendered chart, against its table of requests."""

import pytest
from policies.hunt import agrees
from policies.tables import TABLES
from policies.world import World, policies_of

from gpu import names


@pytest.mark.parametrize("policy", TABLES)
async def test_a_policy_lets_in_what_it_should_and_refuses_the_rest_by_its_message(world: World, policy: str) -> None:
    # given a table of requests, with who makes them
    cases = TABLES[policy]
    mark = world.plane.audited
    # when each is made, as a dry run
    verdicts = await world.verdicts(cases)
    # then it is let in, or refused by this policy with its message
    outcomes = list(zip(cases, verdicts, strict=True))
    wrong = [f"{case.title}: {found}" for case, found in outcomes if not agrees(policy, case, found)]
    assert not wrong, "\n".join(wrong)
    # and the audit log has what was tried, where the policy says so
    heard = await world.heard(verdicts, since=mark)
    told = heard.told(policy, verdicts)
    untold = [f"{case.title}: {tells}" for case, tells in zip(cases, told, strict=True) if tells != case.audit]
    assert not untold, "\n".join(untold)


def test_each_policy_has_a_table_and_is_known_by_name(world: World) -> None:
    found = policies_of(world.plane)
    assert set(found) == set(TABLES)
    tenants = {name for name, (_, binding) in found.items() if "matchResources" in binding["spec"]}
    assert tenants == set(names.TENANT_POLICIES)
    assert found.keys() - tenants == set(names.CLUSTER_POLICIES)
