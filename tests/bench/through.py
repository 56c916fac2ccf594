"""How long creates through a real API server take with the pair in front of them, beside bare handlers.

The chart is installed, and its two configurations once more for other namespaces, where they lead to handlers that let
everything in. One create follows the other, each time with another contestant, so that all of them have the same
machine.
"""

import asyncio
import base64
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

import gpukinds
import kubevirt
import neighbours
from actors import HOST_LABEL, VIRT_CONTROLLER, install_roles
from cases import REVIEWS
from controlplane.assets import assets
from controlplane.client import Client, Object, ref
from controlplane.plane import ControlPlane
from installed import Installed
from servers import lenient, make_certificate

MOST: Final = 1.3
"""What a create may cost of the same create with bare handlers."""
_PAIRED, _BARE = "paired", "bare"
_BARE_LABEL: Final = "bench/bare"
_REGISTRATION: Final = "admissionregistration.k8s.io/v1"
_CONFIGURATIONS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_WARM_UP: Final = 20
_AT_ONCE: Final = 25
"""Creates of each contestant until everything that came of them is deleted again."""


class Contestant(NamedTuple):
    """Who creates what."""

    name: str
    client: Client
    obj: Mapping[str, Any]


@contextmanager
def installed_plane(folder: Path, *, audit: bool = False) -> Iterator[Installed]:
    """A control plane with the chart installed; the service is not started."""
    plane = ControlPlane(folder / "plane", assets(), crds=[*kubevirt.CRDS, *neighbours.CRDS], audit=audit)
    plane.start()
    try:
        install_roles(plane)
        installed = Installed(plane)
        installed.install()
        yield installed
    finally:
        plane.stop()


async def _copy_configurations(kube: Client, url: str, ca_pem: bytes) -> None:
    """The chart's configurations, for the namespaces of the bare handlers."""
    for kind in _CONFIGURATIONS:
        configuration = await kube.get(ref(_REGISTRATION, kind, "gpu-webhooks"))
        for webhook in configuration["webhooks"]:
            path = webhook["clientConfig"]["url"].rpartition("/")[2]
            ca_bundle = base64.b64encode(ca_pem).decode()
            webhook["clientConfig"] = {"url": f"{url}/{path}", "caBundle": ca_bundle}
            webhook["namespaceSelector"] = {"matchExpressions": [{"key": _BARE_LABEL, "operator": "Exists"}]}
        copied = {"apiVersion": _REGISTRATION, "kind": kind, "metadata": {"name": "bare"}}
        await kube.create({**copied, "webhooks": configuration["webhooks"]})


async def _furnish(kube: Client, release: str) -> None:
    """Both namespaces, with what is referred to."""
    await kube.create(gpukinds.gpu_class())
    await kube.create(gpukinds.settings(release))
    for name, label in ((_PAIRED, HOST_LABEL), (_BARE, _BARE_LABEL)):
        metadata = {"name": name, "labels": {label: "x"}}
        await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    await kube.create(gpukinds.gpu_device(_PAIRED, "bench"))
    await asyncio.sleep(1.0)


def _contestants(kube: Client, installed: Installed) -> list[Contestant]:
    virt_controller = kube.as_(VIRT_CONTROLLER)
    own = kube.as_(installed.user, installed.groups)
    return [
        Contestant("by reference, bare", virt_controller, _vmi(_BARE, template=False)),
        Contestant("by reference", virt_controller, _vmi(_PAIRED, template=False)),
        Contestant("by template, bare", virt_controller, _vmi(_BARE, template=True)),
        Contestant("by template", virt_controller, _vmi(_PAIRED, template=True)),
        Contestant("GPUDevice", own, gpukinds.gpu_device(_PAIRED, "")),
    ]


def _vmi(namespace: str, *, template: bool) -> dict[str, Any]:
    """A VMI as virt-controller creates it."""
    recorded = REVIEWS / "train.mutate.create.virtualmachineinstances.kubevirt-controller.1.json"
    vmi: dict[str, Any] = json.loads(recorded.read_text())["request"]["object"]
    kept = {key: vmi["metadata"][key] for key in ("annotations", "labels")}
    if not template:
        del kept["annotations"]["gpu.cozystack.io/device-template"]
        kept["labels"]["gpu.cozystack.io/device-reference"] = "bench"
    return {**vmi, "metadata": {"namespace": namespace, **kept}}


async def _time(contestants: list[Contestant], creates: int) -> dict[str, list[float]]:
    """Seconds of each create of each contestant."""
    found: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    numbers = count(1)
    for done in range(0, creates, _AT_ONCE):
        made = []
        for turn in range(min(_AT_ONCE, creates - done)):
            for name, client, obj in contestants[turn % len(contestants) :] + contestants[: turn % len(contestants)]:
                named = {**obj, "metadata": {**obj["metadata"], "name": f"bench-{next(numbers)}"}}
                began = time.perf_counter()
                made.append(await client.create(named))
                found[name].append(time.perf_counter() - began)
        await _clear(contestants[0].client.as_("admin", ["system:masters"]), made)
    return found


async def _clear(kube: Client, made: Sequence[Object]) -> None:
    for obj in made:
        await kube.delete(obj)
    for device in await kube.list(gpukinds.API_VERSION, "GPUDevice", _PAIRED):
        if device["metadata"]["name"] != "bench":
            await kube.delete(device)


def _show(found: Mapping[str, list[float]]) -> list[str]:
    """Print the table, and tell what it is short of."""
    median = {name: statistics.median(times) for name, times in found.items()}
    of = {
        "by reference": MOST * median["by reference, bare"],
        "by template": MOST * median["by template, bare"] + median["GPUDevice"],
    }
    print(f"\n{'create through the API server':<32}{'p50 ms':>9}{'p99 ms':>9}{'at most':>9}")
    for name, times in found.items():
        p99 = sorted(times)[len(times) * 99 // 100]
        most = f"{of[name] * 1e3:>9.2f}" if name in of else ""
        print(f"{name:<32}{median[name] * 1e3:>9.2f}{p99 * 1e3:>9.2f}{most}", flush=True)
    return [
        f"a create {name} takes {median[name] * 1e3:.2f} ms, and {most * 1e3:.2f} are promised"
        for name, most in of.items()
        if median[name] > most
    ]


async def _measure(installed: Installed, url: str, ca_pem: bytes, creates: int) -> dict[str, list[float]]:
    async with installed.plane.client() as kube:
        await _furnish(kube, installed.namespace)
        await _copy_configurations(kube, url, ca_pem)
        await asyncio.sleep(2.0)
        contestants = _contestants(kube, installed)
        await _time(contestants, _WARM_UP)
        return await _time(contestants, creates)


def through_apiserver(creates: int) -> list[str]:
    """Measure so many creates of each contestant and print them; what is short of its aim."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        installed = stack.enter_context(installed_plane(folder))
        installed.start()
        stack.callback(installed.stop)
        files = make_certificate(folder)
        server = stack.enter_context(lenient(files))
        url = f"https://127.0.0.1:{server.port}"
        return _show(asyncio.run(_measure(installed, url, files.ca.read_bytes(), creates)))
