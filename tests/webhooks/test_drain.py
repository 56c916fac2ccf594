"""A drain under load: no request that was sent goes unanswered, whenever SIGTERM comes."""

import asyncio
import json
import signal
import ssl
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pytest

from webhooks.testing import review

CATALOG = Path(__file__).parent.parent.parent / "examples" / "catalog"
CLIENTS = 25
VMI = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "metadata": {"name": "vm", "namespace": "tenant-a", "labels": {"gpu.cozystack.io/device-reference": "my-gpu"}},
    "spec": {},
}
BODY = orjson.dumps(review(VMI))
CALL = (
    b"POST /mutate?timeout=5s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
)


@dataclass
class Tally:
    """What the clients sent and got."""

    answered: int = 0
    unanswered: list[str] = field(default_factory=list)


@asynccontextmanager
async def serving(ca_file: Path, *options: str) -> AsyncIterator[tuple[Process, int]]:
    """A ``serve`` process, and its port."""
    ports = ("--port", "0", "--plain-port", "0")
    arguments = ["serve", "--catalog", str(CATALOG), "--ca-file", str(ca_file), *ports, *options]
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "webhooks", *arguments, stderr=PIPE)
    try:
        assert process.stderr is not None
        async for line in process.stderr:
            if (said := json.loads(line))["event"] == "serving":
                break
        else:
            pytest.fail("it did not start")
        yield process, int(said["url"].rpartition(":")[2])
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def post_without_pause(port: int, tls: ssl.SSLContext, tally: Tally) -> None:
    """Post on kept connections, on a new one after each that is closed, until nobody listens any more."""
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname="127.0.0.1")
        except (ConnectionError, ssl.SSLError):
            return
        closes = False
        while not closes:
            writer.write(CALL)
            try:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
                body = await reader.readexactly(length)
            except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError) as error:
                tally.unanswered.append(repr(error))
                break
            assert head.startswith(b"http/1.1 200")
            assert orjson.loads(body)["response"]["allowed"]
            tally.answered += 1
            closes = b"\r\nconnection: close\r\n" in head
        writer.transport.abort()


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "drain_timeout",
    [pytest.param("0.3", id="cut short"), pytest.param("0", id="at once")],
)
async def test_no_request_that_was_sent_goes_unanswered_when_sigterm_comes(tmp_path: Path, drain_timeout: str) -> None:
    tallies = []
    for round_number in range(10):
        tally = Tally()
        options = ("--drain-quiet", "0.1", "--drain-timeout", drain_timeout)
        async with serving(tmp_path / "ca.crt", *options) as (process, port):
            tls = ssl.create_default_context(cafile=tmp_path / "ca.crt")
            clients = [asyncio.create_task(post_without_pause(port, tls, tally)) for _ in range(CLIENTS)]
            await asyncio.sleep(0.05 + 0.05 * round_number)
            before = tally.answered

            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(20):
                await asyncio.gather(*clients)
                code = await process.wait()

            assert code == 0
            assert tally.answered >= before + CLIENTS
            tallies.append(tally)

    assert [tally.unanswered for tally in tallies] == [[]] * 10
