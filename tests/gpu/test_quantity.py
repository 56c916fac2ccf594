"""Quantities are read as the Kubernetes API reads them."""

from decimal import Decimal

import pytest

from gpu.quantity import quantity


@pytest.mark.parametrize(
    ("value", "amount"),
    [
        (4, "4"),
        (0, "0"),
        (1.5, "1.5"),
        ("4", "4"),
        ("+4", "4"),
        ("-4", "-4"),
        ("4.", "4"),
        (".5", "0.5"),
        ("0.1", "0.1"),
        ("1e3", "1000"),
        ("1E3", "1000"),
        ("1e-3", "0.001"),
        ("1E", "1000000000000000000"),
        ("1k", "1000"),
        ("1M", "1000000"),
        ("1G", "1000000000"),
        ("1T", "1000000000000"),
        ("1P", "1000000000000000"),
        ("100m", "0.1"),
        ("5u", "0.000005"),
        ("5n", "0.000000005"),
        ("2Ki", "2048"),
        ("1Mi", "1048576"),
        ("1Gi", "1073741824"),
        ("1Ti", "1099511627776"),
        ("1Pi", "1125899906842624"),
        ("1Ei", "1152921504606846976"),
        (1e22, "1e22"),
    ],
)
def test_an_amount_is_read(value: object, amount: str) -> None:
    assert quantity(value) == Decimal(amount)


@pytest.mark.parametrize(
    "value",
    [
        "", " ", "Gi", "1 Gi", "1gi", "1K", "1Kib", "e3", "1e", "1e1000", "--1", "1,5", "0x10", "1_000", ".",
        "1\n", "NaN", "inf", "٤", "9" * 65, float("nan"), float("inf"), True, False, None, [], {}, ["1"],
    ],
)  # fmt: skip
def test_what_is_no_quantity_is_told(value: object) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        quantity(value)


def test_a_whole_number_longer_than_python_prints_is_no_quantity() -> None:
    with pytest.raises(ValueError, match=r"\d+"):
        quantity(10**5000)
