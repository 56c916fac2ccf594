"""TLS contexts, in real handshakes over loopback."""

from __future__ import annotations

import asyncio
import socket
import ssl
import stat
import sys
import warnings
from contextlib import asynccontextmanager, closing, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from certs import Authority, CertificateError, Pair, ServingContext, server_context, utc_now
from certs.keyfile import memory_file, secret_file, temporary_file

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
NAMES = ("localhost", "127.0.0.1")
AUTHORITY = Authority.create(common_name="test", now=utc_now(), lifetime=365 * DAY)

tls_versions = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])


def make_pair(*, authority: Authority = AUTHORITY) -> Pair:
    return authority.issue(names=NAMES, now=utc_now(), lifetime=DAY)


def expired_pair() -> Pair:
    past = utc_now() - 10 * DAY
    authority = Authority.create(common_name="test", now=past, lifetime=365 * DAY)
    return authority.issue(names=NAMES, now=past, lifetime=DAY)


def weak_pair() -> Pair:
    """One that is in order but for its key, which is too short for OpenSSL."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=1024)  # noqa: S505 - it is to be refused
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(x509.Name([]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(utc_now() - DAY)
        .not_valid_after(utc_now() + DAY)
        .sign(key, SHA256())
    )
    key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Pair(certificate_pem=certificate.public_bytes(Encoding.PEM), key_pem=key_pem)


def client_context(*, authority: Authority = AUTHORITY) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.certificate_pem.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with closing(writer):
        while line := await reader.readline():
            writer.write(line)


@asynccontextmanager
async def listening(context: ssl.SSLContext) -> AsyncIterator[int]:
    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


class Client:
    """An open connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.tls: ssl.SSLObject = writer.get_extra_info("ssl_object")

    @property
    def serial(self) -> int:
        certificate = self.tls.getpeercert(binary_form=True)
        assert certificate is not None
        return x509.load_der_x509_certificate(certificate).serial_number

    async def says(self, line: bytes) -> bytes:
        self._writer.write(line + b"\n")
        return (await self._reader.readline()).strip()


@asynccontextmanager
async def connected(
    port: int, *, context: ssl.SSLContext | None = None, name: str = "localhost"
) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context or client_context(), server_hostname=name
    )
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()


async def served_serial(port: int, *, context: ssl.SSLContext | None = None, name: str = "localhost") -> int:
    async with connected(port, context=context, name=name) as client:
        return client.serial


@tls_versions
async def test_a_client_that_trusts_the_authority_is_served(version: ssl.TLSVersion) -> None:
    # Given a server with a pair
    pair = make_pair()
    async with listening(server_context(pair)) as port:
        # When a client that trusts the authority comes, with either version of TLS
        trusting = client_context()
        trusting.minimum_version = trusting.maximum_version = version
        async with connected(port, context=trusting) as client:
            # Then it gets the pair's certificate and is served
            assert client.serial == pair.serial
            assert await client.says(b"hello") == b"hello"


@pytest.mark.parametrize("swapping", [False, True], ids=["plain", "serving"])
async def test_a_client_that_trusts_another_authority_refuses(*, swapping: bool) -> None:
    pair = make_pair()
    context = ServingContext(pair).context if swapping else server_context(pair)
    other = client_context(authority=Authority.create(common_name="test", now=utc_now(), lifetime=DAY))
    async with listening(context) as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            await served_serial(port, context=other)


async def test_a_client_refuses_a_name_that_is_not_the_certificates() -> None:
    async with listening(ServingContext(make_pair()).context) as port:
        with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
            await served_serial(port, name="elsewhere")


@pytest.mark.parametrize("swapping", [False, True], ids=["plain", "serving"])
async def test_http_1_1_is_agreed_on(*, swapping: bool) -> None:
    # Given a server, and a client that would rather speak HTTP/2
    context = ServingContext(make_pair()).context if swapping else server_context(make_pair())
    modern = client_context()
    modern.set_alpn_protocols(["h2", "http/1.1"])
    # When they meet, then they speak HTTP/1.1
    async with listening(context) as port, connected(port, context=modern) as client:
        assert client.tls.selected_alpn_protocol() == "http/1.1"


def shake_hands(plain: socket.socket, *, context: ssl.SSLContext, server_side: bool) -> str | None:
    """Why a handshake failed, in OpenSSL's words, or None."""
    plain.settimeout(10)
    name = None if server_side else "localhost"
    try:
        with plain, context.wrap_socket(plain, server_side=server_side, server_hostname=name):
            return None
    except ssl.SSLError as error:
        return error.reason


@pytest.mark.parametrize("swapping", [False, True], ids=["plain", "serving"])
async def test_tls_1_1_is_refused(*, swapping: bool) -> None:
    # Given a server, and a client that can do no more than TLS 1.1
    context = ServingContext(make_pair()).context if swapping else server_context(make_pair())
    old = client_context()
    old.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    # When it comes (over plain sockets: asyncio does not flush the alert of a server that refuses)
    server_end, client_end = socket.socketpair()
    refusal, answer = await asyncio.gather(
        asyncio.to_thread(shake_hands, server_end, context=context, server_side=True),
        asyncio.to_thread(shake_hands, client_end, context=old, server_side=False),
    )
    # Then the server refuses it for its version
    assert (refusal, answer) == ("UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION")
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_clients_may_not_renegotiate() -> None:
    # Given either context, when its options are read, then they forbid it (Python's own client cannot try)
    for context in (server_context(make_pair()), ServingContext(make_pair()).context):
        assert context.options & ssl.OP_NO_RENEGOTIATION


@tls_versions
async def test_the_next_handshake_after_a_swap_gets_the_new_certificate(version: ssl.TLSVersion) -> None:
    # Given a server that serves one pair
    first, second = make_pair(), make_pair()
    serving = ServingContext(first)
    client = client_context()
    client.minimum_version = client.maximum_version = version
    async with listening(serving.context) as port:
        assert await served_serial(port, context=client) == first.serial
        # When another is swapped in
        serving.swap(second)
        # Then the next client gets it, from the same listening context
        assert await served_serial(port, context=client) == second.serial
        assert serving.pair is second


async def test_a_swap_to_another_authority_is_for_those_who_trust_it() -> None:
    # Given a server that serves one authority's pair
    other = Authority.create(common_name="test", now=utc_now(), lifetime=DAY)
    serving = ServingContext(make_pair())
    async with listening(serving.context) as port:
        # When a pair of another authority is swapped in
        new = make_pair(authority=other)
        serving.swap(new)
        # Then clients of that one are served, and those of the first refuse
        assert await served_serial(port, context=client_context(authority=other)) == new.serial
        with pytest.raises(ssl.SSLCertVerificationError):
            await served_serial(port)


async def sent_server_name(name: str) -> str | None:
    """What a client that dials `name` sends as SNI."""
    sent: list[str | None] = []
    context = server_context(make_pair())

    def note(_connection: ssl.SSLObject, sni: str | None, _context: ssl.SSLContext) -> None:
        sent.append(sni)

    context.sni_callback = note
    async with listening(context) as port:
        await served_serial(port, name=name)
    return sent[0]


@tls_versions
async def test_a_client_without_sni_gets_the_swapped_certificate_too(version: ssl.TLSVersion) -> None:
    # Given a client that dials an IP address, and so sends no SNI, where one that dials a name does
    assert await sent_server_name("127.0.0.1") is None
    assert await sent_server_name("localhost") == "localhost"
    client = client_context()
    client.minimum_version = client.maximum_version = version
    # And a server that it has been to
    first, second = make_pair(), make_pair()
    serving = ServingContext(first)
    async with listening(serving.context) as port:
        assert await served_serial(port, context=client, name="127.0.0.1") == first.serial
        # When another pair is swapped in, then it gets that one
        serving.swap(second)
        assert await served_serial(port, context=client, name="127.0.0.1") == second.serial


async def test_an_open_connection_goes_on_across_swaps() -> None:
    # Given a client that keeps its connection
    first = make_pair()
    serving = ServingContext(first)
    async with listening(serving.context) as port, connected(port) as client:
        assert await client.says(b"one") == b"one"
        # When pairs are swapped, and others come meanwhile
        for _ in range(3):
            serving.swap(make_pair())
            assert await served_serial(port) == serving.pair.serial
            # Then it goes on working as it was
            assert await client.says(b"more") == b"more"
        assert client.serial == first.serial


def visit(
    port: int, *, context: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> tuple[bool | None, ssl.SSLSession | None]:
    """Connect and talk; whether a session was resumed, and the session to resume next."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="localhost", session=session) as tls,
    ):
        tls.sendall(b"hello\n")
        assert tls.recv(100) == b"hello\n"
        return tls.session_reused, tls.session


@tls_versions
async def test_a_session_resumes_across_a_swap(version: ssl.TLSVersion) -> None:
    # Given a client that has a session of before the swap
    serving = ServingContext(make_pair())
    client = client_context()
    client.minimum_version = client.maximum_version = version
    async with listening(serving.context) as port:
        reused, session = await asyncio.to_thread(visit, port, context=client)
        assert not reused
        # When the pair is swapped, then it resumes, and is served
        serving.swap(make_pair())
        reused, session = await asyncio.to_thread(visit, port, context=client, session=session)
        assert reused
        # And so again with what it got then
        serving.swap(make_pair())
        reused, _ = await asyncio.to_thread(visit, port, context=client, session=session)
        assert reused


async def test_swaps_under_load_fail_nobody() -> None:
    # Given clients that come all the time
    serving = ServingContext(make_pair())
    seen: set[int] = set()
    done = asyncio.Event()

    async def keep_coming(port: int) -> None:
        while not done.is_set():
            async with connected(port) as client:
                assert await client.says(b"hello") == b"hello"
                seen.add(client.serial)

    async with listening(serving.context) as port, asyncio.TaskGroup() as clients:
        for _ in range(4):
            clients.create_task(keep_coming(port))
        # When pairs are swapped all the time
        served = {serving.pair.serial}
        for _ in range(20):
            await asyncio.sleep(0.01)
            serving.swap(make_pair())
            served.add(serving.pair.serial)
        done.set()
    # Then nobody failed (the group would have raised), and each got one of the pairs
    assert len(seen) > 1
    assert seen <= served


def test_it_swaps_under_uvloop_too() -> None:
    # Given a server on the other event loop
    async def scenario() -> None:
        serving = ServingContext(make_pair())
        async with listening(serving.context) as port:
            assert await served_serial(port) == serving.pair.serial
            # When the pair is swapped, then clients with and without SNI get the new one
            serving.swap(make_pair())
            assert await served_serial(port) == serving.pair.serial
            assert await served_serial(port, name="127.0.0.1") == serving.pair.serial

    uvloop.run(scenario())


@pytest.mark.parametrize(
    ("make_bad", "why"), [(expired_pair, "expired"), (weak_pair, "refused: .*TOO_SMALL")], ids=["expired", "weak"]
)
async def test_a_bad_pair_is_refused_and_the_old_one_stays(make_bad: Callable[[], Pair], why: str) -> None:
    # Given a server that serves a pair
    good = make_pair()
    serving = ServingContext(good)
    bad = make_bad()
    async with listening(serving.context) as port:
        # When a bad one is swapped in
        with pytest.raises(CertificateError, match=why):
            serving.swap(bad)
        # Then the good one goes on being served
        assert serving.pair is good
        assert await served_serial(port) == good.serial
    # And with nothing but the bad one nothing is served at all
    with pytest.raises(CertificateError, match=why):
        ServingContext(bad)
    with pytest.raises(CertificateError, match=why):
        server_context(bad)


def test_expiry_is_judged_by_the_given_clock() -> None:
    # Given a pair, and a clock that can be set
    pair = make_pair()
    now = pair.not_after - timedelta(seconds=1)
    serving = ServingContext(pair, clock=lambda: now)
    # When the clock passes its end, then it is no longer taken
    serving.swap(pair)
    now = pair.not_after
    with pytest.raises(CertificateError, match="expired"):
        serving.swap(pair)
    with pytest.raises(CertificateError, match="expired"):
        server_context(pair, now=now)


def test_a_pair_that_is_not_valid_yet_is_taken() -> None:
    server_context(make_pair(), now=datetime(1970, 1, 2, tzinfo=UTC))


@pytest.mark.skipif(sys.platform != "linux", reason="memory files are Linux's")
def test_on_linux_the_key_is_in_memory_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a machine without a place for temporary files
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    # When a context is made, then it needs none
    server_context(make_pair())
    assert secret_file is memory_file


@pytest.mark.skipif(sys.platform != "linux", reason="memory files are Linux's")
def test_a_memory_file_can_be_read_twice_and_is_gone_afterwards() -> None:
    with memory_file(b"secret") as path:
        assert path.read_bytes() == path.read_bytes() == b"secret"
        assert str(path.readlink()).startswith("/memfd:")
    assert not path.exists()


@pytest.mark.parametrize("failing", [False, True])
def test_a_temporary_file_is_its_owners_and_is_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, failing: bool
) -> None:
    # Given a folder for temporary files
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    # When a secret is put there, and whoever reads it fails or not
    with suppress(ZeroDivisionError), temporary_file(b"secret") as path:
        # Then only the owner can read it
        assert path.parent == tmp_path
        assert path.read_bytes() == b"secret"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert 1 / (not failing)
    # And nothing is left
    assert list(tmp_path.iterdir()) == []


def test_a_context_made_from_a_temporary_file_serves_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("certs.context.secret_file", temporary_file)
    server_context(make_pair())
    assert list(tmp_path.iterdir()) == []
    # And where it cannot be written, it is told
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(CertificateError, match="could not be handed over"):
        server_context(make_pair())


async def test_without_a_pair_handshakes_are_refused_until_the_first_swap() -> None:
    # Given a context that has nothing to serve yet
    serving = ServingContext()
    assert serving.empty
    with pytest.raises(CertificateError, match="no certificate to serve yet"):
        _ = serving.pair
    async with listening(serving.context) as port:
        # When a client comes, then it gets no connection
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await served_serial(port)
        # And is served after the first swap
        pair = make_pair()
        serving.swap(pair)
        assert serving.pair is pair
        assert await served_serial(port) == pair.serial
