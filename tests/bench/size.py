"""What it costs the pair to know a big cluster: 5,000 GPUDevices, 5,000 VMIs and 20,000 pods."""

import asyncio
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bigcluster import DEVICES, MOST_MEMORY, MOST_SECONDS, store, weigh
from through import installed_plane


def big_cluster() -> list[str]:
    """Fill a cluster, start the service on it and print what that took; what is short of its aim."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        installed = stack.enter_context(installed_plane(Path(name)))
        asyncio.run(store(installed.plane, DEVICES))
        found = weigh(installed)
    print(f"\n{DEVICES} GPUDevices, {DEVICES} VMIs and {4 * DEVICES} pods: {found}", flush=True)
    missing = [resource for resource in ("gpudevices.gpu.cozystack.io", "pods") if found.kept[resource] != DEVICES]
    short = [f"not all that was stored is remembered: {', '.join(missing)}"] if missing else []
    if found.seconds >= MOST_SECONDS:
        short.append(f"ready after {found.seconds:.1f} s, and {MOST_SECONDS} are promised")
    if found.most_memory >= MOST_MEMORY:
        short.append(f"{found.most_memory:.0f} MiB of memory, and {MOST_MEMORY} are promised")
    return short
