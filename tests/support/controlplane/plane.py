"""A control plane: etcd, kube-apiserver and kube-controller-manager as processes, and all that is needed to call it."""

import base64
import json
import os
import secrets
import shutil
import signal
import ssl
import subprocess
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
import yaml
from controlplane import commands
from controlplane.assets import Assets
from controlplane.calls import answers, call
from controlplane.client import Client
from controlplane.errors import HelmError
from controlplane.identity import AUTHORITY, write_identity
from controlplane.keys import write_key_pair
from controlplane.process import RARELY_COLLECTED, Program, free_port
from controlplane.versions import NEWEST

ADMIN: Final = ("admin", ("system:masters",))
_CONTROLLER_MANAGER: Final = ("system:kube-controller-manager", ())


class ControlPlane:
    """One that lives in a directory, which it fills and whose logs stay there.

    ``apiserver_flags`` and ``controller_manager_flags`` are added to those of ``commands``; ``audit`` has every request
    logged (see ``audit_events``). ``crds`` are created before the controller manager starts: garbage collector and
    quota controller know the kinds that were there when they started, and look for others every 30 s only. ``origin``
    is what another one kept (see ``keep``), to start from instead; its kinds are there then.

    What starts, stops or runs something blocks: call it with ``asyncio.to_thread`` where a loop must go on.
    """

    def __init__(
        self,
        directory: Path,
        assets: Assets,
        *,
        version: str = NEWEST,
        audit: bool = False,
        apiserver_flags: Sequence[str] = (),
        controller_manager_flags: Sequence[str] = (),
        crds: Sequence[Mapping[str, Any]] = (),
        origin: Path | None = None,
    ) -> None:
        self.directory = directory
        self.version = version
        self._assets = assets
        self._audit = audit
        self._apiserver_flags = list(apiserver_flags)
        self._controller_manager_flags = list(controller_manager_flags)
        self._crds = list(crds)
        self._origin = origin
        self._port, self._etcd_port, self._controllers_port = free_port(), free_port(), free_port()
        self._tokens = {user: secrets.token_urlsafe(24) for user, _ in (ADMIN, _CONTROLLER_MANAGER)}
        self.apiserver: Program | None = None
        self.controller_manager: Program | None = None
        self.etcd: Program | None = None

    # How it is called

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def ca_file(self) -> Path:
        """What vouches for the API server; it signs for itself when it first starts."""
        return self.directory / "apiserver" / "apiserver.crt"

    @property
    def ca_pem(self) -> str:
        return self.ca_file.read_text()

    @property
    def client_ca_file(self) -> Path:
        """The authority of the certificate that the API server shows to webhooks, which is for ``kube-apiserver``."""
        return self.directory / AUTHORITY

    @property
    def token(self) -> str:
        """The bearer token of ``admin``, who has the group ``system:masters`` and may impersonate anybody."""
        return self._tokens[ADMIN[0]]

    @cached_property
    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca_file))

    def client(self) -> Client:
        """A client of ``admin``; to be entered: ``async with plane.client() as kube``."""
        return Client(self.url, token=self.token, tls=self.tls)

    def kubeconfig(
        self, user: str | None = None, groups: Sequence[str] = (), *, namespace: str = "default", server: str = ""
    ) -> Path:
        """A new kubeconfig file of ``admin``, or of whom admin impersonates; ``server`` where something is between."""
        path = self.directory / f"kubeconfig-{secrets.token_hex(4)}"
        impersonated = {"as": user, "as-groups": list(groups)} if user else {}
        path.write_text(self._kubeconfig(self.token, namespace=namespace, server=server, **impersonated))
        return path

    def _kubeconfig(self, token: str, *, namespace: str = "default", server: str = "", **impersonated: object) -> str:
        cluster = {"server": server or self.url, "certificate-authority": str(self.ca_file)}
        context = {"cluster": "tests", "user": "tests", "namespace": namespace}
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "tests",
                "clusters": [{"name": "tests", "cluster": cluster}],
                "users": [{"name": "tests", "user": {"token": token, **impersonated}}],
                "contexts": [{"name": "tests", "context": context}],
            }
        )

    # Starting and stopping

    def start(self) -> Self:
        """Start all of it; back when it is ready. Raises ControlPlaneError, and leaves nothing running then."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            write_key_pair(self.directory)
            write_identity(self.directory)
            self._write_tokens()
            if self._origin:
                _copy(self._origin, self._data)
            self.start_etcd()
            self.start_apiserver()
            if not self._origin:
                self._create_crds()
            self.start_controller_manager()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Kill all of it, and remove what etcd stored."""
        for program in (self.controller_manager, self.apiserver, self.etcd):
            if program:
                program.kill()
        shutil.rmtree(self._data, ignore_errors=True)

    def keep(self, at: Path) -> None:
        """Keep a copy of all that is stored now, to be the ``origin`` of others of this version; nothing is done where
        something is kept already.

        etcd stands still meanwhile: what it has written by then is what a crash would leave, from which it starts.
        """
        new = at.with_name(f"{at.name}-{secrets.token_hex(4)}")
        if self.etcd:
            os.kill(self.etcd.pid, signal.SIGSTOP)
            try:
                self.etcd.wait_until(self._stands_still)
                _copy(self._data, new)
            finally:
                os.kill(self.etcd.pid, signal.SIGCONT)
        try:
            new.rename(at)
        except OSError:  # somebody else was faster
            shutil.rmtree(new)

    def start_etcd(self) -> None:
        log = self.directory / "etcd.log"
        command = commands.etcd(self._assets.etcd, self._data, port=self._etcd_port, peer_port=free_port())
        self.etcd = Program(command, log=log)
        self.etcd.wait_until(lambda: answers(f"{self.etcd_url}/health"))

    def start_apiserver(self) -> None:
        """Start the API server, on the port that it had before."""
        command = commands.apiserver(
            self._assets.kube_apiserver,
            self.directory,
            version=self.version,
            port=self._port,
            etcd=self.etcd_url,
            audit=self._audit,
        )
        self.apiserver = Program([*command, *self._apiserver_flags], log=self.directory / "apiserver.log")
        self.apiserver.wait_until(lambda: self.ca_file.exists() and self._ready())

    def kill_apiserver(self) -> None:
        """End the API server at once, as a crash would."""
        if self.apiserver:
            self.apiserver.kill()

    def terminate_apiserver(self, *, seconds: float = 5) -> None:
        """End the API server as a rolling upgrade does: it finishes what it is at.

        It would wait a minute for watches that nobody ends, so it is killed after so many seconds.
        """
        if self.apiserver:
            self.apiserver.terminate(seconds=seconds)

    def start_controller_manager(self) -> None:
        kubeconfig = self.directory / "controller-manager.kubeconfig"
        kubeconfig.write_text(self._kubeconfig(self._tokens[_CONTROLLER_MANAGER[0]]))
        command = commands.controller_manager(
            self._assets.kube_controller_manager, self.directory, port=self._controllers_port, kubeconfig=kubeconfig
        )
        log = self.directory / "controller-manager.log"
        self.controller_manager = Program([*command, *self._controller_manager_flags], log=log)
        unverified = ssl._create_unverified_context()  # noqa: S323 - it signs for itself, and no secret is sent
        self.controller_manager.wait_until(
            lambda: answers(f"https://127.0.0.1:{self._controllers_port}/healthz", tls=unverified)
        )
        made_by_it = f"{self.url}/api/v1/namespaces/default/serviceaccounts/default"
        self.controller_manager.wait_until(lambda: answers(made_by_it, token=self.token, tls=self.tls))

    def restart_controller_manager(self) -> None:
        """Have the garbage collector and the quota controller know new kinds now, and not within 30 s."""
        if self.controller_manager:
            self.controller_manager.kill()
        self.start_controller_manager()

    # Asking and using it

    def create(self, path: str, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object as admin, where there is no loop for a client. Raises APIError."""
        return call("POST", self.url + path, obj, token=self.token, tls=self.tls)

    @property
    def etcd_url(self) -> str:
        return f"http://127.0.0.1:{self._etcd_port}"

    async def compact_etcd(self) -> int:
        """Drop everything that etcd remembers of the past; gives the revision that it did so at.

        The API server goes on answering from its own cache of events until it is restarted.
        """
        async with aiohttp.ClientSession(self.etcd_url, raise_for_status=True) as etcd:
            anything = base64.b64encode(b"/").decode()
            async with etcd.post("/v3/kv/range", json={"key": anything}) as answer:
                revision = int((await answer.json())["header"]["revision"])
            async with etcd.post("/v3/kv/compaction", json={"revision": revision, "physical": True}):
                return revision

    @property
    def audited(self) -> int:
        """How far the audit log goes now: a place to read it from later."""
        return (self.directory / commands.AUDIT_LOG).stat().st_size

    def audit_events(self, *, since: int = 0) -> list[dict[str, Any]]:
        """The requests that ended since then (audit.k8s.io/v1 Event, of level Metadata); only with ``audit``."""
        with (self.directory / commands.AUDIT_LOG).open("rb") as log:
            log.seek(since)
            return [json.loads(line) for line in log]

    def helm(self, *arguments: str, user: str | None = None, groups: Sequence[str] = (), seconds: float = 100) -> str:
        """What a run of helm prints, as admin or whom admin impersonates. Raises HelmError when it fails."""
        own = {f"HELM_{name}_HOME": str(self.directory / "helm" / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
        env = {name: value for name, value in os.environ.items() if not name.startswith(("HELM_", "KUBE"))}
        kubeconfig = self.kubeconfig(user, groups)
        ran = subprocess.run(
            [self._assets.helm, *arguments],
            env={**RARELY_COLLECTED, **env, **own, "KUBECONFIG": str(kubeconfig)},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if ran.returncode:
            raise HelmError(arguments, ran.stderr.strip())
        return ran.stdout

    # Within

    def _stands_still(self) -> bool:
        """Whether every thread of etcd is stopped: one may be in the middle of a write when it is told to."""
        assert self.etcd
        stats = Path(f"/proc/{self.etcd.pid}/task").glob("*/stat")
        return all(stat.read_text().rpartition(")")[2].split()[0] == "T" for stat in stats)

    @property
    def _data(self) -> Path:
        return self.directory / "etcd"

    def _write_tokens(self) -> None:
        users = (ADMIN, _CONTROLLER_MANAGER)
        lines = [f'{self._tokens[user]},{user},{user},"{",".join(groups)}"\n' for user, groups in users]
        path = self.directory / "tokens.csv"
        path.touch(mode=0o600)
        path.write_text("".join(lines))

    def _create_crds(self) -> None:
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        for crd in self._crds:
            self.create(path, crd)
        self.wait_for_crds()

    def wait_for_crds(self) -> None:
        """Wait until the kind of every CustomResourceDefinition is served."""
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

        def all_served() -> bool:
            return all(map(_is_served, call("GET", self.url + path, token=self.token, tls=self.tls)["items"]))

        if self.apiserver:
            self.apiserver.wait_until(all_served)

    def _ready(self) -> bool:
        self.__dict__.pop("tls", None)
        try:
            tls = self.tls
        except ssl.SSLError:  # it is still writing its certificate
            return False
        return answers(f"{self.url}/readyz", token=self.token, tls=tls)


def _copy(data: Path, to: Path) -> None:
    """Copy what etcd stored, without the space that it holds ready."""
    subprocess.run(["cp", "--recursive", "--sparse=always", data, to], check=True)  # noqa: S607 - coreutils, by PATH


def _is_served(crd: Mapping[str, Any]) -> bool:
    conditions = crd.get("status", {}).get("conditions") or ()
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)
