"""A service that only the API server may call, by the client certificate that it was told to show."""

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
import pytest
from controlplane.client import Client, ref
from controlplane.errors import APIError
from controlplane.process import free_port
from controlplane.versions import NEWEST
from gpukinds import API_VERSION
from identities import Identity, Issuer, showing
from installed import Installed
from machines import vmi
from waiting import eventually

from webhooks.testing import review

if TYPE_CHECKING:
    import ssl

pytestmark = pytest.mark.parametrize("installed", [NEWEST], indirect=True)

NAME = "by-certificate"
ORDER = {"className": "h200"}
KINDS = {"MutatingWebhookConfiguration": "mutate", "ValidatingWebhookConfiguration": "validate"}
ISSUER = Issuer()
"""Its authority is trusted as the API server's is, and nobody of its is allowed."""


class Guarded(NamedTuple):
    """A replica with its own configurations, which are for one namespace."""

    url: str
    plain_port: int
    namespace: str
    authorities: Path
    bundle: bytes


def configuration(kind: str, url: str, namespace: str) -> dict[str, Any]:
    rule = {"apiGroups": ["kubevirt.io"], "apiVersions": ["v1"], "resources": ["virtualmachineinstances"]}
    webhook = {
        "name": f"{KINDS[kind]}.example.org",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": 5,
        "clientConfig": {"url": f"{url}/{KINDS[kind]}"},
        "rules": [{**rule, "operations": ["CREATE"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
    }
    api_version = "admissionregistration.k8s.io/v1"
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": NAME}, "webhooks": [webhook]}


async def bundle(kube: Client, kind: str) -> bytes:
    found = await kube.get(ref("admissionregistration.k8s.io/v1", kind, NAME))
    return base64.b64decode(found["webhooks"][0]["clientConfig"].get("caBundle", ""))


@pytest.fixture
async def guarded(installed: Installed, kube: Client, tmp_path: Path) -> AsyncIterator[Guarded]:
    plane, port, plain_port = installed.plane, free_port(), free_port()
    authorities = tmp_path / "clients.crt"
    authorities.write_bytes(plane.client_ca_file.read_bytes() + ISSUER.pem)
    await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAME}})
    replica = installed.replica(
        port,
        plain_port,
        *("--kubeconfig", str(plane.kubeconfig()), "--webhook-configuration", NAME, "--certificate-secret", NAME),
        *("--client-ca-file", str(authorities), "--client-name", "kube-apiserver", "--connection-age", "0.2"),
    )

    async def not_ready_for_want_of_them() -> bool:
        code, said = await asyncio.to_thread(installed.asked, "readyz", plain_port)
        wanted = [f"the caBundle is not in {kind.lower()}s" for kind in KINDS]
        return code == 503 and said.startswith(wanted[0]) and wanted[1].split()[-1] in said

    await eventually(not_ready_for_want_of_them)
    for kind in KINDS:
        await kube.create(configuration(kind, f"https://127.0.0.1:{port}", NAME))

    async def ready() -> bool:
        return await asyncio.to_thread(installed.is_ready, plain_port)

    await eventually(ready)
    found = await bundle(kube, "MutatingWebhookConfiguration")
    yield Guarded(f"https://127.0.0.1:{port}", plain_port, NAME, authorities, found)
    replica.kill()
    for kind in KINDS:
        await kube.delete(ref("admissionregistration.k8s.io/v1", kind, NAME))


async def posted(guarded: Guarded, manifest: Mapping[str, Any], identity: Identity | None) -> int:
    """What a pod is answered that poses as the API server; 0 where it does not get so far."""
    tls: ssl.SSLContext = showing(identity, trusts=guarded.bundle)
    async with aiohttp.ClientSession() as session:
        try:
            async with session.post(f"{guarded.url}/mutate", json=review(dict(manifest)), ssl=tls) as answer:
                return answer.status
        except (aiohttp.ClientError, OSError):
            return 0


async def test_the_api_server_alone_has_devices_built(guarded: Guarded, kube: Client, installed: Installed) -> None:
    async def devices() -> int:
        return len(await kube.list(API_VERSION, "GPUDevice", guarded.namespace))

    # When others pose as the API server
    asked = vmi(guarded.namespace, "posed", orders=ORDER)
    others = (None, ISSUER.identity("system:node:a"), Issuer().identity("kube-apiserver"))
    answers = [await posted(guarded, asked, identity) for identity in others]

    # Then nothing is built for them
    assert answers == [403, 403, 0]
    assert await devices() == 0
    assert await posted(guarded, asked, ISSUER.identity("kube-apiserver")) == 200
    assert await devices() == 1

    # And for the API server it is
    machine = await kube.create(vmi(guarded.namespace, "real", orders=ORDER))
    assert machine["metadata"]["labels"]["gpu.cozystack.io/device-reference"].startswith("real-")
    assert await devices() == 2

    # When its authority is taken out of the file, and put in again
    def create() -> Any:
        return kube.create(vmi(guarded.namespace, "later", orders=ORDER), dry_run=True)

    async def refused() -> str:
        try:
            await create()
        except APIError as error:
            return error.message
        return ""

    async def let_in() -> bool:
        return not await refused()

    whole = guarded.authorities.read_bytes()
    guarded.authorities.write_bytes(ISSUER.pem)
    said = await eventually(refused)
    guarded.authorities.write_bytes(whole)
    await eventually(let_in)

    # Then it was refused meanwhile, and the replica counts that
    assert 'example.org": failed to call webhook: Post "https://' in said
    _, metrics = await asyncio.to_thread(installed.asked, "metrics", guarded.plain_port)
    counted = dict(re.findall(r'gpu_webhooks_clients_refused_total{reason="(.*)"} (.*)', metrics))
    assert (counted["no certificate"], counted["name"]) == ("1.0", "1.0")
    assert float(counted["handshake"]) >= 2
