"""What is left of a watch that is given up: nothing, whatever the API server does."""

import asyncio
import gc
import socket
import ssl
import threading
import warnings
from collections.abc import Iterator
from contextlib import suppress

import pytest
from kubernetes_asyncio.client import Configuration

from certs import SelfSigned
from cluster.api import Api
from cluster.kinds import PODS

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n"


@pytest.fixture
def deaf() -> Iterator[str]:
    """The address of a server over TLS that answers with one event, and hears nothing after that."""
    context = SelfSigned(names=["127.0.0.1"]).serving.context
    over = threading.Event()

    def serve() -> None:
        connection, _ = listening.accept()
        with suppress(OSError, ssl.SSLError), context.wrap_socket(connection, server_side=True) as tls:
            tls.recv(65536)
            tls.sendall(_ANSWER)
            over.wait(20)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"
        over.set()
        thread.join()


def test_a_watch_that_is_given_up_leaves_no_connection_behind(deaf: str) -> None:
    async def watch() -> list[bytes]:
        configuration = Configuration(host=deaf)
        configuration.verify_ssl = False
        api = Api(configuration)
        async with api.watch(PODS, version="1", seconds=300) as events:
            seen = [await anext(events)]
        await api.close()
        return seen

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        # In a loop that ends right after it, as that of a command does.
        assert asyncio.run(watch()) == [b"{}"]
        gc.collect()

    assert [str(one.message) for one in found if one.category is ResourceWarning] == []
