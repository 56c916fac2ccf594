"""How long a plan takes and what it weighs, by itself: run as a program for one size, so that memory begins at none."""

import argparse
import gc
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

from planned import Cluster

from controller.plan import plan
from controller.state import State

SIZES: Final = (1_000, 10_000, 100_000)
MOST: Final = 2.0
"""What a device may cost of a plan on the biggest cluster, of what it costs on the smallest."""
_PLANS: Final = 3


class Planning(NamedTuple):
    """Processor seconds of a plan, its writes, and MiB: what is known, and what a plan takes besides at most."""

    devices: int
    nodes: int
    seconds: float
    writes: int
    known: float
    besides: float

    @property
    def each(self) -> float:
        """Microseconds for each device."""
        return self.seconds / self.devices * 1e6


def plans() -> list[str]:
    """Print what plans of several sizes take; what is short of its aim."""
    short = []
    columns = ("devices", "nodes", "writes", "plan s", "µs each", "known MiB", "plan MiB")
    print(f"\n{'a plan':<20}{''.join(f'{name:>11}' for name in columns)}")
    for held in (True, False):
        found = [_measured(size, held=held) for size in SIZES]
        for one in found:
            name = ("all held" if held else "all to be held") if one is found[0] else ""
            row = f"{name:<20}{one.devices:>11,}{one.nodes:>11,}{one.writes:>11,}{one.seconds:>11.3f}{one.each:>11.1f}"
            print(f"{row}{one.known:>11.0f}{one.besides:>11.0f}", flush=True)
        ratio = found[-1].each / found[0].each
        print(f"{'':<20}a device costs {ratio:.2f} times as much among {SIZES[-1]:,} as among {SIZES[0]:,}")
        if ratio > MOST:
            short.append(f"a device costs {ratio:.2f} times as much on a big cluster, and {MOST} are the most")
    return short


def _measured(devices: int, *, held: bool) -> Planning:
    command = [sys.executable, __file__, str(devices), *(["--held"] if held else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return Planning(*json.loads(done.stdout))


def _memory(field: str) -> float:
    """MiB of this process (proc(5), status)."""
    return int(Path("/proc/self/status").read_text().split(f"{field}:")[1].split()[0]) / 1024


def main() -> None:
    """Measure one size, and print a Planning as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("devices", type=int)
    parser.add_argument("--held", action="store_true")
    options = parser.parse_args()
    empty = _memory("VmRSS")
    cluster = Cluster(options.devices, held=options.held)
    # As the service does: what it knows stays, and to look through it for garbage takes longer than a plan.
    gc.collect()
    gc.freeze()
    known = _memory("VmRSS")
    # From here on the most is counted anew (proc(5), clear_refs).
    Path("/proc/self/clear_refs").write_text("5")
    took, writes = [], 0
    for _ in range(_PLANS):
        begun = time.process_time()
        state = State.of(cluster.tables, config=cluster.config, now=cluster.now, served=())
        writes = len(plan(state).writes)
        took.append(time.process_time() - begun)
    besides = _memory("VmHWM") - known
    print(json.dumps(Planning(options.devices, cluster.nodes, min(took), writes, known - empty, besides)))


if __name__ == "__main__":
    main()
