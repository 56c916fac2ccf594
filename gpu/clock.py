"""The wall clock, as a value that can be passed in."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

Clock: TypeAlias = Callable[[], datetime]
"""Tells the time of day, with a time zone."""


def utc_now() -> datetime:
    """The time of day, in UTC."""
    return datetime.now(UTC)
