"""Replicas of the service under a load, and what they share."""

import base64
import itertools
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from controlplane.client import Client, ref
from fleet import Fleet, Replica
from replicas import ADDRESS, KINDS
from steady import Load

from certs import Authority, utc_now
from certs.authorities import Authorities, read_secret
from gpu import names

DAY: Final = timedelta(days=1)
SECONDS: Final = ("--ca-lifetime", "15s", "--leaf-lifetime", "8s", "--settle-time", "1s")
"""The options of replicas whose certificates live for seconds."""
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Files:
    """The two files of a serving certificate, as a volume has them: both change at once."""

    directory: Path

    @property
    def options(self) -> tuple[str, ...]:
        now = self.directory / "now"
        return ("--tls-cert", str(now / "tls.crt"), "--tls-key", str(now / "tls.key"))

    def write(self, certificate: bytes, key: bytes) -> None:
        made = Path(mkdtemp(dir=self.directory))
        (made / "tls.crt").write_bytes(certificate)
        (made / "tls.key").write_bytes(key)
        (made / "link").symlink_to(made)
        (made / "link").replace(self.directory / "now")


@dataclass(frozen=True, slots=True)
class Scene:
    """The replicas, the load on them, and a client of the platform's admin."""

    fleet: Fleet
    load: Load
    kube: Client
    namespace: str
    files: Files

    @property
    def secret(self) -> dict[str, object]:
        """What names the Secret that the replicas share."""
        return ref("v1", "Secret", names.AUTHORITY, self.namespace)

    async def signer(self) -> Authority:
        """The authority that signs now."""
        found = read_secret(await self.kube.get(self.secret))
        assert found is not None
        return found.current

    async def touch(self) -> Authorities:
        """Change of the Secret what means nothing, so that every replica looks now; what is stored there."""
        mark = {"metadata": {"annotations": {"example.com/touched": str(next(_numbers))}}}
        found = read_secret(await self.kube.patch(self.secret, mark))
        assert found is not None
        return found

    async def bundles(self) -> list[bytes]:
        """What each webhook trusts."""
        found = [await self.kube.get(ref(kind.api_version, kind.name, names.WEBHOOKS)) for kind in KINDS]
        return [
            base64.b64decode(one["clientConfig"].get("caBundle", "")) for config in found for one in config["webhooks"]
        ]

    async def replica_of_files(self) -> Replica:
        """A replica that serves a pair out of files; a new one where there is none."""
        for replica in self.fleet.replicas:
            if replica.options == self.files.options:
                return replica
        pair = (await self.signer()).issue(names=[ADDRESS], now=utc_now(), lifetime=2 * DAY)
        self.files.write(pair.certificate_pem, pair.key_pem)
        return await self.fleet.start(*self.files.options)

    async def short_lives(self) -> None:
        """Have two replicas, whose certificates live for seconds."""
        if SECONDS[0] not in self.fleet.options:
            await self.fleet.kill_all()
            await self.kube.delete(self.secret)
            self.fleet.options = (*self.fleet.options, *SECONDS)
        while len(self.fleet.replicas) < 2:
            await self.fleet.start()
