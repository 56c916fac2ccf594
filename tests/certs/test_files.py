"""A certificate out of files: what is taken, what is not, and what is told."""

from __future__ import annotations

import asyncio
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from structlog.testing import capture_logs

from certs import Authority, CertificateError, FileCertificates, Pair
from certs.pem import write_certificates, write_key

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = datetime(2031, 5, 17, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)
NAME = "gpu-webhooks.gpu-system.svc"
AUTHORITY = Authority.create(common_name="theirs", now=NOW, lifetime=3650 * DAY)


def pair_of(*names: str, lifetime: timedelta = 90 * DAY, now: datetime = NOW) -> Pair:
    return AUTHORITY.issue(names=names or [NAME], now=now, lifetime=lifetime)


class Volume:
    """A Secret's volume as the kubelet writes it: files are links into a folder that is swapped by a link."""

    def __init__(self, folder: Path, pair: Pair) -> None:
        self._folder = folder
        self._number = 0
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        for path in (self.certificate, self.key):
            path.symlink_to(Path("..data") / path.name)
        self.swap(pair.certificate_pem, pair.key_pem)

    def swap(self, certificate: bytes, key: bytes) -> None:
        self._number += 1
        made = self._folder / f"..{self._number}"
        made.mkdir()
        (made / "tls.crt").write_bytes(certificate)
        (made / "tls.key").write_bytes(key)
        link = self._folder / "..new"
        link.symlink_to(made.name)
        link.replace(self._folder / "..data")
        shutil.rmtree(self._folder / f"..{self._number - 1}", ignore_errors=True)

    def put(self, pair: Pair) -> None:
        self.swap(pair.certificate_pem, pair.key_pem)


class Kept:
    """A source on a volume, whose clock can be set, with a pair that is served."""

    def __init__(self, folder: Path) -> None:
        self.now = NOW
        self.pair = pair_of()
        self.volume = Volume(folder, self.pair)
        self.files = FileCertificates(
            certificate=self.volume.certificate, key=self.volume.key, names=[NAME], clock=lambda: self.now
        )
        self.files.look()

    @property
    def serial(self) -> int:
        return self.files.serving.pair.serial

    def failing(self) -> bool:
        return self.files.figures().failing == {"files"}


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def test_the_pair_of_the_files_is_served(kept: Kept) -> None:
    assert kept.serial == kept.pair.serial
    assert kept.files.waiting() == ""
    figures = kept.files.figures()
    assert figures.leaf is not None
    assert (figures.leaf.expiry, figures.renewed_at) == (kept.pair.not_after, NOW)
    assert (figures.failures, figures.failing) == ({"files": 0}, frozenset())


def test_another_pair_is_taken_when_the_volume_is_swapped(kept: Kept) -> None:
    # Given a day later, when the volume has another pair
    kept.now += DAY
    other = pair_of(now=kept.now)
    kept.volume.put(other)
    with capture_logs() as logs:
        kept.files.look()
        kept.files.look()
    # Then it is served, which is told once
    assert kept.serial == other.serial
    assert kept.files.figures().renewed_at == kept.now
    [line] = logs
    assert (line["event"], line["file"]) == ("serving certificate read", str(kept.volume.certificate))


def without_names() -> Pair:
    return signed(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]))


def for_clients() -> Pair:
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    return signed(usage, x509.SubjectAlternativeName([x509.DNSName(NAME)]))


def signed(*extensions: x509.ExtensionType) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateBuilder(
        subject_name=x509.Name([]),
        issuer_name=x509.Name([]),
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=NOW - DAY,
        not_valid_after=NOW + DAY,
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    certificate = builder.sign(key, hashes.SHA256())
    return Pair(certificate_pem=write_certificates([certificate]), key_pem=write_key(key))


def both(pair: Pair) -> tuple[bytes, bytes]:
    return pair.certificate_pem, pair.key_pem


BAD: dict[str, tuple[Callable[[], tuple[bytes, bytes]], str]] = {
    "half of it new": (lambda: (pair_of().certificate_pem, pair_of().key_pem), "not the key of the first certificate"),
    "cut off": (lambda: (pair_of().certificate_pem[:200], pair_of().key_pem), "not readable PEM"),
    "empty": (lambda: (b"", b""), "not readable PEM"),
    "a key that is none": (lambda: (pair_of().certificate_pem, b"key"), "private key is not readable"),
    "expired": (lambda: both(expired()), "expired at 2031-05-16"),
    "of the future": (lambda: both(of_the_future()), "not valid before 2031-05-19T11:00:00"),
    "for another name": (lambda: both(pair_of("other.gpu-system.svc")), f"not for {NAME}: the names in its SAN are"),
    "for a longer name": (lambda: both(pair_of("*.svc")), f"not for {NAME}"),
    "without a name": (lambda: both(without_names()), f"not for {NAME}: the names in its SAN are none"),
    "for clients": (lambda: both(for_clients()), "not for servers"),
}


def expired() -> Pair:
    old = Authority.create(common_name="theirs", now=NOW - 9 * DAY, lifetime=8 * DAY)
    return old.issue(names=[NAME], now=NOW - 9 * DAY, lifetime=8 * DAY)


def of_the_future() -> Pair:
    future = Authority.create(common_name="theirs", now=NOW + 2 * DAY, lifetime=9 * DAY)
    return future.issue(names=[NAME], now=NOW + 2 * DAY, lifetime=DAY)


@pytest.mark.parametrize(("make", "why"), BAD.values(), ids=BAD.keys())
def test_a_bad_pair_is_not_taken_and_told(tmp_path: Path, make: Callable[[], tuple[bytes, bytes]], why: str) -> None:
    kept = Kept(tmp_path)
    # When the volume has a bad pair, then the old one goes on being served
    kept.volume.swap(*make())
    with capture_logs() as logs:
        kept.files.look()
        assert kept.serial == kept.pair.serial
        # And it is not told at the first look, as the other file may be written yet
        assert not kept.failing()
        assert logs == []
        # And when it stays, then it is told, once, with what is wrong and what is done, and counted
        for _ in range(3):
            kept.files.look()
    [line] = logs
    assert line["log_level"] == "error"
    assert why in line["error"]
    assert line["error"].startswith(f"{kept.volume.certificate} and {kept.volume.key}: ")
    assert line["error"].endswith("What was served before goes on being served.")
    assert kept.failing()
    assert kept.files.figures().failures == {"files": 3}
    assert kept.serial == kept.pair.serial
    # And when a good one comes, then that is served
    good = pair_of()
    kept.volume.put(good)
    kept.files.look()
    assert kept.serial == good.serial
    assert not kept.failing()


def test_files_that_are_gone_are_told_and_the_old_pair_stays(kept: Kept) -> None:
    kept.volume.key.unlink()
    for _ in range(2):
        kept.files.look()
    assert kept.failing()
    assert kept.serial == kept.pair.serial


def test_a_pair_put_back_as_it_was_is_right_again(kept: Kept) -> None:
    # Given a bad pair that was told
    kept.volume.swap(b"", b"")
    for _ in range(2):
        kept.files.look()
    assert kept.failing()
    # When what is served is there again
    kept.volume.put(kept.pair)
    kept.files.look()
    # Then nothing is wrong any more
    assert not kept.failing()
    assert kept.serial == kept.pair.serial


@pytest.mark.parametrize("name", ["10.0.0.7", "GPU.Example.org", "a.wild.example.org"])
def test_a_name_is_covered_as_go_sees_it(tmp_path: Path, name: str) -> None:
    volume = Volume(tmp_path, pair_of("10.0.0.7", "gpu.example.org", "*.wild.example.org"))
    files = FileCertificates(certificate=volume.certificate, key=volume.key, names=[name], clock=lambda: NOW)
    files.look()
    assert files.waiting() == ""


def test_without_files_there_is_nothing_to_serve_until_they_come(tmp_path: Path) -> None:
    # Given no files
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    files = FileCertificates(certificate=certificate, key=key, clock=lambda: NOW)
    files.look()
    # Then it says what it waits for, at once, and serves nothing
    assert "No such file or directory" in files.waiting()
    assert files.figures().failing == {"files"}
    with pytest.raises(CertificateError, match="no certificate to serve"):
        _ = files.serving.pair
    # And when they come, one after the other, then they are served
    pair = pair_of()
    certificate.write_bytes(pair.certificate_pem)
    files.look()
    assert files.waiting() != ""
    key.write_bytes(pair.key_pem)
    files.look()
    assert files.waiting() == ""
    assert files.serving.pair.serial == pair.serial


def test_where_there_is_no_other_a_pair_that_is_not_valid_yet_is_taken(tmp_path: Path) -> None:
    # As the clock that is wrong may be ours
    volume = Volume(tmp_path, of_the_future())
    files = FileCertificates(certificate=volume.certificate, key=volume.key, names=[NAME], clock=lambda: NOW)
    files.look()
    assert files.waiting() == ""


async def test_it_goes_on_looking_by_itself(kept: Kept) -> None:
    files = FileCertificates(
        certificate=kept.volume.certificate,
        key=kept.volume.key,
        clock=lambda: NOW,
        interval=timedelta(milliseconds=5),
    )
    async with files:
        assert files.serving.pair.serial == kept.pair.serial
        other = pair_of()
        kept.volume.put(other)
        async with asyncio.timeout(5):
            while files.serving.pair.serial != other.serial:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.005)
