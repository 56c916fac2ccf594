"""A big cluster at a tenth of its size, since filling one takes longer than reading it: make bench has it whole."""

import asyncio
from collections.abc import Callable
from typing import Final

import pytest
from bigcluster import DEVICES, MOST_MEMORY, MOST_SECONDS, store, weigh
from controlplane.plane import ControlPlane
from installed import Installed

PART: Final = 10
ROOM: Final = 40
"""MiB for what is remembered of the rest. Most of what reading takes is a page of a list, which is no larger then."""


@pytest.mark.timeout(240)
async def test_a_big_cluster_is_read_in_seconds_and_kept_small(new_plane: Callable[..., ControlPlane]) -> None:
    plane = await asyncio.to_thread(new_plane)
    installed = Installed(plane)
    await asyncio.to_thread(installed.install)
    empty = await asyncio.to_thread(weigh, installed)
    await store(plane, DEVICES // PART)
    found = await asyncio.to_thread(weigh, installed)
    await asyncio.to_thread(plane.stop)

    processor = empty.processor_seconds + PART * (found.processor_seconds - empty.processor_seconds)
    print(f"empty cluster: {empty}")
    print(f"{DEVICES // PART} devices: {found}")
    print(f"{DEVICES} would be {processor:.1f} s on a core")
    for resource in ("gpudevices.gpu.cozystack.io", "virtualmachineinstances.kubevirt.io"):
        assert found.kept[resource] == DEVICES // PART
    assert found.kept["pods"] == DEVICES // PART, "the others ask for no GPU"
    assert found.seconds < MOST_SECONDS
    assert processor < MOST_SECONDS
    assert found.most_memory < MOST_MEMORY - ROOM
