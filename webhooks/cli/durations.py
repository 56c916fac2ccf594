"""Durations on the command line."""

import re
from datetime import timedelta
from typing import Any, Final

import click

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+")


class Duration(click.ParamType[timedelta]):
    """A duration such as 90s, 15m, 36h or 365d, or several of those one after the other."""

    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """See click.ParamType."""
        if isinstance(value, timedelta):
            return value
        if not _WHOLE.fullmatch(value):
            self.fail(f"{value!r} is no duration: give a number and a unit, such as 90s, 15m, 36h or 365d", param, ctx)
        try:
            return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value)))
        except OverflowError:
            self.fail(f"{value!r} is longer than time is counted", param, ctx)
