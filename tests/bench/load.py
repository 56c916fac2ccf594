"""A load generator: keep-alive connections over TLS that post one body without pause, in a process of its own.

Run as ``python load.py URL CA-FILE CONNECTIONS SECONDS`` with BODY naming the body's file; prints a JSON result.
"""

import asyncio
import json
import os
import ssl
import sys
import time
from array import array
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvloop


class _Connection(asyncio.Protocol):
    """Sends the request, waits for the whole answer, and again."""

    def __init__(self, request: bytes, end: float, done: "asyncio.Future[None]") -> None:
        self._request = request
        self._end = end
        self._done = done
        self._buffer = b""
        self._sent = 0.0
        self._transport: Any = None
        self.times = array("d")
        self.bad = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._send()

    def _send(self) -> None:
        self._sent = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        at = self._buffer.lower().find(b"content-length:")
        length = int(self._buffer[at + 15 : self._buffer.find(b"\r\n", at)])
        if len(self._buffer) < head + 4 + length:
            return
        now = time.perf_counter()
        self.times.append(now - self._sent)
        self.bad += not self._buffer.startswith(b"HTTP/1.1 200")
        self._buffer = b""
        if now < self._end:
            self._send()
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.bad += exc is not None
        if not self._done.done():
            self._done.set_result(None)


async def _run(url: str, ca: str, connections: int, seconds: float, body: bytes) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    context = ssl.create_default_context(cafile=ca)
    target = urlsplit(url)
    path = f"{target.path}?{target.query}" if target.query else target.path
    head = f"POST {path} HTTP/1.1\r\nHost: {target.netloc}\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    start = time.perf_counter()
    ends = [loop.create_future() for _ in range(connections)]
    opened = []
    for done in ends:
        _, connection = await loop.create_connection(
            lambda done=done: _Connection(request, start + seconds, done),  # type: ignore[misc]
            str(target.hostname),
            int(target.port or 443),
            ssl=context,
        )
        opened.append(connection)
    await asyncio.gather(*ends)
    took = time.perf_counter() - start
    times = sorted(t for connection in opened for t in connection.times)
    return {
        "requests": len(times),
        "rate": len(times) / took,
        "p50": times[len(times) // 2],
        "p99": times[len(times) * 99 // 100],
        "bad": sum(connection.bad for connection in opened),
    }


if __name__ == "__main__":
    url, ca, connections, seconds = sys.argv[1:]
    body = Path(os.environ["BODY"]).read_bytes()
    print(json.dumps(uvloop.run(_run(url, ca, int(connections), float(seconds), body))))
