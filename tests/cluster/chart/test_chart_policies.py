"""The policies as helm installs them."""

from collections.abc import Mapping
from typing import Any

from controlplane.client import Client, ref
from controlplane.plane import ControlPlane
from policies.world import policies_of
from release import installed


async def test_the_policies_are_installed_as_they_are_rendered_and_go_with_the_release(
    plane: ControlPlane, kube: Client
) -> None:
    # given what helm template prints
    pairs = policies_of(plane)
    # when the chart is installed
    with installed(plane, {}, "--create-namespace", "--take-ownership"):
        # then each is stored as it was rendered, but for what the API server adds
        for obj in (obj for pair in pairs.values() for obj in pair):
            stored = await kube.get(ref(obj["apiVersion"], obj["kind"], obj["metadata"]["name"]))
            assert contains(stored["spec"], obj["spec"]), obj["metadata"]["name"]
    # and all of them go with the release
    left = await kube.list("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy")
    assert {obj["metadata"]["name"] for obj in left}.isdisjoint(pairs)


def contains(stored: Any, given: Any) -> bool:
    """Whether all that was given is stored."""
    if isinstance(given, Mapping):
        return all(key in stored and contains(stored[key], value) for key, value in given.items())
    if isinstance(given, list):
        return len(stored) == len(given) and all(map(contains, stored, given))
    return bool(stored == given)
