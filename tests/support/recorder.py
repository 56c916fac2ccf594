"""A webhook that lets everything in and remembers what it was asked."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from certs import SelfSigned


class Call(NamedTuple):
    """One call: the path without its query, and what the review was about; ``seconds`` is the time it was given."""

    path: str
    operation: str
    kind: str
    version: str
    namespace: str
    seconds: str


class Recorder:
    """Where it listens, what vouches for it, and the calls so far."""

    def __init__(self) -> None:
        identity = SelfSigned(names=["127.0.0.1"])
        self.ca_pem = identity.ca_pem.decode()
        self._calls: list[Call] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.socket = identity.serving.context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server.server_address[1]}"

    def taken(self) -> list[Call]:
        """The calls since it was last asked."""
        calls, self._calls = self._calls, []
        return calls

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                recorder._calls.append(_call(self.path, review["request"]))
                response = {"uid": review["request"]["uid"], "allowed": True}
                body = json.dumps({**review, "request": None, "response": response}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing: the tests look at the calls."""

        return Handler


def _call(path: str, request: dict[str, Any]) -> Call:
    where, _, query = path.partition("?")
    kind = request["kind"]
    seconds = query.removeprefix("timeout=")
    return Call(where, request["operation"], kind["kind"], kind["version"], request.get("namespace", ""), seconds)


@contextmanager
def recording() -> Iterator[Recorder]:
    """A recorder that listens on a free loopback port."""
    recorder = Recorder()
    thread = threading.Thread(target=recorder.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield recorder
    finally:
        recorder.server.shutdown()
        recorder.server.server_close()
        thread.join()
