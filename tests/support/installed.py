"""The chart on a control plane, and the service that it names as a process beside it."""

import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import warm
import yaml
from controlplane.plane import ControlPlane
from controlplane.process import Program, Start, free_port
from release import UNCHECKED

CHART: Final = Path(__file__).parents[2] / "charts" / "gpu-webhooks"
RELEASE: Final = "gpu-webhooks"


class Installed:
    """A release in url mode: ``serve`` runs here, under the release's service account, and the API server calls it.

    What installs, starts or stops something blocks.
    """

    def __init__(self, plane: ControlPlane, *, namespace: str = "gpu-system", server: str = "") -> None:
        """``server`` is where the service finds the API server, if something is between them."""
        self.plane = plane
        self.server = server
        self.namespace = namespace
        self.port, self.plain_port = free_port(), free_port()
        self.service: Program | None = None

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def user(self) -> str:
        """The account that the service has."""
        return f"system:serviceaccount:{self.namespace}:{RELEASE}"

    @property
    def groups(self) -> list[str]:
        return ["system:serviceaccounts", f"system:serviceaccounts:{self.namespace}", "system:authenticated"]

    def install(self, values: Mapping[str, Any] | None = None, *arguments: str) -> str:
        """Install or upgrade the chart; what helm said."""
        given = {"webhooks": {"url": self.url}, "controller": {"replicas": 0}, **(values or {})}
        file = self.plane.directory / "values.yaml"
        file.write_text(yaml.safe_dump(given))
        where = ("--namespace", self.namespace, "--create-namespace", "--values", str(file), UNCHECKED)
        return self.plane.helm("upgrade", "--install", RELEASE, str(CHART), *where, *arguments)

    def start(self, *arguments: str, ready: bool = True) -> Program:
        """Start the service; back when it is ready."""
        self.service = self.replica(self.port, self.plain_port, *arguments)
        if ready:
            self.service.wait_until(self.is_ready)
        return self.service

    def replica(
        self, port: int, plain_port: int, *arguments: str, server: str = "", start: Start = warm.start
    ) -> Program:
        """Start a process of the service on other ports; ``server`` is where this one finds the API server."""
        kubeconfig = self.plane.kubeconfig(self.user, self.groups, server=server or self.server)
        command = (
            *(warm.NAME, "serve", "--kubeconfig", str(kubeconfig)),
            *("--namespace", self.namespace, "--tls-name", "127.0.0.1"),
            *("--port", str(port), "--plain-port", str(plain_port)),
            *("--platform-user", self.user, "--platform-user", "system:kube-controller-manager"),
            *arguments,
        )
        return Program(command, log=self.plane.directory / f"serve-{port}.log", start=start)

    def is_ready(self, plain_port: int | None = None) -> bool:
        """Whether a replica says that it is."""
        return self.asked("readyz", plain_port)[0] == 200

    def asked(self, path: str, plain_port: int | None = None) -> tuple[int, str]:
        """What the plain port answers; 0 where it does not."""
        url = f"http://127.0.0.1:{plain_port or self.plain_port}/{path}"
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def stop(self) -> None:
        """End the service at once."""
        if self.service:
            self.service.kill()
