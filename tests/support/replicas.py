"""Replicas of the service on a control plane: what the chart gives them, and the configurations that they keep."""

import asyncio
import base64
import itertools
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from controlplane.client import Client, ref
from controlplane.plane import ControlPlane
from kubernetes_asyncio.client import Configuration
from waiting import eventually

from certs import Authority, ClusterCertificates
from certs.pem import read_certificates
from cluster.api import Api
from cluster.kinds import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Kind
from gpu import names

KINDS: Final = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
ADDRESS: Final = "127.0.0.1"
_RBAC: Final = "rbac.authorization.k8s.io/v1"
_numbers = itertools.count(1)


def webhook(name: str, *, namespace: str, url: str = "https://127.0.0.1:1/review", **more: Any) -> dict[str, Any]:
    """One that is asked about every ConfigMap of a namespace, and must be."""
    return {
        "name": name,
        "clientConfig": {"url": url},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": 5,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
        **more,
    }


def authority_in(secret: Mapping[str, Any]) -> bytes:
    """The certificate of the authority that signs, PEM."""
    return base64.b64decode(secret["data"]["ca.crt"])


def issuer_served_by(replica: ClusterCertificates) -> str:
    """The name of the authority whose leaf a replica serves."""
    return read_certificates(replica.serving.pair.certificate_pem)[0].issuer.rfc4514_string()


def subject_of(authority: Authority) -> str:
    """The name of an authority."""
    return read_certificates(authority.certificate_pem)[0].subject.rfc4514_string()


@dataclass(kw_only=True)
class Place:
    """A namespace with an account of the rights that replicas need, and configurations of its own."""

    plane: ControlPlane
    kube: Client
    namespace: str
    token: str
    name: str
    apis: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def secret(self) -> dict[str, Any]:
        return ref("v1", "Secret", names.AUTHORITY, self.namespace)

    def configuration(self, kind: Kind, *webhooks: Mapping[str, Any]) -> dict[str, Any]:
        """One of the two; without webhooks, what names it."""
        named = ref(kind.api_version, kind.name, self.name)
        return {**named, "webhooks": list(webhooks)} if webhooks else named

    async def install(self, *webhooks: str, manager: str = "helm", **fields: Any) -> None:
        """Apply both configurations as a chart would, without a bundle."""
        made = [webhook(name, namespace=self.namespace, **fields) for name in webhooks or ("a.example.org",)]
        for kind in KINDS:
            await self.kube.apply(self.configuration(kind, *made), manager=manager)

    async def bundles(self) -> list[bytes]:
        """What every webhook of both has."""
        found = [await self.kube.get(self.configuration(kind)) for kind in KINDS]
        configs = [webhook["clientConfig"] for one in found for webhook in one["webhooks"]]
        return [base64.b64decode(config.get("caBundle", "")) for config in configs]

    def api(self, *, url: str | None = None) -> Api:
        """A connection of its own, with the rights of a replica and no more."""
        configuration = Configuration(host=url or self.plane.url, api_key={"BearerToken": f"Bearer {self.token}"})
        configuration.ssl_ca_cert = str(self.plane.ca_file)
        api = Api(configuration)
        self.apis.push_async_callback(api.close)
        return api

    def replica(self, *, url: str | None = None, api: Api | None = None, **options: Any) -> ClusterCertificates:
        """One replica's certificates, not started."""
        options = {"settle": timedelta(), **options}
        return ClusterCertificates(
            api or self.api(url=url),
            namespace=self.namespace,
            names=[ADDRESS],
            configurations=dict.fromkeys(KINDS, self.name),
            **options,
        )


@asynccontextmanager
async def a_place(plane: ControlPlane, kube: Client, namespace: str) -> AsyncIterator[Place]:
    name = f"{namespace}-{next(_numbers)}"
    await kube.create({**ref("v1", "ServiceAccount", "replica", namespace)})
    await _allow(kube, namespace, name)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/replica/token"
    answer = await kube.raw("POST", path, request)
    place = Place(plane=plane, kube=kube, namespace=namespace, token=answer["status"]["token"], name=name)
    try:
        yield place
    finally:
        await place.apis.aclose()
        for kind in KINDS:
            only = {"fieldSelector": f"metadata.name={name}"}
            await kube.raw("DELETE", f"/apis/{kind.api_version}/{kind.plural}", parameters=only)


async def _allow(kube: Client, namespace: str, name: str) -> None:
    subject = {"kind": "ServiceAccount", "name": "replica", "namespace": namespace}
    kinds = [kind.plural for kind in KINDS]
    verbs = ["get", "watch", "update"]
    secrets = [_rule("", ["secrets"], ["create"]), _rule("", ["secrets"], verbs, [names.AUTHORITY])]
    webhooks = [_rule(KINDS[0].group, kinds, ["get", "watch", "patch"], [name])]
    for prefix, where, rules in (("", namespace, secrets), ("Cluster", None, webhooks)):
        role = {**ref(_RBAC, f"{prefix}Role", name, where), "rules": rules}
        bound = {"apiGroup": "rbac.authorization.k8s.io", "kind": role["kind"], "name": name}
        binding = {**ref(_RBAC, f"{prefix}RoleBinding", name, where), "roleRef": bound, "subjects": [subject]}
        await kube.create(role)
        await kube.create(binding)


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str], only: Sequence[str] = ()) -> dict[str, Any]:
    rule = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    return {**rule, "resourceNames": list(only)} if only else rule


async def until(condition: Callable[[], object], *, seconds: float = 10) -> float:
    """Wait until it is true; the seconds that it took."""
    begin = time.monotonic()

    async def look() -> bool:
        return bool(condition())

    await eventually(look, seconds=seconds, every=0.005)
    return time.monotonic() - begin


class Forwarder:
    """A way to the API server that can be there or not: a port of its own."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self.port = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._forward, ADDRESS, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server:
            self._server.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(ADDRESS, self._target)
            await asyncio.gather(_pump(reader, back), _pump(there, writer))
        except OSError:
            writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    finally:
        writer.close()
