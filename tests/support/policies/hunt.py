"""Runs the tables against many versions of the policies at once, each of which sees its own requests alone."""

import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from controlplane.client import Object
from policies.cases import Case
from policies.mutants import Mutant
from policies.world import PART, Verdict, World, create_all

_KEY: Final = "version"


@dataclass(kw_only=True)
class Version:
    """A version of a policy under a name of its own, and what it did to the table."""

    title: str
    of: str
    name: str
    policy: dict[str, Any]
    binding: dict[str, Any] | None
    asked: list[Case] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    """What came of each case that it was asked."""

    @property
    def called(self) -> str:
        """What it is, in words: the same for every run."""
        return f"{self.of}: {self.title}"

    @property
    def headers(self) -> dict[str, str]:
        """What tells its requests from those of others."""
        return {f"Impersonate-Extra-{_KEY}": self.name}


def version(number: int, mutant: Mutant) -> Version:
    """A mutant that is to stand beside others."""
    of = mutant.policy["metadata"]["name"]
    name = f"m{number}.{of}"
    mine = {"name": "is-mine", "expression": f"'{name}' in request.userInfo.?extra.?{_KEY}.orValue([])"}
    policy = _renamed(mutant.policy, name)
    policy["spec"]["matchConditions"] = [mine, *policy["spec"].get("matchConditions", ())]
    binding = _renamed(mutant.binding, name) if mutant.binding else None
    if binding:
        binding["spec"]["policyName"] = name
        selector = binding["spec"].setdefault("matchResources", {}).setdefault("namespaceSelector", {})
        mine_alone = {"key": PART, "operator": "In", "values": [part_of(of)]}
        selector["matchExpressions"] = [*selector.get("matchExpressions", ()), mine_alone]
    return Version(title=mutant.title, of=of, name=name, policy=policy, binding=binding)


def part_of(policy: str) -> str:
    """The part of the world that the versions of a policy have."""
    return policy.partition(".")[0]


def _renamed(obj: Object, name: str) -> dict[str, Any]:
    copied: dict[str, Any] = copy.deepcopy(dict(obj))
    copied["metadata"]["name"] = name
    return copied


async def stand(world: World, versions: Sequence[Version]) -> None:
    """Create them all, beside one another."""
    await create_all(world.kube, [version.policy for version in versions])
    await create_all(world.kube, [version.binding for version in versions if version.binding])


def expected(policy: str, case: Case) -> Verdict:
    """What a case says that comes of it."""
    return Verdict(policy, case.refused, case.code) if case.refused else Verdict()


def agrees(policy: str, case: Case, found: Verdict) -> bool:
    """Whether what came of a case is what it says."""
    if not case.reaches:
        found = Verdict(found.policy, found.message, found.code)
    return found == expected(policy, case)


class Table:
    """The cases of a policy: first the one that told a version from it before, by ``telltales``; then those that told
    most versions so far, since the next are much like those.
    """

    def __init__(self, cases: Sequence[Case], telltales: Mapping[str, str]) -> None:
        self._cases = cases
        self._telltales = telltales
        self._told: Counter[int] = Counter()

    def for_(self, version: Version) -> Iterator[Case]:
        """The cases that a version is asked: where only the audit log can tell it, those that leave something there."""
        written_alone = version.title.startswith("auditAnnotations")
        first = self._telltales.get(version.called)
        for at in sorted(range(len(self._cases)), key=lambda at: (self._cases[at].title != first, -self._told[at], at)):
            if self._cases[at].audit or not written_alone:
                yield self._cases[at]

    def tells_by(self, case: Case) -> None:
        self._told[self._cases.index(case)] += 1

    def that_told(self) -> list[Case]:
        """The cases that told a version from the policy, or could by what they leave in the audit log."""
        return [case for at, case in enumerate(self._cases) if case.audit or self._told[at]]


async def noticed(world: World, version: Version, cases: Iterable[Case]) -> bool:
    """Whether one of the cases tells this version from the policy by a verdict; they are left where one first does.

    Raises AssertionError where something else than a policy speaks against what would be let in.
    """
    for case in cases:
        found = await world.verdict(case, version.headers)
        version.asked.append(case)
        version.verdicts.append(found)
        if case.reaches and not case.refused and found.problem:
            raise AssertionError(f"{version.name}: {case.title}: {found.problem}")
        if not agrees(version.name, case, found):
            return True
    return False
