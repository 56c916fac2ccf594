"""The authority and leaf of a service that stands alone, and how they are kept fresh."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
import structlog.testing
from cryptography import x509

from certs import CertificateError, SelfSigned, utc_now

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

NOW = datetime(2031, 5, 17, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)
TICK = timedelta(milliseconds=2)


@dataclass
class SettableClock:
    """A clock that shows what it was set to, or fails as often as it was told to."""

    now: datetime = NOW
    failures: int = 0
    asked: int = field(default=0)

    def __call__(self) -> datetime:
        self.asked += 1
        if self.failures:
            self.failures -= 1
            raise OSError("no time")
        return self.now


def must_not_be_called(ca_pem: bytes) -> None:
    pytest.fail(f"published {ca_pem!r}")


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.001)


@asynccontextmanager
async def kept_fresh(
    service: SelfSigned,
    *,
    publish: Callable[[bytes], None] | None = None,
    report: Callable[[Exception], None] | None = None,
) -> AsyncIterator[asyncio.Task[None]]:
    if report is None:
        task = asyncio.create_task(service.keep_fresh(interval=TICK, publish=publish))
    else:
        task = asyncio.create_task(service.keep_fresh(interval=TICK, publish=publish, report=report))
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def served_serial(port: int, *, context: ssl.SSLContext) -> int:
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="127.0.0.1")
    with closing(writer):
        certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    await writer.wait_closed()
    return x509.load_der_x509_certificate(certificate).serial_number


async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def test_a_client_with_the_authoritys_file_is_served_before_and_after_a_renewal() -> None:
    # Given a service that was started a week ago, and a client that read the authority's file then
    today = utc_now()
    clock = SettableClock(today - 7 * DAY)
    service = SelfSigned(names=["127.0.0.1"], clock=clock, leaf_lifetime=10 * DAY)
    trusting = ssl.create_default_context(cadata=service.ca_pem.decode())
    server = await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=service.serving.context)
    async with server, kept_fresh(service):
        port = server.sockets[0].getsockname()[1]
        first = await served_serial(port, context=trusting)
        assert first == service.serving.pair.serial
        # When it wakes up today
        clock.now = today
        await until(lambda: service.serving.pair.serial != first)
        # Then the same client is served with the same file, and gets a new leaf
        assert await served_serial(port, context=trusting) == service.serving.pair.serial


def test_nothing_is_renewed_before_it_is_due() -> None:
    # Given a new service
    clock = SettableClock()
    service = SelfSigned(names=["localhost"], clock=clock, leaf_lifetime=90 * DAY)
    pair, authority = service.serving.pair, service.authority
    # When less than two thirds of the leaf's life have passed
    clock.now += 59 * DAY
    # Then all stays
    assert service.refresh() is None
    assert service.serving.pair is pair
    assert service.authority is authority


def test_a_leaf_that_is_due_is_renewed_by_the_same_authority() -> None:
    # Given a service
    clock = SettableClock()
    service = SelfSigned(names=["localhost"], clock=clock, leaf_lifetime=90 * DAY)
    pair, ca_pem = service.serving.pair, service.ca_pem
    # When two thirds of the leaf's life have passed
    clock.now += 60 * DAY
    with structlog.testing.capture_logs() as logs:
        reason = service.refresh(publish=must_not_be_called)
    # Then there is a new leaf, with the reason, and clients' file is as good as before
    assert reason == "Two thirds of its life had passed at 2031-07-16T12:00:00+00:00."
    assert service.serving.pair.not_after == clock.now + 90 * DAY
    assert service.ca_pem == ca_pem
    # And the log tells so
    [entry] = logs
    assert (entry["event"], entry["reason"]) == ("certificate renewed", reason)
    # And once is enough
    assert pair is not service.serving.pair
    assert service.refresh() is None


def test_a_leaf_that_expired_while_the_machine_slept_is_renewed() -> None:
    clock = SettableClock()
    service = SelfSigned(names=["localhost"], clock=clock, leaf_lifetime=90 * DAY)
    clock.now += 365 * DAY
    assert service.refresh() == "It expired at 2031-08-15T12:00:00+00:00."
    assert service.serving.pair.not_after == clock.now + 90 * DAY


@pytest.mark.parametrize("jump", [7 * 365 * DAY, 20 * 365 * DAY, -DAY], ids=["due", "expired", "set back"])
def test_an_authority_that_is_due_is_replaced_and_published_before_its_leaf_is_served(jump: timedelta) -> None:
    # Given a service
    clock = SettableClock()
    service = SelfSigned(names=["localhost"], clock=clock)
    old, old_pair = service.authority, service.serving.pair
    published: list[tuple[bytes, bool]] = []
    # When the authority comes to be due
    clock.now += jump
    reason = service.refresh(publish=lambda pem: published.append((pem, service.serving.pair is old_pair)))
    # Then there is another, whose certificate was published while the old leaf was served still
    assert reason is not None
    assert service.authority != old
    assert published == [(service.ca_pem, True)]
    assert b"KEY" not in service.ca_pem
    # And the leaf is the new one's
    leaf = x509.load_pem_x509_certificate(service.serving.pair.certificate_pem)
    leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(service.ca_pem))
    assert service.refresh(publish=must_not_be_called) is None


def test_an_authority_that_cannot_be_published_is_not_used() -> None:
    # Given a service whose authority is due, and a full disk
    clock = SettableClock()
    service = SelfSigned(names=["localhost"], clock=clock)
    authority, pair = service.authority, service.serving.pair
    clock.now += 7 * 365 * DAY

    def disk_full(_: bytes) -> None:
        raise OSError("disk full")

    # When it is to be renewed, then that fails and all is as it was
    with pytest.raises(OSError, match="disk full"):
        service.refresh(publish=disk_full)
    assert service.authority is authority
    assert service.serving.pair is pair
    # And the next try succeeds without anybody to tell
    assert service.refresh() is not None
    assert service.authority is not authority


async def test_a_round_that_fails_is_reported_and_the_next_one_renews() -> None:
    # Given a service whose leaf is due, and a clock that fails twice
    clock = SettableClock()
    service = SelfSigned(names=["localhost"], clock=clock)
    pair = service.serving.pair
    clock.now += 80 * DAY
    clock.failures = 2
    reported: list[Exception] = []
    # When it is kept fresh
    async with kept_fresh(service, report=reported.append) as task:
        await until(lambda: service.serving.pair is not pair)
        # Then both failures were reported, and it goes on
        assert [str(error) for error in reported] == ["no time", "no time"]
        assert not task.done()


async def test_a_failure_is_logged_without_a_traceback() -> None:
    # Given a service whose clock fails once
    clock = SettableClock()
    service = SelfSigned(names=["localhost"], clock=clock)
    clock.failures = 1
    asked = clock.asked
    # When nobody asked for reports
    with structlog.testing.capture_logs() as logs:
        async with kept_fresh(service):
            await until(lambda: clock.asked > asked + 1)
    # Then the log has it, without frames whose variables could be shown
    assert logs == [
        {"event": "certificate renewal failed", "error": "no time", "kind": "OSError", "log_level": "error"}
    ]


async def test_a_new_authoritys_file_reaches_the_publisher_of_the_task() -> None:
    # Given a service that is kept fresh
    clock = SettableClock()
    service = SelfSigned(names=["localhost"], clock=clock)
    published: list[bytes] = []
    async with kept_fresh(service, publish=published.append):
        # When the clock passes the authority's end
        clock.now += 11 * 365 * DAY
        await until(lambda: published)
    # Then the new file was given out
    assert published == [service.ca_pem]


async def test_keeping_fresh_ends_when_it_is_cancelled() -> None:
    service = SelfSigned(names=["localhost"])
    async with kept_fresh(service) as task:
        await asyncio.sleep(0)
    assert task.cancelled()


MOMENT = timedelta(seconds=0.5)


@pytest.mark.parametrize(("leaf", "ca"), [(MOMENT, 3650 * DAY), (90 * DAY, MOMENT)])
def test_lifetimes_that_would_renew_in_every_round_are_refused(leaf: timedelta, ca: timedelta) -> None:
    with pytest.raises(CertificateError, match="too short"):
        SelfSigned(names=["localhost"], clock=SettableClock(), leaf_lifetime=leaf, ca_lifetime=ca)


def test_a_leaf_is_not_made_again_and_again_at_the_end_of_an_authority_that_lives_no_longer() -> None:
    # Given an authority that lives less long than its leaf should
    clock = SettableClock()
    service = SelfSigned(names=["localhost"], clock=clock, leaf_lifetime=90 * DAY, ca_lifetime=60 * DAY)
    pair = service.serving.pair
    assert pair.not_after == service.authority.not_after
    # When it is in its prime, then there is nothing to gain by another leaf
    clock.now += 39 * DAY
    assert service.refresh() is None
    # And when it is due, then both are made anew
    clock.now += DAY
    assert service.refresh() is not None
    assert service.serving.pair.not_after == clock.now + 60 * DAY


def test_a_service_without_a_usable_name_is_refused() -> None:
    with pytest.raises(CertificateError, match="at least one name"):
        SelfSigned(names=[])
