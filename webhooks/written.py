"""A reply on the wire."""

from email.utils import formatdate
from http import HTTPStatus
from time import time
from typing import Final

from aiohttp.http import SERVER_SOFTWARE

from webhooks.transport import AGAIN_AFTER, BUSY, JSON, Reply

_AGAIN: Final = f"Retry-After: {AGAIN_AFTER}\r\n"
_CLOSE: Final = "Connection: close\r\n"
_STATUS_LINES: Final = {int(status): f"HTTP/1.1 {int(status)} {status.phrase}\r\n" for status in HTTPStatus}


class Written:
    """Writes replies as aiohttp would, byte by byte."""

    def __init__(self) -> None:
        self._date = (0, "")

    def __call__(self, reply: Reply, *, closes: bool) -> bytes:
        """Head and body."""
        now = int(time())
        if now != self._date[0]:
            self._date = (now, formatdate(now, usegmt=True))
        head = (
            f"{_STATUS_LINES[reply.code]}Content-Type: {JSON}\r\n{_AGAIN if reply.code == BUSY else ''}"
            f"Content-Length: {len(reply.body)}\r\n"
            f"Date: {self._date[1]}\r\nServer: {SERVER_SOFTWARE}\r\n{_CLOSE if closes else ''}\r\n"
        )
        return head.encode("ascii") + reply.body
