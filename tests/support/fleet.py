"""Two replicas of the service behind a balancer, in the place of an installation's one."""

import asyncio
import itertools
import json
import ssl
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import warm
from balancer import Backend, Balancer
from controlplane.plane import ControlPlane
from controlplane.process import Program, free_port
from installed import Installed
from prometheus_client.parser import text_string_to_metric_families
from replicas import ADDRESS

from certs.pem import read_certificates

_PATIENCE: Final = 5.0
_numbers = itertools.count(1)


class Replica:
    """A running process of the service, and its place behind the balancer."""

    def __init__(
        self, installed: Installed, program: Program, backend: Backend, *, clock: Path, options: Sequence[str]
    ) -> None:
        self.program = program
        self.options = options
        self.backend = backend
        self._installed = installed
        self._clock = clock

    def set_clock(self, seconds: float) -> None:
        """Have its clock be so far ahead."""
        # In one step, as it may be read at any time.
        new = self._clock.with_suffix(".new")
        new.write_text(str(seconds))
        new.replace(self._clock)

    async def issuer(self) -> str:
        """The name of the authority whose certificate it serves."""
        where = (ADDRESS, self.backend.port)
        served = await asyncio.to_thread(ssl.get_server_certificate, where, timeout=_PATIENCE)
        return read_certificates(served.encode())[0].issuer.rfc4514_string()

    async def is_ready(self) -> bool:
        return await asyncio.to_thread(self._installed.is_ready, self.backend.plain_port)

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels; 0 where there is none."""
        _, text = await asyncio.to_thread(self._installed.asked, "metrics", self.backend.plain_port)
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        return sum(one.value for one in samples if one.name == name and labels.items() <= one.labels.items())

    def when(self, text: str) -> list[float]:
        """The times (of the wall clock) of the lines of its log whose event begins with a text."""
        lines = map(json.loads, filter(None, self.program.log.read_text().splitlines()))
        return [
            datetime.fromisoformat(line["timestamp"]).timestamp() for line in lines if line["event"].startswith(text)
        ]

    def logged(self, text: str) -> int:
        """How many lines of its log have a text."""
        return sum(text in line for line in self.program.log.read_text().splitlines())


class Fleet:
    """The replicas, in the order in which they were started."""

    def __init__(self, installed: Installed, balancer: Balancer, *options: str) -> None:
        """``options`` are added to the command line of each replica that is started from then on."""
        self.options = options
        self.replicas: list[Replica] = []
        self.balancer = balancer
        self._installed = installed
        self._ahead = 0.0

    @property
    def plane(self) -> ControlPlane:
        """The control plane that the replicas are of."""
        return self._installed.plane

    def set_clocks(self, seconds: float) -> None:
        """Have the clock of every replica, and of those to come, be so far ahead."""
        self._ahead = seconds
        for replica in self.replicas:
            replica.set_clock(seconds)

    async def start(self, *options: str, ready: bool = True, server: str = "") -> Replica:
        """Start another; back when the balancer sends it connections, unless it is not to be waited for.

        ``server`` is where this one finds the API server, if something is between them.
        """
        port, plain_port = free_port(), free_port()
        clock = self.plane.directory / f"clock-{next(_numbers)}"
        clock.write_text(str(self._ahead))
        started = await asyncio.to_thread(
            self._installed.replica,
            port,
            plain_port,
            *self.options,
            *options,
            server=server,
            start=warm.start_by(clock),
        )
        backend = self.balancer.add(port, plain_port)
        replica = Replica(self._installed, started, backend, clock=clock, options=options)
        self.replicas.append(replica)
        if ready:
            await asyncio.to_thread(started.wait_until, lambda: replica.backend.ready)
        return replica

    async def stop(self, replica: Replica) -> None:
        """Ask one to end, as a rollout does; back when it is gone."""
        await asyncio.to_thread(replica.program.terminate, seconds=30)
        self._forget(replica)

    async def kill(self, replica: Replica) -> None:
        """End one at once."""
        await asyncio.to_thread(replica.program.kill)
        self._forget(replica)

    async def kill_all(self) -> None:
        """End every one at once."""
        for replica in list(self.replicas):
            await self.kill(replica)

    def _forget(self, replica: Replica) -> None:
        self.replicas.remove(replica)
        self.balancer.remove(replica.backend)
