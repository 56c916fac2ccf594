"""The chart, rendered and installed by helm."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final, TypeVar

import yaml
from chartvalues import CHART
from controlplane.plane import ControlPlane
from controlplane.versions import OLDEST

NAME: Final = "gpu-webhooks"
NAMESPACE: Final = "gpu-system"
CALLERS: Final[Mapping[str, Any]] = {"networkPolicy": {"admissionCIDRs": ["10.0.0.0/8"]}}
"""Who may call the service: the chart has to be told, so every release is, whose values say nothing of it."""
EVERYTHING: Final[Mapping[str, Any]] = {
    "networkPolicy": {
        "enabled": True,
        "admissionCIDRs": ["10.0.0.0/8", "fd00::/8"],
        "admissionPods": [{"namespace": "kube-system", "labels": {"k8s-app": "konnectivity-agent"}}],
        "metricsNamespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}},
    },
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "grafanaDashboard": {"enabled": True, "annotations": {"grafana_folder": "GPUs"}},
    "image": {"digest": f"sha256:{'0' * 64}", "pullSecrets": [{"name": "registry"}]},
    "admission": {
        "podAnnotations": {"example.com/note": "a"},
        "podLabels": {"example.com/team": "b", "app.kubernetes.io/name": "not to be had"},
        "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
        ],
    },
    "controller": {
        "podAnnotations": {"example.com/note": "a"},
        "podLabels": {"example.com/team": "b", "app.kubernetes.io/name": "not to be had"},
        "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
        ],
    },
    "settings": {"resourceNames": ["nvidia.com/A", "amd.com/B"], "deviceClassNames": ["gpu.nvidia.com"]},
    "doctor": {"tenantNamespace": "default"},
}
"""Every optional part on."""

UNCHECKED: Final = "--disable-openapi-validation"
"""Has helm leave it to the API server to check objects: reading its schemas is a third of what an install costs."""

T = TypeVar("T")
_rendered: dict[str, str] = {}


class Standing:
    """What is installed on a control plane until something else is: tests that ask for the same share it."""

    def __init__(self) -> None:
        self._on: dict[ControlPlane, tuple[Callable[..., object], ExitStack, Any]] = {}

    def on(self, plane: ControlPlane, install: Callable[[ControlPlane], AbstractContextManager[T]]) -> T:
        """What ``install`` gives; entered unless it is what stands there, and left when the plane is cleared."""
        stands = self._on.get(plane)
        if stands is None or stands[0] is not install:
            self.clear(plane)
            with ExitStack() as entered:
                given = entered.enter_context(install(plane))
                stands = self._on[plane] = install, entered.pop_all(), given
        found: T = stands[2]
        return found

    def clear(self, plane: ControlPlane) -> None:
        """Take away what stands there, if anything does."""
        if plane in self._on:
            self._on.pop(plane)[1].close()


standing: Final = Standing()


@contextmanager
def _file(values: Mapping[str, Any]) -> Iterator[str]:
    with NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({**CALLERS, **values}, file)
        file.flush()
        yield file.name


def rendered(plane: ControlPlane, values: Mapping[str, Any], *, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """The objects that ``helm template`` prints for the oldest server, hooks among them. Raises HelmError."""
    key = json.dumps([namespace, values])
    if key not in _rendered:
        with _file(values) as file:
            _rendered[key] = plane.helm(
                "template", NAME, str(CHART), "-n", namespace, "-f", file, "--kube-version", f"{OLDEST}.0"
            )
    return [obj for obj in yaml.load_all(_rendered[key], yaml.CSafeLoader) if obj]


def helm(
    plane: ControlPlane,
    verb: str,
    values: Mapping[str, Any],
    *options: str,
    namespace: str = NAMESPACE,
    name: str = NAME,
    chart: Path = CHART,
    checked: bool = False,
) -> str:
    """What ``helm install`` or ``helm upgrade`` prints; ``checked``: see UNCHECKED. Raises HelmError."""
    if verb == "install":
        standing.clear(plane)
    # Without it an upgrade by no values at all takes those of the release before.
    options = (*options, "--reset-values") if verb == "upgrade" else options
    options = options if checked else (*options, UNCHECKED)
    with _file(values) as file:
        return plane.helm(verb, name, str(chart), "-n", namespace, "-f", file, *options)


def uninstall(plane: ControlPlane, *options: str, namespace: str = NAMESPACE, name: str = NAME) -> str:
    """What ``helm uninstall`` prints, by default without the hooks, which need a kubelet. Raises HelmError."""
    return plane.helm("uninstall", name, "-n", namespace, *(options or ["--no-hooks"]))


@contextmanager
def installed(
    plane: ControlPlane, values: Mapping[str, Any], *options: str, namespace: str = NAMESPACE, checked: bool = False
) -> Iterator[str]:
    """The release is there, with the CRDs of whichever was there before; gives what the install printed."""
    options = ("--create-namespace", *(options or ["--take-ownership"]))
    said = helm(plane, "install", values, *options, namespace=namespace, checked=checked)
    try:
        yield said
    finally:
        uninstall(plane, namespace=namespace)


@contextmanager
def plain(plane: ControlPlane) -> Iterator[None]:
    """The release by no values but who may call is there."""
    with installed(plane, {}):
        yield
