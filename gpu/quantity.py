"""Kubernetes quantities, as far as whole devices and memory need them."""

import re
from decimal import Decimal
from typing import Final

_SUFFIXES: Final = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal(10) ** 3, "M": Decimal(10) ** 6, "G": Decimal(10) ** 9, "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15, "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10, "Mi": Decimal(2) ** 20, "Gi": Decimal(2) ** 30, "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50, "Ei": Decimal(2) ** 60,
}  # fmt: skip
_SHAPE: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?[0-9]{1,3}))?")
_LONGEST: Final = 64


def quantity(value: object) -> Decimal:
    """The amount that a quantity stands for. Raises ValueError for what is none.

    A string such as ``"80Gi"``, ``"1e3"`` or ``"4"``, or a JSON number, which the API takes too
    (k8s.io/apimachinery/pkg/api/resource, Quantity). A boolean, an infinite number or a text of over 64 characters
    is none.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError("not a quantity")  # noqa: TRY004 - one error for whatever is no quantity
    match = _SHAPE.fullmatch(str(value)) if len(str(value)) <= _LONGEST else None
    if match is None:
        raise ValueError("not a quantity")
    number, suffix, exponent = match.groups()
    return Decimal(number) * (Decimal(10) ** int(exponent) if exponent else _SUFFIXES[suffix or ""])
