"""A connection that may stand silent for long: probes on it, and its end."""

import os
import socket
from contextlib import suppress
from typing import Final

import aiohttp

_OPTIONS: Final = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""Seconds of silence before the first probe, seconds between probes, probes without an answer that end it (tcp(7))."""


def keep_alive(answer: aiohttp.ClientResponse) -> None:
    """Have the kernel find out within half a minute that the other end of a connection is gone without a word."""
    transport = answer.connection.transport if answer.connection else None
    found = transport.get_extra_info("socket") if transport else None
    if found is None:
        return
    # The event loop's own socket object has no setsockopt; options belong to the connection, not to the descriptor.
    with suppress(OSError), socket.socket(fileno=os.dup(found.fileno())) as copy:
        copy.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _OPTIONS.items():
            if hasattr(socket, name):
                copy.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def cut(answer: aiohttp.ClientResponse) -> None:
    """End the connection of an answer that is not read to its end, at once.

    Closed, it would wait half a minute for the other end to say goodbye over TLS (asyncio's ssl_shutdown_timeout), and
    be left open where the event loop ends before that.
    """
    if answer.connection and answer.connection.transport:
        answer.connection.transport.abort()
