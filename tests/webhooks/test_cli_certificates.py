"""The options that say where the certificate comes from, and how long one lives."""

import asyncio
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import click
import pytest
from cryptography import x509
from processes import Process, serve_warm

from certs import Authority, ClusterCertificates, FileCertificates
from cluster.api import Api
from webhooks.cli import main
from webhooks.cli.backing import embedded
from webhooks.cli.certificates import from_authority, from_files
from webhooks.cli.durations import Duration
from webhooks.embedded import EmbeddedCatalog

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
AT_ANY_PORT = ("--port", "0", "--plain-port", "0", "--drain-quiet", "0.05")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", timedelta(seconds=90)),
        ("0.5s", timedelta(seconds=0.5)),
        ("15m", timedelta(minutes=15)),
        ("36h", timedelta(hours=36)),
        ("365d", timedelta(days=365)),
        ("1d12h30m", timedelta(days=1, hours=12, minutes=30)),
    ],
)
def test_a_duration_is_a_number_and_a_unit_once_or_several_times(text: str, expected: timedelta) -> None:
    assert Duration().convert(text, None, None) == expected


@pytest.mark.parametrize("text", ["", "90", "s", "1y", "-1s", "1 s", "1s ", "1.s", "9" * 400 + "d", "99999999999d"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is no duration|is longer than time is counted"):
        Duration().convert(text, None, None)


def options(*arguments: str) -> Mapping[str, Any]:
    """What ``serve`` makes of these arguments."""
    above = click.Context(main, **main.context_settings)
    return main.commands["serve"].make_context("serve", list(arguments), parent=above).params


@pytest.mark.parametrize("option", ["--tls-cert", "--tls-key"])
def test_a_certificate_without_its_key_is_no_use_nor_the_other_way_round(option: str) -> None:
    with pytest.raises(click.UsageError, match="--tls-cert and --tls-key go together: give both or neither"):
        from_files(options(option, "file"), names=[])
    assert from_files(options(), names=[]) is None


def made(*arguments: str) -> ClusterCertificates:
    """The certificates of these arguments, for an API server that is never asked."""
    return from_authority(options(*arguments), namespace="gpu-system")(Api.__new__(Api))


def test_a_ca_that_leaves_no_time_for_its_rotation_is_refused() -> None:
    made("--ca-lifetime", "9s", "--leaf-lifetime", "6s", "--settle-time", "0.4s")
    for arguments, why in (
        (("--ca-lifetime", "3m"), "leaves no time for its rotation"),
        (("--ca-lifetime", "1s", "--settle-time", "0s"), "too short"),
        (("--leaf-lifetime", "1s"), "too short"),
    ):
        with pytest.raises(Exception, match=why):
            made(*arguments)


def read_metric(text: str, name: str) -> float:
    [value] = [line.split()[1] for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(value)


async def served_serial(process: Process, authority: Authority) -> int:
    trusting = ssl.create_default_context(cadata=authority.certificate_pem.decode())
    at = ("127.0.0.1", process.port)
    _, writer = await asyncio.open_connection(*at, ssl=trusting, server_hostname="localhost")
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return x509.load_der_x509_certificate(der).serial_number


async def plain(process: Process, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{process.started['plain']}/{path}") as answer,
    ):
        return answer.status, await answer.text()


async def test_files_that_are_not_there_yet_are_waited_for(tmp_path: Path) -> None:
    # Given a service that was told of files that are not there yet, then it is not ready, and says why
    files = FileCertificates(certificate=tmp_path / "tls.crt", key=tmp_path / "tls.key")
    catalog = EmbeddedCatalog.from_directory(EXAMPLES / "catalog")
    async with embedded(catalog, tls_names=[], ca_file=None, files=files) as backing:
        [wait] = backing.waits
        assert wait().startswith(f"{tmp_path / 'tls.crt'} and {tmp_path / 'tls.key'}: ")
        assert "No such file or directory" in wait()


async def test_a_process_serves_the_files_that_it_is_given(tmp_path: Path) -> None:
    # Given a pair in files
    now = datetime.now(UTC)
    authority = Authority.create(common_name="theirs", now=now, lifetime=timedelta(days=9))
    pair = authority.issue(names=["localhost"], now=now, lifetime=timedelta(days=3))
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_bytes(pair.certificate_pem)
    key.write_bytes(pair.key_pem)
    files = ("--tls-cert", str(certificate), "--tls-key", str(key), "--tls-name", "localhost")
    # When a process is given them, then it is ready, serves them, and tells so
    async with serve_warm("--catalog", str(EXAMPLES / "catalog"), *AT_ANY_PORT, *files) as process:
        assert (await plain(process, "readyz"))[0] == 200
        assert await served_serial(process, authority) == pair.serial
        _, metrics = await plain(process, "metrics")
        expiry = read_metric(metrics, "gpu_webhooks_certificate_expiry_timestamp_seconds")
        assert expiry == pair.not_after.timestamp()
