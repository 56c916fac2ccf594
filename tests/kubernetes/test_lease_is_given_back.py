"""Giving back a Lease while others write on it, which a real API server shows once in a thousand times."""

import asyncio
from typing import Any

import orjson
from scripted import Answer, Script, raw, serving, status
from structlog.testing import capture_logs

from cluster.leader import Leader


def lease(version: int, holder: str = "me") -> Answer:
    spec: dict[str, Any] = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "t", "acquireTime": "t"}
    metadata = {"namespace": "a", "name": "lease", "resourceVersion": str(version)}
    return raw(200, orjson.dumps({"kind": "Lease", "metadata": metadata, "spec": spec}))


async def leads_and_ends(script: Script) -> list[str]:
    """What somebody who leads and ends has told."""
    with capture_logs() as logs:
        async with serving(script) as api, Leader(api, namespace="a", name="lease", me="me") as leader:
            await asyncio.wait_for(leader.acquired(), 5)
    return [line["event"] for line in logs]


async def test_it_is_given_back_though_another_write_came_in_between() -> None:
    script = Script(lease(1), lease(2), lease(2), status(409), lease(3), lease(4, holder=""))

    told = await leads_and_ends(script)

    assert told[-1] == "lease given back"
    assert [method for method, _ in script.asked] == ["GET", "PATCH", "GET", "PATCH", "GET", "PATCH"]


async def test_who_can_not_give_it_back_says_so() -> None:
    assert (await leads_and_ends(Script(lease(1), lease(2), lease(2))))[-1].startswith("lease can't be given back")
