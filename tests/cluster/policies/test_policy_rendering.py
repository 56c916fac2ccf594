"""What the chart renders of the policies, by its values."""

from collections.abc import Mapping
from typing import Any

import pytest
from policies.stored import named
from policies.world import World, policies_of
from release import NAME, NAMESPACE, rendered
from waiting import eventually

POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
VALUES: Mapping[str, Mapping[str, Any]] = {
    "as the chart has them": {},
    "one of each": {
        "platform": {"groups": ["only"], "users": ["sole"]},
        "tenantNamespaceSelector": {"matchLabels": {"a": "b"}, "matchExpressions": []},
    },
    "several of each": {
        "platform": {"groups": ["a", "b:c", "d'e\"<f>"], "users": ["x", "system:y", "z@example.org"]},
        "tenantNamespaceSelector": {
            "matchLabels": {"a": "b", "c": "d"},
            "matchExpressions": [
                {"key": "e", "operator": "In", "values": ["f", "g"]},
                {"key": "h", "operator": "DoesNotExist"},
            ],
        },
        "kubevirt": {"namespace": "cozy-kubevirt"},
    },
    "no users": {"platform": {"users": []}},
}


def test_without_gpus_the_reserved_label_is_kept_and_nothing_else_is_rendered(world: World) -> None:
    # given GPUs are switched off
    objects = rendered(world.plane, {"gpus": {"enabled": False}})
    # then beside the hook that lets go of what was held there is the usage monitor's policy, just as it is with them
    lasting = [obj for obj in objects if "helm.sh/hook" not in obj["metadata"].get("annotations", {})]
    assert {obj["kind"] for obj in lasting} == {POLICY, BINDING}
    policies = policies_of(world.plane, {"gpus": {"enabled": False}})
    assert policies == {
        name: pair for name, pair in policies_of(world.plane).items() if name.startswith("usage-monitor.")
    }
    assert len(policies) == 1


def test_every_policy_fails_closed_and_denies(world: World) -> None:
    for name, (policy, binding) in policies_of(world.plane).items():
        assert policy["spec"]["failurePolicy"] == "Fail"
        assert policy["spec"]["matchConstraints"]["matchPolicy"] == "Equivalent"
        assert binding["spec"]["validationActions"] == ["Deny"]
        assert binding["metadata"]["name"] == name
        assert {validation["reason"] for validation in policy["spec"]["validations"]} == {"Forbidden"}


def test_one_selector_says_which_namespaces_are_tenants(world: World) -> None:
    values = VALUES["several of each"]
    hooks = next(obj for obj in rendered(world.plane, values) if obj["kind"] == "ValidatingWebhookConfiguration")
    selector = hooks["webhooks"][0]["namespaceSelector"]
    found = [binding["spec"].get("matchResources") for _, binding in policies_of(world.plane, values).values()]
    assert {"namespaceSelector": selector} in found
    assert all(resources in (None, {"namespaceSelector": selector}) for resources in found)


@pytest.mark.parametrize("values", VALUES.values(), ids=list(VALUES))
async def test_policies_of_other_values_are_taken_by_the_api_server(world: World, values: Mapping[str, Any]) -> None:
    for policy, binding in policies_of(world.plane, values).values():
        for obj in (policy, binding):
            renamed = {**obj, "metadata": {**obj["metadata"], "name": f"again.{obj['metadata']['name']}"}}
            answer = await world.kube.create(renamed, dry_run=True)
            assert answer.warnings == []


def test_who_the_platform_is_comes_from_the_values(world: World) -> None:
    def conditions(values: Mapping[str, Any]) -> str:
        spec = policies_of(world.plane, values)["device-protection.gpu.cozystack.io"][0]["spec"]
        return str(spec["matchConditions"][0]["expression"])

    own = ",".join(f'"system:serviceaccount:{NAMESPACE}:{NAME}{one}"' for one in ("", "-controller", "-release"))
    assert f'in ["sole",{own}]' in conditions(VALUES["one of each"])
    assert 'in ["only"]' in conditions(VALUES["one of each"])
    assert f"in [{own}]" in conditions(VALUES["no users"])


async def test_no_expression_reads_a_field_that_its_kind_does_not_have(world: World) -> None:
    # given the policies where the kinds are, as the controller of the cluster has checked their types
    for name in policies_of(world.plane):
        policy = await world.kube.get(named("admissionregistration.k8s.io/v1", POLICY, name))
        # then it has nothing to say
        assert policy["status"]["observedGeneration"] == policy["metadata"]["generation"]
        assert policy["status"]["typeChecking"] == {}
    # and of one that reads another it has
    right = policies_of(world.plane)["class-deletion.gpu.cozystack.io"][0]
    spec = {**right["spec"], "validations": [{"expression": "object.spec.nothing == ''"}]}
    wrong = {**right, "metadata": {"name": "wrong.example.org"}, "spec": spec}
    await world.kube.create(wrong)

    async def is_told() -> bool:
        return bool((await world.kube.get(wrong)).get("status", {}).get("typeChecking", {}).get("expressionWarnings"))

    await eventually(is_told)
    await world.kube.delete(wrong)
