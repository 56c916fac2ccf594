"""A drain under load: no request that was sent goes unanswered, whenever SIGTERM comes."""

import asyncio
import ssl
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pytest
from processes import serve_warm

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
    at_it: asyncio.Barrier = field(default_factory=lambda: asyncio.Barrier(CLIENTS + 1))
    """Passed when each client has had its first answer."""
    unanswered: list[str] = field(default_factory=list)


async def post_without_pause(port: int, tls: ssl.SSLContext, tally: Tally) -> None:
    """Post on kept connections, on a new one after each that is closed, until nobody listens any more."""
    at_it = False
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
            if not at_it:
                await tally.at_it.wait()
            at_it = True
            closes = b"\r\nconnection: close\r\n" in head
        writer.transport.abort()


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "drain_timeout",
    [pytest.param("0.6", id="cut short"), pytest.param("0", id="at once")],
)
async def test_no_request_that_was_sent_goes_unanswered_when_sigterm_comes(tmp_path: Path, drain_timeout: str) -> None:
    tallies = []
    for round_number in range(10):
        tally = Tally()
        options = ("--catalog", str(CATALOG), "--ca-file", str(tmp_path / "ca.crt"), "--port", "0", "--plain-port", "0")
        # As quiet as it comes: on a busy machine a client may take a while between its connection and its call.
        async with serve_warm(*options, "--drain-quiet", "0.5", "--drain-timeout", drain_timeout) as process:
            tls = ssl.create_default_context(cafile=tmp_path / "ca.crt")
            clients = [asyncio.create_task(post_without_pause(process.port, tls, tally)) for _ in range(CLIENTS)]
            async with asyncio.timeout(60):
                await tally.at_it.wait()
            await asyncio.sleep(0.05 * round_number)
            before = tally.answered

            code, _ = await process.stop()
            async with asyncio.timeout(20):
                await asyncio.gather(*clients)

            assert code == 0
            assert tally.answered >= before + CLIENTS
            tallies.append(tally)

    assert [tally.unanswered for tally in tallies] == [[]] * 10
