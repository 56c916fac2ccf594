"""The checks of the policies, which the API server goes by while the service is down."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpu import names
from webhooks.doctor.evidence import Evidence, Obj
from webhooks.doctor.finding import Finding

_ANEW: Final = "helm upgrade, which sets it to the chart's"


def policies(found: Evidence) -> Iterator[Finding]:
    """Every policy is there with its binding, fails closed, denies, and is about the namespaces that it should be."""
    if {"policies", "bindings"} & found.unread.keys():
        return
    tenants = _tenants(found.webhooks)
    failures = [
        Finding.failure(name, problem, _ANEW)
        for name in (*names.TENANT_POLICIES, *names.CLUSTER_POLICIES)
        for problem in _problems(name, found, tenants)
    ]
    yield from failures
    if not failures:
        seen = f"all {len(names.TENANT_POLICIES) + len(names.CLUSTER_POLICIES)} are there, fail closed and deny"
        yield Finding.ok("policies", seen)


def _problems(name: str, found: Evidence, tenants: Obj | None) -> Iterator[str]:
    """What is amiss with a policy; ``tenants`` is the selector of their namespaces, None where it is not known."""
    policy, binding = found.policies.get(name), found.bindings.get(name)
    if policy is None:
        yield "there is no ValidatingAdmissionPolicy of this name: what it is for is let in while the service is down"
    elif (fails := policy["spec"].get("failurePolicy", "Fail")) != "Fail":
        yield f"failurePolicy is {fails}: what can't be judged is let in"
    if binding is None:
        yield "there is no ValidatingAdmissionPolicyBinding of this name: the policy is not in force"
        return
    spec = binding["spec"]
    if (bound := spec.get("policyName")) != name:
        yield f"its binding is of the policy {bound}: this one is not in force"
    if "Deny" not in (actions := spec.get("validationActions") or []):
        yield f"its binding does not deny: validationActions are {', '.join(actions)}"
    selector = (spec.get("matchResources") or {}).get("namespaceSelector") or {}
    expected = {} if name in names.CLUSTER_POLICIES else tenants
    if expected is not None and selector != expected:
        yield "its binding selects other namespaces than it should: some go without it, or are judged that must not be"


def _tenants(webhooks: Mapping[str, Obj | None]) -> Obj | None:
    """The selector of the first webhook."""
    entries: list[Mapping[str, Any]] = [
        entry for found in webhooks.values() if found for entry in found.get("webhooks") or ()
    ]
    return dict(entries[0].get("namespaceSelector") or {}) if entries else None
