"""Who may call by client certificate: judged once a connection, on both ways, and told."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from identities import Identity, Issuer, showing
from slow import SlowCatalog
from structlog.testing import capture_logs
from wire import BODY, Caller, Served, call, serving, until, vmi

from certs import CertificateError, ClientAuthorities, SelfSigned
from webhooks import shortcut
from webhooks.clients import Clients, Refusal, Refused
from webhooks.metrics import Metrics
from webhooks.testing import InMemoryCatalog, review

ISSUER = Issuer()
API_SERVER = ISSUER.identity("kube-apiserver")
KUBELET = ISSUER.identity("system:node:a")
HOUR = timedelta(hours=1)

ORDER = vmi("my-gpu")
ORDER["metadata"] = {
    "name": "vm",
    "namespace": "tenant-a",
    "annotations": {"gpu.cozystack.io/device-template": '{"className":"h200"}'},
}
TEMPLATE = orjson.dumps(review(ORDER, uid="u-3"))
"""What has a device built."""


@pytest.fixture
def gpu_catalog(gpu_catalog: InMemoryCatalog) -> SlowCatalog:
    return SlowCatalog.of(gpu_catalog)


@pytest.fixture
def log_lines() -> Iterator[list[MutableMapping[str, Any]]]:
    with capture_logs() as lines:
        yield lines


class Guarded:
    """A server that one name of the issuer's may call, and those who try."""

    def __init__(self, served: Served, certificates: SelfSigned, authorities: ClientAuthorities) -> None:
        self.served = served
        self.authorities = authorities
        self._certificates = certificates

    def by(self, identity: Identity | None) -> ssl.SSLContext:
        return showing(identity, trusts=self._certificates.ca_pem)

    async def caller(self, identity: Identity | None) -> Caller:
        return await self.served.caller(by=self.by(identity))

    async def is_let_in(self, identity: Identity) -> bool:
        """Whether a new connection is; TLS refuses one, or the answer does."""
        with suppress(OSError, EOFError):
            caller = await self.caller(identity)
            return (await caller.post()).code == 200
        return False

    def built(self) -> int:
        return len(self.served.catalog.devices("tenant-a"))

    def count(self, reason: str) -> float:
        registry = self.served.transport.admission.metrics.registry
        return registry.get_sample_value("gpu_webhooks_clients_refused_total", {"reason": reason}) or 0.0


@pytest.fixture
def ca_file(tmp_path: Path) -> Path:
    file = tmp_path / "ca.crt"
    write(file, ISSUER.pem)
    return file


@pytest.fixture
async def guarded(gpu_catalog: SlowCatalog, ca_file: Path) -> AsyncIterator[Guarded]:
    gpu_catalog.go.set()
    certificates = SelfSigned(names=["127.0.0.1"])
    authorities = ClientAuthorities(ca_file, certificates.serving)
    clients = Clients(frozenset({"kube-apiserver"}))
    async with serving(gpu_catalog, certificates, listen={}, clients=clients) as served:
        yield Guarded(served, certificates, authorities)


def write(file: Path, content: bytes | None) -> None:
    file.unlink(missing_ok=True)
    if content is not None:
        file.write_bytes(content)


CERTIFICATE: dict[str, Any] = {
    "subject": ((("organizationName", "system:masters"),), (("commonName", "kube-apiserver"),)),
    "subjectAltName": (("DNS", "api.example.org"), ("URI", "spiffe://example.org/api"), ("IP Address", "10.0.0.1")),
}


class TestTheNamesOfACertificate:
    @pytest.mark.parametrize("name", ["kube-apiserver", "api.example.org", "spiffe://example.org/api", "10.0.0.1"])
    def test_are_the_common_and_the_alternative_ones(self, name: str) -> None:
        assert Clients(frozenset({"another", name})).refusal(CERTIFICATE) is None

    @pytest.mark.parametrize("name", ["system:masters", "KUBE-APISERVER", "example.org", "*.example.org", ""])
    def test_are_compared_as_they_are(self, name: str) -> None:
        refusal = Clients(frozenset({name})).refusal(CERTIFICATE)

        assert refusal is not None
        assert refusal.reason == "name"
        assert "is for kube-apiserver, api.example.org, spiffe://example.org/api, 10.0.0.1, who" in refusal.message

    def test_do_not_matter_where_none_is_asked_for(self) -> None:
        assert Clients(frozenset()).refusal({"subject": (), "version": 3}) is None
        assert Clients(frozenset()).refusal(CERTIFICATE) is None

    @pytest.mark.parametrize("shown", [None, {}])
    def test_are_none_where_there_is_no_certificate(self, shown: dict[str, Any] | None) -> None:
        refusal = Clients(frozenset()).refusal(shown)

        assert refusal is not None
        assert refusal.reason == "no certificate"


class TestWhoMayCall:
    async def test_is_answered_on_both_ways(self, guarded: Guarded) -> None:
        caller = await guarded.caller(API_SERVER)

        answers = [await caller.post(TEMPLATE) for _ in range(2)]

        assert [answer.verdict for answer in answers] == [(True, 200)] * 2
        assert guarded.served.server.shortcuts.taken == 1
        assert guarded.built()

    @pytest.mark.parametrize(
        ("identity", "reason", "said"),
        [
            pytest.param(None, "no certificate", "with a client certificate; docs/client-certificates.md", id="none"),
            pytest.param(KUBELET, "name", "for system:node:a, who may not call; see --client-name", id="a kubelet"),
        ],
    )
    async def test_is_nobody_else_though_the_call_is_one_that_was_answered_before(
        self,
        guarded: Guarded,
        identity: Identity | None,
        reason: str,
        said: str,
        log_lines: list[MutableMapping[str, Any]],
    ) -> None:
        before = guarded.built()
        await (await guarded.caller(API_SERVER)).post()
        caller = await guarded.caller(identity)

        answer = await caller.post(TEMPLATE)

        assert (answer.code, answer.closes, await caller.is_cut_off()) == (403, True, True)
        status = orjson.loads(answer.body)
        assert (status["kind"], status["reason"], status["code"]) == ("Status", "Forbidden", 403)
        assert said in status["message"]
        assert guarded.served.server.shortcuts.taken == 0
        assert (guarded.built(), guarded.count(reason)) == (before, 1.0)
        [line] = [line for line in log_lines if line["event"] == "client refused"]
        assert (line["reason"], line["peer"], line["why"]) == (reason, "127.0.0.1", status["message"])

    @pytest.mark.parametrize(
        "identity",
        [
            pytest.param(Issuer().identity(), id="of another authority of the same name"),
            pytest.param(ISSUER.identity(lasts=-HOUR), id="expired"),
            pytest.param(ISSUER.identity(usage=ExtendedKeyUsageOID.SERVER_AUTH), id="a server's"),
        ],
    )
    async def test_does_not_connect_with_a_certificate_that_is_not_verified(
        self, guarded: Guarded, identity: Identity, log_lines: list[MutableMapping[str, Any]]
    ) -> None:
        before = guarded.built()

        with pytest.raises((OSError, EOFError)):
            await (await guarded.caller(identity)).post(TEMPLATE)

        assert (guarded.built(), guarded.count("handshake")) == (before, 1.0)
        [line] = [line for line in log_lines if line["event"] == "client refused"]
        assert (line["reason"], line["peer"]) == ("handshake", "127.0.0.1")
        assert "none of the clients' CA (--client-ca-file), or out of date" in line["why"]

    async def test_is_known_by_alternative_names_too(self, guarded: Guarded) -> None:
        named = ISSUER.identity("", alternatives=[x509.DNSName("kube-apiserver")])

        assert await guarded.is_let_in(named)

    async def test_is_known_by_an_authority_of_the_file_whose_own_issuer_is_not_in_it(
        self, guarded: Guarded, ca_file: Path
    ) -> None:
        between = Issuer("between", of=ISSUER)
        write(ca_file, between.pem)
        guarded.authorities.refresh()

        assert await guarded.is_let_in(between.identity())
        assert not await guarded.is_let_in(API_SERVER)

    async def test_is_nobody_who_hangs_up_before_he_is_answered(self, guarded: Guarded) -> None:
        before = guarded.built()

        for _ in range(5):
            caller = await guarded.caller(None)
            caller.send(call(TEMPLATE))
            await asyncio.sleep(0)
            caller.abort()
        await until(lambda: not len(guarded.served.transport.guard))

        assert guarded.built() == before

    async def test_is_nobody_whose_connection_is_not_known_any_more(self, guarded: Guarded) -> None:
        before = guarded.built()
        caller = await guarded.caller(API_SERVER)
        connections = guarded.served.server.shortcuts._connections
        await until(lambda: bool(connections))
        # As when it ends between the last byte of a call and the beginning of its answer.
        connections.clear()

        answer = await caller.post(TEMPLATE, headers="Connection: close\r\n")

        assert (answer.code, guarded.built()) == (403, before)

    async def test_is_asked_by_tls_1_3_alone_and_again_on_each_connection(self, guarded: Guarded) -> None:
        older, context = guarded.by(API_SERVER), guarded.by(API_SERVER)
        older.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((OSError, EOFError)):
            await guarded.served.caller(by=older)

        caller = await guarded.served.caller(by=context)
        await caller.post()

        connection = caller._writer.get_extra_info("ssl_object")
        assert connection.version() == "TLSv1.3"
        assert connection.session is None or not connection.session.has_ticket

    async def test_has_ten_seconds_to_hear_that_he_may_not(
        self, guarded: Guarded, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(shortcut, "_REFUSED", 0.1)
        stranger, known = await guarded.caller(None), await guarded.caller(API_SERVER)

        assert await stranger.is_cut_off(within=3)
        assert (await known.post()).code == 200


class TestTheFileOfTheAuthorities:
    async def test_is_gone_by_from_the_next_connection_on(self, guarded: Guarded, ca_file: Path) -> None:
        other = Issuer("others")
        newcomer, kept = other.identity(), await guarded.caller(API_SERVER)
        assert not await guarded.is_let_in(newcomer)

        write(ca_file, ISSUER.pem + other.pem)
        assert guarded.authorities.refresh()
        both = [await guarded.is_let_in(each) for each in (API_SERVER, newcomer)]
        write(ca_file, other.pem)
        assert guarded.authorities.refresh()
        later = [await guarded.is_let_in(each) for each in (API_SERVER, newcomer)]

        assert (both, later) == ([True, True], [False, True])
        assert (await kept.post()).code == 200
        assert not guarded.authorities.refresh()

    @pytest.mark.parametrize("content", [b"", b"no PEM", ISSUER.pem[:200], None], ids=["empty", "text", "cut", "gone"])
    async def test_changes_nothing_while_it_is_broken(
        self, guarded: Guarded, ca_file: Path, content: bytes | None, log_lines: list[MutableMapping[str, Any]]
    ) -> None:
        def failures() -> float:
            return (
                next(metric for metric in guarded.authorities.collect() if "failures" in metric.name).samples[0].value
            )

        following = asyncio.create_task(guarded.authorities.keep_fresh(interval=0.01))
        write(ca_file, content)
        await until(lambda: failures() > 2)

        assert await guarded.is_let_in(API_SERVER)
        [line] = [line for line in log_lines if line["log_level"] == "error"]
        assert str(ca_file) in line["error"]

        write(ca_file, Issuer().pem)
        await until(lambda: any(line["event"].endswith("right again") for line in log_lines))
        assert not await guarded.is_let_in(API_SERVER)
        following.cancel()

    def test_has_to_be_right_to_begin_with(self, tmp_path: Path) -> None:
        serving = SelfSigned(names=["127.0.0.1"]).serving

        with pytest.raises(CertificateError, match="can't be read: no such file"):
            ClientAuthorities(tmp_path / "none", serving)

        assert serving.context.verify_mode == ssl.CERT_NONE

    async def test_is_gone_by_after_the_serving_certificate_was_renewed(self, guarded: Guarded) -> None:
        certificates = guarded._certificates
        certificates.serving.swap(
            certificates.authority.issue(names=["127.0.0.1"], now=certificates._clock(), lifetime=24 * HOUR)
        )

        assert await guarded.is_let_in(API_SERVER)
        assert not await guarded.is_let_in(Issuer().identity())
        assert (await (await guarded.caller(None)).post()).code == 403


def test_many_who_are_refused_are_one_line_in_ten_seconds(log_lines: list[MutableMapping[str, Any]]) -> None:
    metrics = Metrics()
    refused = Refused(metrics, silence=1000)
    for _ in range(50):
        refused.note(Refusal("name", "why"), peer="10.0.0.1")
    refused.handshake("10.0.0.2", "self-signed certificate")
    assert [(line["reason"], line["times"]) for line in log_lines] == [("name", 1), ("handshake", 1)]

    refused._silent_until["name"] = 0.0
    refused.note(Refusal("name", "why"), peer="10.0.0.1")

    assert log_lines[-1]["times"] == 50
    sample = metrics.registry.get_sample_value("gpu_webhooks_clients_refused_total", {"reason": "name"})
    assert sample == 51
    assert metrics.registry.get_sample_value("gpu_webhooks_clients_refused_total", {"reason": "no certificate"}) == 0


async def test_without_authorities_nobody_is_asked(gpu_catalog: SlowCatalog) -> None:
    certificates = SelfSigned(names=["127.0.0.1"])

    async with serving(gpu_catalog, certificates, listen={}) as served:
        assert (await served.post(BODY)).code == 200
