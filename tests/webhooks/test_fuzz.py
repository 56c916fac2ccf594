"""Reviews with random damage: whatever comes, the answer is a verdict or a clear no, never a failure of our own.

``make fuzz`` sends a hundred thousand of them to a process that serves.
"""

import random
from collections import Counter

import pytest
from damage import checked, harmed, sources
from structlog.testing import capture_logs

from webhooks.testing import Pair

CASES = 2000
SEED = 20261101


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
async def test_a_damaged_review_is_never_a_failure(gpu_pair: Pair, caplog: pytest.LogCaptureFixture, path: str) -> None:
    chance = random.Random(SEED)  # noqa: S311 - the same cases each time
    pool = sources()
    codes: Counter[int] = Counter()

    with capture_logs() as lines:
        for _ in range(CASES):
            _, body = harmed(chance.choice(pool), chance)
            async with gpu_pair.client.post(path, data=body, headers={"Content-Type": "application/json"}) as response:
                codes[checked(body, response.status, await response.read())] += 1

    assert not [line for line in lines if line.get("exc_info")]
    assert not caplog.records
    assert codes[200] > CASES / 10
    assert codes[422] > CASES / 100
    assert codes[400] > CASES / 100
