"""Memory under load: below what the project promises, and no more after many reviews than after few.

The whole of it, 100,000 reviews, is a measurement that ``make bench`` makes.
"""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import orjson

from webhooks.testing import review

ROOT = Path(__file__).parent.parent.parent
MOST_MIB = 80
VMI = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "metadata": {"name": "vm", "namespace": "tenant-a", "labels": {"gpu.cozystack.io/device-reference": "my-gpu"}},
    "spec": {"volumes": [{"name": f"v{index}", "emptyDisk": {"capacity": "1Gi"}} for index in range(50)]},
}


def resident(pid: int) -> float:
    """MiB of a process that are in memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


async def test_memory_stays_below_its_bound_and_does_not_grow_with_the_number_of_reviews(tmp_path: Path) -> None:
    ca_file, body_file = tmp_path / "ca.crt", tmp_path / "body.json"
    body_file.write_bytes(orjson.dumps(review(VMI)))
    serve = ["serve", "--catalog", str(ROOT / "examples" / "catalog"), "--ca-file", str(ca_file)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "webhooks", *serve, "--port", "0", "--plain-port", "0", stderr=PIPE
    )
    assert process.stderr is not None
    said = json.loads(await process.stderr.readline())
    url = f"https://127.0.0.1:{said['url'].rpartition(':')[2]}/mutate"
    load = [str(ROOT / "tests" / "bench" / "load.py"), url, str(ca_file), "25", "2.5"]

    sizes, answered = [], 0
    for _ in range(4):
        client = await asyncio.create_subprocess_exec(
            sys.executable, *load, stdout=PIPE, env={**os.environ, "BODY": str(body_file)}
        )
        out, _ = await client.communicate()
        result = json.loads(out)
        assert result["bad"] == 0
        answered += result["requests"]
        sizes.append(resident(process.pid))
    process.terminate()

    assert await process.wait() == 0
    assert answered > 4000
    assert max(sizes) < MOST_MIB
    assert max(sizes[2:]) < sizes[1] + 1
