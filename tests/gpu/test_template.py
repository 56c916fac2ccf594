"""The device-template annotation: one small JSON object, read strictly."""

import pytest

from gpu.errors import FieldError
from gpu.template import DeviceTemplate, read_template

FIELD = "metadata.annotations[gpu.cozystack.io/device-template]"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('{"className":"h200"}', 1),
        ('{"className":"h200","count":1}', 1),
        ('{"count": 16, "className": "h200"}', 16),
        ('{"className":"h200","count":null}', 1),
        (' \n{"className":\t"h200"}\r\n', 1),
        ('{"className":"h\\u0032\\u00300"}', 1),
    ],
    ids=["one by default", "one", "sixteen", "null", "white space", "escapes"],
)
def test_it_holds_a_class_and_a_count(text: str, count: int) -> None:
    assert read_template(text) == DeviceTemplate("h200", count)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "h200",
        '{"className":"h200"',
        "{'className':'h200'}",
        '{"className":"h200",}',
        '{"className":"h200"} x',
        '{"className":"h200","count":NaN}',
        '{"className":"h200","count":+1}',
        '{"className":"h200","count":0x1}',
        '{"className":"h200","count":01}',
        "className: h200",
        "[" * 2000 + "]" * 2000,
    ],
)
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(FieldError, match="must be JSON such as ") as error:
        read_template(text)

    assert error.value.path == FIELD
    assert '{"className":"h200","count":1}' in error.value.problem


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[]", "a list"),
        ('["h200"]', "a list"),
        ('"h200"', "a string"),
        ("1", "a whole number"),
        ("1.5", "a number"),
        ("true", "true or false"),
        ("null", "null"),
    ],
)
def test_what_is_no_object_is_refused(text: str, kind: str) -> None:
    with pytest.raises(FieldError, match=f"must be a JSON object with className, not {kind}") as error:
        read_template(text)

    assert error.value.path == FIELD


@pytest.mark.parametrize("key", ["classname", "resourceName", "", "count ", "x" * 200])
def test_another_key_is_refused_by_its_name(key: str) -> None:
    with pytest.raises(FieldError, match=f"has the unknown key '{key[:62]}") as error:
        read_template(f'{{"className":"h200","{key}":1}}')

    assert error.value.path == FIELD
    assert len(error.value.problem) < 150


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{}", "FieldValueRequired"),
        ('{"count":1}', "FieldValueRequired"),
        ('{"className":null}', "FieldValueRequired"),
        ('{"className":""}', "FieldValueRequired"),
        ('{"className":7}', "FieldValueTypeInvalid"),
        ('{"className":true}', "FieldValueTypeInvalid"),
        ('{"className":["h200"]}', "FieldValueTypeInvalid"),
        ('{"className":{"name":"h200"}}', "FieldValueTypeInvalid"),
    ],
)
def test_the_class_is_required_and_a_text(text: str, reason: str) -> None:
    with pytest.raises(FieldError) as error:
        read_template(text)

    assert (error.value.path, error.value.reason) == (f"{FIELD}.className", reason)


@pytest.mark.parametrize("count", ["0", "-1", "-0", "17", "9223372036854775807", "18446744073709551615"])
def test_a_count_is_from_1_to_16(count: str) -> None:
    with pytest.raises(FieldError, match="must be from 1 to 16") as error:
        read_template(f'{{"className":"h200","count":{count}}}')

    assert error.value.path == f"{FIELD}.count"


@pytest.mark.parametrize(
    "count",
    ["true", "false", "1.0", "1.5", "1e0", "1e2", "1E400", "18446744073709551616", '"1"', '""', "[1]", '{"gpus":1}'],
)
def test_a_count_is_a_whole_number(count: str) -> None:
    with pytest.raises(FieldError) as error:
        read_template(f'{{"className":"h200","count":{count}}}')

    assert error.value.path == (f"{FIELD}.count" if count != "1E400" else FIELD)
    assert "must be" in error.value.problem


def test_of_a_key_that_stands_twice_the_last_counts() -> None:
    assert read_template('{"className":"a","count":1,"className":"h200","count":2}') == DeviceTemplate("h200", 2)


def padded(size: int) -> str:
    text = '{"className":"h200"}'
    return text + " " * (size - len(text))


def test_it_has_at_most_4_kib() -> None:
    assert read_template(padded(4096)) == DeviceTemplate("h200", 1)
    with pytest.raises(FieldError, match="must be at most 4 KiB") as error:
        read_template(padded(4097))

    assert (error.value.path, error.value.reason) == (FIELD, "FieldValueTooLong")


def test_its_size_is_counted_in_bytes() -> None:
    text = f'{{"className":"{"ü" * 2048}"}}'

    assert len(text) < 4096
    with pytest.raises(FieldError, match="must be at most 4 KiB"):
        read_template(text)


def test_its_device_is_an_order_with_the_template_label() -> None:
    assert DeviceTemplate("h200", 2).manifest("tenant-a", "vm-1") == {
        "apiVersion": "gpu.cozystack.io/v1alpha1",
        "kind": "GPUDevice",
        "metadata": {
            "namespace": "tenant-a",
            "name": "vm-1",
            "labels": {"gpu.cozystack.io/template-device": "true"},
        },
        "spec": {"className": "h200", "count": 2},
    }


def test_its_device_can_be_told_before_it_is_created() -> None:
    device = DeviceTemplate("h200", 2).device("tenant-a", "vm-1")

    assert (device.name, device.class_name, device.count) == ("vm-1", "h200", 2)
    assert device.from_template
    assert not device.held
