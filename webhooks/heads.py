"""Heads of calls: those that were read once are known again byte by byte."""

import re
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")

LONGEST: Final = 2048
"""Bytes of a head that can be known; the API server's have about 250."""
_MOST: Final = 64
_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"\r\nContent-Length: "
_MOST_DIGITS: Final = 7
_STRICT: Final = re.compile(
    rb"POST [!-~]+ HTTP/1\.1\r\n(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: [!-~](?:[ -~]*[!-~])?\r\n)+\r\n"
)


def first_head(data: bytes) -> bytes:
    """The head that ``data`` begins with; empty where that is not whole, or too long to be known."""
    end = data.find(_END, 0, LONGEST)
    return data[: end + len(_END)] if end >= 0 else b""


class Head(NamedTuple, Generic[T]):
    """What is known of a head, the bytes that it has, and those that its body is to have."""

    found: T
    size: int
    length: int


class Heads(Generic[T]):
    """What was found about heads, which differ from those that come in by the length of the body alone.

    Nothing is parsed here: who learns a head has had it parsed. Where too many are known the oldest goes.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, T] = {}

    def learn(self, head: bytes, found: T) -> bool:
        """Know a head from now on; whether it is so well formed that no two parsers can differ about it."""
        mark = head.find(_LENGTH)
        if not _STRICT.fullmatch(head) or mark < 0 or head.lower().count(b"\r\ncontent-length:") != 1:
            return False
        start = mark + len(_LENGTH)
        if len(self._known) >= _MOST:
            del self._known[next(iter(self._known))]
        self._known[head[:start] + head[head.index(b"\r\n", start) : -2]] = found
        return True

    def find(self, data: bytes) -> Head[T] | None:
        """The head that ``data`` begins with, if it is known."""
        end = data.find(_END, 0, LONGEST) + 2
        mark = data.find(_LENGTH, 0, end)
        if mark < 0:
            return None
        start = mark + len(_LENGTH)
        stop = data.find(b"\r\n", start)
        found = self._known.get(data[:start] + data[stop:end])
        if found is None:
            return None
        length = data[start:stop]
        if not length.isdigit() or len(length) > _MOST_DIGITS:
            return None
        return Head(found, end + 2, int(length))
