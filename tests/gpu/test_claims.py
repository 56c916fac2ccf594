"""Resource claims are read in every version that asks for DeviceClasses."""

from typing import Any

import pytest

from gpu.claims import claimed_device_classes
from gpu.errors import FieldError


def claim(*requests: object) -> dict[str, Any]:
    return {"kind": "ResourceClaim", "spec": {"devices": {"requests": list(requests)}}}


def template(*requests: object) -> dict[str, Any]:
    return {"kind": "ResourceClaimTemplate", "spec": {"spec": {"devices": {"requests": list(requests)}}}}


@pytest.mark.parametrize(
    ("request_", "classes"),
    [
        ({"name": "r", "deviceClassName": "gpu.nvidia.com"}, {"gpu.nvidia.com"}),
        ({"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com"}}, {"gpu.nvidia.com"}),
        ({"name": "r", "firstAvailable": [{"deviceClassName": "a"}, {"deviceClassName": "b"}]}, {"a", "b"}),
        ({"name": "r"}, set()),
        ({"name": "r", "exactly": None, "firstAvailable": None, "deviceClassName": None}, set()),
    ],
    ids=["v1beta1", "exactly", "every alternative", "none", "null"],
)
@pytest.mark.parametrize("kind", [claim, template], ids=["claim", "template"])
def test_the_classes_of_a_request_are_found(kind: Any, request_: dict[str, Any], classes: set[str]) -> None:
    assert claimed_device_classes(kind(request_)) == classes


def test_every_request_counts() -> None:
    found = claimed_device_classes(claim({"deviceClassName": "a"}, {"exactly": {"deviceClassName": "b"}}))

    assert found == {"a", "b"}


@pytest.mark.parametrize("spec", [None, {}, {"devices": None}, {"devices": {}}, {"devices": {"requests": None}}])
def test_a_claim_that_asks_for_nothing_names_no_class(spec: object) -> None:
    assert claimed_device_classes({"kind": "ResourceClaim", "spec": spec}) == frozenset()
    assert claimed_device_classes({"kind": "ResourceClaimTemplate", "spec": {"spec": spec}}) == frozenset()


@pytest.mark.parametrize(
    ("requests", "path"),
    [
        (["r"], "[0]"),
        ([{}, {"deviceClassName": 1}], "[1].deviceClassName"),
        ([{"exactly": "gpu"}], "[0].exactly"),
        ([{"exactly": {"deviceClassName": []}}], "[0].exactly.deviceClassName"),
        ([{"firstAvailable": {}}], "[0].firstAvailable"),
        ([{"firstAvailable": [{}, {"deviceClassName": 1}]}], "[0].firstAvailable[1].deviceClassName"),
    ],
)
def test_a_wrong_type_is_told_with_its_field_path(requests: list[object], path: str) -> None:
    with pytest.raises(FieldError) as of_claim:
        claimed_device_classes(claim(*requests))
    with pytest.raises(FieldError) as of_template:
        claimed_device_classes(template(*requests))

    assert of_claim.value.path == f"spec.devices.requests{path}"
    assert of_template.value.path == f"spec.spec.devices.requests{path}"


@pytest.mark.parametrize(
    ("spec", "path"), [([], ""), ({"devices": []}, ".devices"), ({"devices": {"requests": {}}}, ".devices.requests")]
)
def test_a_wrong_type_on_the_way_is_told_with_its_field_path(spec: object, path: str) -> None:
    with pytest.raises(FieldError) as of_claim:
        claimed_device_classes({"kind": "ResourceClaim", "spec": spec})
    with pytest.raises(FieldError) as of_template:
        claimed_device_classes({"kind": "ResourceClaimTemplate", "spec": {"spec": spec}})

    assert of_claim.value.path == f"spec{path}"
    assert of_template.value.path == f"spec.spec{path}"
