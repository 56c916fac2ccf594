"""When a certificate should be renewed: pure functions of its validity and the time.

They ask for nothing but a validity, so a leaf, an authority and a certificate found in a bundle are judged alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datetime import datetime


class Validity(Protocol):
    """Anything with the two ends of a certificate's life, as aware datetimes."""

    @property
    def not_before(self) -> datetime:
        """The first moment at which clients accept it."""
        ...

    @property
    def not_after(self) -> datetime:
        """The moment from which clients refuse it."""
        ...


def due_at(validity: Validity) -> datetime:
    """The moment at which two thirds of the life have passed."""
    return validity.not_before + (validity.not_after - validity.not_before) * 2 / 3


def renewal(validity: Validity, *, now: datetime) -> str | None:
    """The reason, a sentence, for which a certificate should be renewed at `now` (aware), or None.

    It is due when it is not valid yet (the clock was set back), when two thirds of its life have passed, and when it
    has expired. From `not_before` on, what is due once stays due.
    """
    if now < validity.not_before:
        return f"It is not valid before {_moment(validity.not_before)}: the clock was set back."
    if now >= validity.not_after:
        return f"It expired at {_moment(validity.not_after)}."
    due = due_at(validity)
    if now >= due:
        return f"Two thirds of its life had passed at {_moment(due)}."
    return None


def _moment(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")
