"""What the pair is served on: a cluster, or a directory of manifests."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from certs import CertificateMetrics, SelfSigned

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from prometheus_client.registry import Collector

    from certs import ClusterCertificates, FileCertificates, ServingContext
    from cluster.api import Api
    from gpu.catalog import Catalog
    from webhooks.embedded import EmbeddedCatalog
    from webhooks.probes import Wait

_POD_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_A_WHILE: Final = 600.0


class Backing(NamedTuple):
    """The catalog, the certificate to serve with, what readiness waits for, and what belongs into the log's first line.

    ``filled`` returns when the catalog has been read.
    """

    catalog: Catalog
    serving: ServingContext
    waits: Sequence[Wait]
    collectors: Sequence[Collector]
    filled: Callable[[], Awaitable[None]]
    told: dict[str, Any]


def pod_namespace() -> str | None:
    """The namespace of the pod that this runs in; None where it runs in none."""
    try:
        return _POD_NAMESPACE.read_text().strip()
    except OSError:
        return None


@asynccontextmanager
async def embedded(
    catalog: EmbeddedCatalog, *, tls_names: Sequence[str], ca_file: Path | None, files: FileCertificates | None
) -> AsyncIterator[Backing]:
    """Manifests, and certificates out of files, or of an authority in memory, whose own is written for clients."""

    async def filled() -> None:
        """It came filled."""

    told = {"ca_file": str(ca_file) if ca_file else None, "classes": sorted(catalog.offer.classes)}
    async with files or _in_memory(tls_names, ca_file) as certificates:
        waits = () if files is None else (files.waiting,)
        yield Backing(catalog, certificates.serving, waits, (CertificateMetrics(certificates),), filled, told)


@asynccontextmanager
async def _in_memory(tls_names: Sequence[str], ca_file: Path | None) -> AsyncIterator[SelfSigned]:
    certificates = SelfSigned(names=tls_names)

    def publish(ca_pem: bytes) -> None:
        if ca_file:
            ca_file.write_bytes(ca_pem)

    publish(certificates.ca_pem)
    renewals = asyncio.create_task(certificates.keep_fresh(publish=publish))
    try:
        yield certificates
    finally:
        renewals.cancel()
        with suppress(asyncio.CancelledError):
            await renewals


@asynccontextmanager
async def in_cluster(
    api: AbstractAsyncContextManager[Api],
    *,
    namespace: str,
    told: Mapping[str, Any],
    certificates: Callable[[Api], ClusterCertificates | FileCertificates],
) -> AsyncIterator[Backing]:
    """A cluster, and certificates, of the authority that its replicas share as a rule."""
    # Only here: see with_cluster.
    from cluster.catalog import ClusterCatalog  # noqa: PLC0415
    from cluster.metrics import WatchMetrics  # noqa: PLC0415

    async with api as connected, ClusterCatalog.of(connected, namespace=namespace) as catalog:
        source = certificates(connected)

        async def filled() -> None:
            await catalog.wait_synced(_A_WHILE)

        async with source:
            yield Backing(
                catalog,
                source.serving,
                (catalog.waiting, source.waiting),
                (WatchMetrics(catalog.watches), CertificateMetrics(source)),
                filled,
                {"namespace": namespace, **told},
            )
