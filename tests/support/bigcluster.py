"""A cluster with thousands of devices, VMIs and pods, and what it costs the pair to know them."""

import asyncio
import json
import os
import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import gpukinds
from controlplane.plane import ControlPlane
from filler import fill, metadata
from installed import Installed
from waiting import eventually

DEVICES: Final = 5000
"""Of a big cluster; it has as many VMIs, and four times as many pods."""
MOST_SECONDS: Final = 15
MOST_MEMORY: Final = 200
"""MiB."""

_NAMESPACES, _PODS_EACH = 200, 4
_REVIEWS: Final = Path(__file__).parents[1] / "reviews"
_POD: Final = _REVIEWS / "train.mutate.update.pods.kubevirt-controller.1.json"
_MACHINE: Final = _REVIEWS / "train.mutate.update.virtualmachineinstances.kubevirt-handler.1.json"
_PATHS: Final = (
    "/api/v1/pods",
    "/apis/kubevirt.io/v1/virtualmachineinstances",
    f"/apis/{gpukinds.API_VERSION}/gpudevices",
)


class Figures(NamedTuple):
    """What a start of the service took until it was ready; ``kept`` is how many objects of each kind it remembers."""

    seconds: float
    processor_seconds: float
    most_memory: float
    kept: dict[str, float]

    def __str__(self) -> str:
        took = f"ready after {self.seconds:.1f} s, {self.processor_seconds:.1f} s of them on a core"
        return f"{took}; {self.most_memory:.0f} MiB at most"


def objects(devices: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """For each device a VMI that refers to it, its launcher pod, and three pods that ask for no GPU."""
    recorded_pod = json.loads(_POD.read_text())["request"]["object"]
    recorded_vmi = json.loads(_MACHINE.read_text())["request"]["object"]
    plain = {"containers": [{"name": "web", "image": "example.org/web", "resources": {}}]}
    plain |= {key: recorded_pod["spec"][key] for key in ("nodeName", "tolerations", "securityContext", "schedulerName")}
    for index in range(devices):
        namespace, name = f"tenant-{index % _NAMESPACES}", f"machine-{index}"
        device = {**gpukinds.gpu_device(namespace, name), "metadata": metadata(namespace, name)}
        yield f"{gpukinds.GROUP}/gpudevices/{namespace}/{name}", device
        marks = recorded_vmi["metadata"]
        labels = {**marks["labels"], "gpu.cozystack.io/device-reference": name}
        more = {"labels": labels, "annotations": marks["annotations"], "managedFields": marks["managedFields"]}
        machine = {**recorded_vmi, "metadata": metadata(namespace, name, **more)}
        yield f"kubevirt.io/virtualmachineinstances/{namespace}/{name}", machine
        marks = recorded_pod["metadata"]
        for number in range(_PODS_EACH):
            pod_name = f"pod-{name}-{number}"
            owner = {**marks["ownerReferences"][0], "name": name, "uid": machine["metadata"]["uid"]}
            more = {key: marks[key] for key in ("labels", "annotations", "managedFields")}
            meta = metadata(namespace, pod_name, ownerReferences=[] if number else [owner], **more)
            pod = {**recorded_pod, "metadata": meta, **({"spec": plain} if number else {})}
            yield f"pods/{namespace}/{pod_name}", pod


async def store(plane: ControlPlane, devices: int) -> None:
    """Fill a control plane, and wait until its API server's own memory has all of it: before, it answers no whole list.

    The controller manager is ended: it would only get in the way.
    """
    if plane.controller_manager:
        await asyncio.to_thread(plane.controller_manager.kill)
    version = await fill(plane.etcd_url, objects(devices))
    known = {"limit": "1", "resourceVersion": version, "resourceVersionMatch": "NotOlderThan"}
    async with plane.client() as kube:
        for path in _PATHS:
            await eventually(partial(kube.raw, "GET", path, parameters=known), seconds=120)


def weigh(installed: Installed) -> Figures:
    """Start the service, see what that takes, and end it."""
    began = time.monotonic()
    service = installed.start()
    seconds = time.monotonic() - began
    found = Figures(seconds, _processor_seconds(service.pid), _most_memory(service.pid), _kept(installed))
    installed.stop()
    return found


def _kept(installed: Installed) -> dict[str, float]:
    _, metrics = installed.asked("metrics")
    found = re.findall(r'^gpu_webhooks_watch_objects\{resource="(.+)"\} (\S+)$', metrics, re.MULTILINE)
    return {resource: float(number) for resource, number in found}


def _most_memory(pid: int) -> float:
    """MiB that a process has had in memory at most (proc(5), VmHWM)."""
    return int(Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


def _processor_seconds(pid: int) -> float:
    """User and system time of a process (proc(5), stat): what it took of a machine that others use as well."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
