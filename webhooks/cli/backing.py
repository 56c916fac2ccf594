"""What the pair is served on: a cluster, or a directory of manifests."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from certs import ClusterCertificates, SelfSigned
from cluster import kinds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from prometheus_client.registry import Collector

    from certs import ServingContext
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
    catalog: EmbeddedCatalog, *, tls_names: Sequence[str], ca_file: Path | None
) -> AsyncIterator[Backing]:
    """Manifests, and certificates of an authority in memory, whose own is written to a file for clients."""
    certificates = SelfSigned(names=tls_names)

    def publish(ca_pem: bytes) -> None:
        if ca_file:
            ca_file.write_bytes(ca_pem)

    async def filled() -> None:
        """It came filled."""

    publish(certificates.ca_pem)
    renewals = asyncio.create_task(certificates.keep_fresh(publish=publish))
    told = {"ca_file": str(ca_file) if ca_file else None, "classes": sorted(catalog.offer.classes)}
    try:
        yield Backing(catalog, certificates.serving, (), (), filled, told)
    finally:
        renewals.cancel()
        with suppress(asyncio.CancelledError):
            await renewals


@asynccontextmanager
async def in_cluster(
    api: AbstractAsyncContextManager[Api],
    *,
    namespace: str,
    tls_names: Sequence[str],
    secret: str,
    configuration: str,
) -> AsyncIterator[Backing]:
    """A cluster, and certificates of the authority that its replicas share."""
    # Only here: see with_cluster.
    from cluster.catalog import ClusterCatalog  # noqa: PLC0415
    from cluster.metrics import WatchMetrics  # noqa: PLC0415

    configurations = dict.fromkeys((kinds.MUTATING_WEBHOOKS, kinds.VALIDATING_WEBHOOKS), configuration)
    async with api as connected, ClusterCatalog.of(connected, namespace=namespace) as catalog:
        certificates = ClusterCertificates(
            connected, namespace=namespace, names=tls_names, secret=secret, configurations=configurations
        )

        def waiting() -> str:
            return _not_injected(certificates, configuration)

        async def filled() -> None:
            await catalog.wait_synced(_A_WHILE)

        async with certificates:
            told = {"namespace": namespace, "webhook_configuration": configuration}
            yield Backing(
                catalog,
                certificates.serving,
                (catalog.waiting, waiting),
                (WatchMetrics(catalog.watches),),
                filled,
                told,
            )


def _not_injected(certificates: ClusterCertificates, configuration: str) -> str:
    """Why an API server may not trust the serving certificate yet; empty where every one does."""
    if certificates.injected:
        return ""
    if missing := [kind.plural for kind, found in certificates.bundles.items() if found is None]:
        return f"the caBundle is not in {' and '.join(missing)} {configuration}: not installed, or not to be read"
    return f"the caBundle is not in every webhook of {configuration} yet"
