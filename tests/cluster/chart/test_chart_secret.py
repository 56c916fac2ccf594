"""A certificate of one's own on a real API server: the chart has its bundle, the service its files and no rights."""

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from actors import HOST_LABEL
from asking import make_namespace
from controlplane.client import Client
from controlplane.errors import APIError
from controlplane.plane import ControlPlane
from controlplane.versions import NEWEST
from installed import Installed
from release import standing, uninstall
from waiting import eventually

from certs import Authority, Pair, utc_now
from gpu import names

pytestmark = pytest.mark.parametrize("plane", [NEWEST], indirect=True)

DAY: Final = timedelta(days=1)
THEIRS: Final = Authority.create(common_name="theirs", now=utc_now(), lifetime=9 * DAY)
TENANT: Final = "tenant-with-a-secret"


def issued() -> Pair:
    return THEIRS.issue(names=["127.0.0.1"], now=utc_now(), lifetime=DAY)


def write(folder: Path, pair: Pair) -> None:
    (folder / "tls.crt").write_bytes(pair.certificate_pem)
    (folder / "tls.key").write_bytes(pair.key_pem)


@pytest.fixture
def release(plane: ControlPlane, tmp_path: Path) -> Iterator[Installed]:
    """The chart in mode secret, and its service with a pair in ``tmp_path``."""
    standing.clear(plane)
    write(tmp_path, issued())
    installed = Installed(plane)
    given = {"mode": "secret", "caBundle": THEIRS.certificate_pem.decode()}
    installed.install({"certificates": given}, "--take-ownership")
    try:
        installed.start("--tls-cert", str(tmp_path / "tls.crt"), "--tls-key", str(tmp_path / "tls.key"))
        yield installed
    finally:
        installed.stop()
        uninstall(plane)


async def test_the_api_server_believes_the_files_by_the_bundle_of_the_chart(
    release: Installed, kube: Client, tmp_path: Path
) -> None:
    # Given the service, which is ready without a look at any configuration, and a tenant
    await make_namespace(kube, TENANT, {HOST_LABEL: "a"})
    order = {
        "apiVersion": names.API_VERSION,
        "kind": names.GPU_DEVICE,
        "metadata": {"generateName": "order-", "namespace": TENANT},
        "spec": {"className": "none-such"},
    }

    async def judged() -> bool:
        try:
            await kube.create(order, dry_run=True)
        except APIError as error:
            return "none-such" in error.message and "failed calling" not in error.message
        return False

    # When a device of no class is ordered, then it is the service that refuses it
    await eventually(judged, seconds=20)
    # And when a bad pair comes, then it is told, and the service goes on as it was
    (tmp_path / "tls.crt").write_bytes(issued().certificate_pem)
    begin = time.monotonic()
    await eventually(lambda: _failing(release), seconds=30)
    print(f"\na bad pair: told after {time.monotonic() - begin:.1f} s")
    assert await judged()
    assert release.is_ready()
    # And the API server never saw it ask for what it has no rights on
    assert release.service is not None
    assert "is forbidden" not in release.service.log.read_text()


async def _failing(release: Installed) -> bool:
    return 'gpu_webhooks_certificate_failing{part="files"} 1.0' in release.asked("metrics")[1]
