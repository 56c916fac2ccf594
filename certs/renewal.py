"""When a certificate should be renewed: pure functions of its validity and the time.

They ask for nothing but a validity, so a leaf and an authority are judged alike.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol

from certs.errors import CertificateError

if TYPE_CHECKING:
    from datetime import datetime

_SHORTEST: Final = timedelta(seconds=2)


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


def due_at(validity: Validity, *, lifetime: timedelta) -> datetime:
    """The moment at which two thirds of a life of `lifetime` have passed, counted back from its end.

    A certificate does not tell when it was made: it is valid from an earlier moment on.
    """
    return validity.not_after - lifetime / 3


def renewal(validity: Validity, *, now: datetime, lifetime: timedelta) -> str | None:
    """The reason, a sentence, for which a certificate should be renewed at `now` (aware), or None.

    It is due when it is not valid yet (the clock was set back), when two thirds of the life that it is given,
    `lifetime`, have passed, and when it has expired. From `not_before` on, what is due once stays due.
    """
    if now < validity.not_before:
        return f"It is not valid before {_moment(validity.not_before)}: the clock was set back."
    if now >= validity.not_after:
        return f"It expired at {_moment(validity.not_after)}."
    due = due_at(validity, lifetime=lifetime)
    if now >= due:
        return f"Two thirds of its life had passed at {_moment(due)}."
    return None


def leaf_renewal(leaf: Validity, *, signer: Validity, now: datetime, lifetime: timedelta) -> str | None:
    """The reason for which a leaf should be renewed by its signer at `now`, or None.

    One that ends with its signer stays while it is valid: that signer can make none that lives longer.
    """
    reason = renewal(leaf, now=now, lifetime=lifetime)
    valid = leaf.not_before <= now < leaf.not_after
    return None if valid and leaf.not_after >= signer.not_after else reason


def check_lifetimes(*lifetimes: timedelta) -> None:
    """Raise CertificateError for one so short that it ends when it begins: X.509 counts in whole seconds."""
    if any(lifetime < _SHORTEST for lifetime in lifetimes):
        raise CertificateError(f"A lifetime is too short: give {_SHORTEST.total_seconds():.0f} s at least to each.")


def _moment(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")
