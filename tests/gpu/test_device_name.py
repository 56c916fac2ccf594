"""The name of a device that is built: a DNS label that a retry and a restarted VM come to again."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.errors import FieldError
from gpu.gpudevice import is_device_name
from gpu.template import DeviceTemplate, Maker

H200 = DeviceTemplate("h200", 1)
VM = Maker(owner_uid="vm-uid", name="train", generate_name="", retry="r-1")
REPLICA = Maker(owner_uid="rs-uid", name="", generate_name="farm", retry="r-1")


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("train", "train"),
        ("my.vm.v2", "my-vm-v2"),
        ("Train-VM", "train-vm"),
        ("a_b", "a-b"),
        ("a..b", "a-b"),
        (".train.", "train"),
        ("...", "vmi"),
        ("ü", "vmi"),
        ("7", "7"),
        ("x" * 253, "x" * 54),
        ("x" * 53 + ".y", "x" * 53),
        ("x" * 54 + "y", "x" * 54),
    ],
    ids=["label", "dots", "upper case", "underscore", "two dots", "dots around", "only dots", "nothing left", "digit",
         "253 characters", "cut behind a dash", "cut"],
)  # fmt: skip
def test_it_is_the_vmis_name_as_a_dns_label_and_8_hex_digits(name: str, stem: str) -> None:
    found = replace(VM, name=name).device_name(H200)

    assert re.fullmatch(f"{re.escape(stem)}-[0-9a-f]{{8}}", found)
    assert is_device_name(found)


@given(st.text(max_size=300), st.text(max_size=300), st.integers(0, 20))
def test_it_is_a_dns_label_whatever_the_vmi_is_called(name: str, generate_name: str, salt: int) -> None:
    maker = Maker(owner_uid="", name=name, generate_name=generate_name, retry="")

    assert is_device_name(maker.device_name(H200, salt=salt))


def test_a_retry_and_a_restarted_vm_come_to_the_same_name() -> None:
    assert VM.device_name(H200) == replace(VM, retry="r-2").device_name(DeviceTemplate("h200", 1))


@pytest.mark.parametrize(
    ("maker", "template", "salt"),
    [
        (replace(VM, owner_uid="other"), H200, 0),
        (replace(VM, owner_uid=""), H200, 0),
        (replace(VM, name="train2"), H200, 0),
        (replace(VM, name="TRAIN"), H200, 0),
        (VM, DeviceTemplate("l40s", 1), 0),
        (VM, DeviceTemplate("h200", 2), 0),
        (VM, H200, 1),
        (VM, H200, 2),
    ],
    ids=["owner", "no owner", "name", "case", "class", "count", "salt", "another salt"],
)
def test_anything_else_comes_to_another_name(maker: Maker, template: DeviceTemplate, salt: int) -> None:
    names = {VM.device_name(H200), VM.device_name(H200, salt=3), maker.device_name(template, salt=salt)}

    assert len(names) == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [("x" * 252 + "a", "x" * 252 + "b"), ("a.b", "a-b"), ("a..b", "a.b"), ("...", "vmi")],
    ids=["behind the cut", "dot and dash", "two dots", "nothing left"],
)
def test_names_that_look_alike_afterwards_get_different_hashes(one: str, other: str) -> None:
    first, second = replace(VM, name=one).device_name(H200), replace(VM, name=other).device_name(H200)

    assert first[:-8] == second[:-8]
    assert first != second


def test_without_a_name_the_requests_uid_tells_one_replica_from_the_next() -> None:
    first, again, next_one = (replace(REPLICA, retry=uid).device_name(H200) for uid in ("r-1", "r-1", "r-2"))

    assert first.startswith("farm-")
    assert first == again
    assert first != next_one


def test_a_name_and_a_generate_name_never_come_to_the_same() -> None:
    assert replace(VM, name="farm").device_name(H200) != replace(VM, name="", generate_name="farm").device_name(H200)


def metadata(**more: Any) -> dict[str, Any]:
    owner = {"kind": "VirtualMachine", "uid": "vm-uid", "controller": True}
    return {"name": "train", "ownerReferences": [{"uid": "someone"}, owner], **more}


def test_the_maker_is_read_from_a_vmis_metadata() -> None:
    assert Maker.of(metadata(), request_uid="r-1") == VM


@pytest.mark.parametrize(
    "owners", [None, [], [{"uid": "x"}], [{"uid": "x", "controller": False}], [{"uid": "x", "controller": "true"}]]
)
def test_only_a_controller_owner_counts(owners: object) -> None:
    assert Maker.of(metadata(ownerReferences=owners), request_uid="r-1").owner_uid == ""


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"name": 7}, "metadata.name"),
        ({"generateName": []}, "metadata.generateName"),
        ({"ownerReferences": {}}, "metadata.ownerReferences"),
        ({"ownerReferences": ["vm"]}, "metadata.ownerReferences[0]"),
        ({"ownerReferences": [{}, {"controller": True, "uid": 7}]}, "metadata.ownerReferences[].uid"),
    ],
)
def test_a_wrong_type_is_told_with_its_field_path(change: dict[str, Any], path: str) -> None:
    with pytest.raises(FieldError) as error:
        Maker.of(metadata(**change), request_uid="r-1")

    assert error.value.path == path
