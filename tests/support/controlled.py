"""The controller as processes beside an installation, under the account that the chart gives it."""

import json
import os
import signal
from collections.abc import Iterator
from typing import Any, Final

import warm
from controlplane.process import Program, free_port
from installed import RELEASE, Installed

TEMPLATE_KEPT: Final = 4.0
"""Seconds that those that run for all tests keep a template's device after its VMI."""
TEMPLATE_UNCLAIMED: Final = 4.0
"""Seconds that they wait for the VMI of a template's device."""
SHORT: Final = (
    *("--template-kept-seconds", str(TEMPLATE_KEPT)),
    *("--template-unclaimed-seconds", str(TEMPLATE_UNCLAIMED)),
    *("--lease-seconds", "6"),
)
"""What has a test wait for seconds where a cluster would wait for minutes."""


class Controller:
    """One replica. What starts or stops it blocks."""

    def __init__(self, installed: Installed, *arguments: str) -> None:
        self._installed = installed
        self._arguments = arguments
        self.port = free_port()
        self.log = installed.plane.directory / f"controller-{self.port}.log"
        self.program: Program | None = None

    def start(self, *, ready: bool = True) -> None:
        """Start it; back when it is ready."""
        namespace = self._installed.namespace
        user = f"system:serviceaccount:{namespace}:{RELEASE}-controller"
        kubeconfig = self._installed.plane.kubeconfig(user, self._installed.groups, server=self._installed.server)
        command = (
            *(warm.NAME, "controller", "--kubeconfig", str(kubeconfig)),
            *("--namespace", namespace, "--plain-port", str(self.port)),
            *self._arguments,
        )
        self.program = Program(command, log=self.log, start=warm.start)
        if ready:
            self.wait()

    def wait(self) -> None:
        """Back when it is ready."""
        if self.program:
            self.program.wait_until(lambda: self._installed.is_ready(self.port))

    @property
    def leads(self) -> bool:
        """Whether it is the one that writes."""
        return self.metrics.get("gpu_controller_leader") == 1

    @property
    def metrics(self) -> dict[str, float]:
        """What it counts, by name and labels as they are written; empty where it does not answer."""
        _, text = self._installed.asked("metrics", self.port)
        lines = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}

    def lines(self) -> Iterator[dict[str, Any]]:
        """What it has logged."""
        for line in self.log.read_text(errors="replace").splitlines():
            if line.startswith("{"):
                yield json.loads(line)

    def pause(self) -> None:
        """Stop it in the middle of whatever it does."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Have it go on."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once."""
        if self.program:
            self.program.kill()
            self.program = None

    def terminate(self) -> None:
        """Ask it to end."""
        if self.program:
            self.program.terminate(seconds=10)
            self.program = None

    def _signal(self, number: signal.Signals) -> None:
        if self.program:
            os.kill(self.program.pid, number)
