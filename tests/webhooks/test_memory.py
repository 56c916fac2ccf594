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
from processes import serve

from webhooks.testing import review

ROOT = Path(__file__).parent.parent.parent
MOST_MIB = 80
VMI = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "metadata": {"name": "vm", "namespace": "tenant-a", "labels": {"gpu.cozystack.io/device-reference": "my-gpu"}},
    "spec": {"volumes": [{"name": f"v{index}", "emptyDisk": {"capacity": "1Gi"}} for index in range(50)]},
}


async def test_memory_stays_below_its_bound_and_does_not_grow_with_the_number_of_reviews(tmp_path: Path) -> None:
    ca_file, body_file = tmp_path / "ca.crt", tmp_path / "body.json"
    body_file.write_bytes(orjson.dumps(review(VMI)))
    catalog = str(ROOT / "examples" / "catalog")
    sizes, answered = [], 0

    async with serve("--catalog", catalog, "--ca-file", str(ca_file), "--port", "0", "--plain-port", "0") as process:
        url = f"https://127.0.0.1:{process.port}/mutate"
        load = [str(ROOT / "tests" / "bench" / "load.py"), url, str(ca_file), "25", "2.5"]
        for _ in range(4):
            client = await asyncio.create_subprocess_exec(
                sys.executable, *load, stdout=PIPE, env={**os.environ, "BODY": str(body_file)}
            )
            out, _ = await client.communicate()
            result = json.loads(out)
            assert result["bad"] == 0
            answered += result["requests"]
            sizes.append(process.resident)
        code, _ = await process.stop()

    assert code == 0
    assert answered > 4000
    assert max(sizes) < MOST_MIB
    assert max(sizes[2:]) < sizes[1] + 1
