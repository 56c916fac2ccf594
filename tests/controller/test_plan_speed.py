"""How long a plan takes; the figures are printed, the bounds are wide, for a machine that does other things too."""

import time

import pytest
from planned import Cluster

from controller.plan import plan
from controller.state import State


def seconds(devices: int, *, held: bool) -> tuple[float, int]:
    """Processor seconds of the quickest of three plans, and what it writes."""
    found = Cluster(devices, held=held)
    took, writes = [], 0
    for _ in range(3):
        begun = time.process_time()
        state = State.of(found.tables, config=found.config, now=found.now, served=())
        writes = len(plan(state).writes)
        took.append(time.process_time() - begun)
    return min(took), writes


@pytest.mark.parametrize(("held", "within"), [(True, 1.0), (False, 2.0)], ids=["all held", "all to be held at once"])
def test_a_plan_of_5000_devices_on_1000_nodes_takes_less_than_a_second(*, held: bool, within: float) -> None:
    took, writes = seconds(5000, held=held)

    print(f"\n5,000 devices, 5,000 VMIs, 1,000 nodes, {writes} writes: {took * 1000:.0f} ms of processor time")
    assert writes <= 1 if held else writes > 10_000
    assert took < within


def test_a_plan_costs_no_more_for_each_device_where_there_are_more() -> None:
    few, _ = seconds(1000, held=True)
    many, _ = seconds(8000, held=True)

    print(f"\n1,000 devices: {few * 1000:.0f} ms, 8,000: {many * 1000:.0f} ms")
    assert many < 8 * few * 2.5
