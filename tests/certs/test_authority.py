"""What an authority makes, and what it refuses."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from certs import Authority, CertificateError, Pair

NOW = datetime(2031, 5, 17, 12, 30, 15, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def make_authority(*, common_name: str = "test", now: datetime = NOW, lifetime: timedelta = 3650 * DAY) -> Authority:
    return Authority.create(common_name=common_name, now=now, lifetime=lifetime)


def leaf_of(pair: Pair) -> x509.Certificate:
    return x509.load_pem_x509_certificates(pair.certificate_pem)[0]


def self_signed(
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey,
    *extensions: x509.ExtensionType,
    issuer: tuple[x509.Name, ec.EllipticCurvePrivateKey] | None = None,
    subject: str = "elsewhere",
) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    issuer_name, issuer_key = issuer or (name, key)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer_name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + 365 * DAY)
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=True)
    algorithm = None if isinstance(issuer_key, ed25519.Ed25519PrivateKey) else SHA256()
    return builder.sign(issuer_key, algorithm).public_bytes(Encoding.PEM)


def pkcs8(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


CA = x509.BasicConstraints(ca=True, path_length=0)


def test_a_new_authority_may_sign_leaves_and_nothing_more() -> None:
    # When an authority is made
    authority = make_authority(common_name="gpu-webhooks")
    # Then its certificate says what it is and what it may do
    certificate = x509.load_pem_x509_certificate(authority.certificate_pem)
    assert certificate.subject.rfc4514_string() == "CN=gpu-webhooks"
    assert certificate.subject == certificate.issuer
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert constraints.value == CA
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical
    assert (usage.value.key_cert_sign, usage.value.crl_sign, usage.value.digital_signature) == (True, True, False)
    certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    key = certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert isinstance(key.curve, ec.SECP256R1)
    # And its life begins an hour ago and ends after its lifetime
    assert (authority.not_before, authority.not_after) == (NOW - HOUR, NOW + 3650 * DAY)
    assert authority.not_after.tzinfo is UTC


def test_an_authority_in_place_of_another_is_valid_from_the_same_moment() -> None:
    # Given an authority of last year, when another is made to replace it, then it is valid from the same moment on
    old = make_authority(now=NOW - 300 * DAY)
    new = Authority.create(common_name="test", now=NOW, lifetime=365 * DAY, since=old.not_before)
    assert (new.not_before, new.not_after) == (old.not_before, NOW + 365 * DAY)
    # And not later than others need, where that one is of the future
    future = make_authority(now=NOW + DAY)
    new = Authority.create(
        common_name="test", now=NOW, lifetime=DAY, since=future.not_before, skew=timedelta(minutes=5)
    )
    assert (new.not_before, new.not_after) == (NOW - timedelta(minutes=5), NOW + DAY)


def test_a_leaf_serves_its_names_and_nothing_more() -> None:
    # Given an authority
    authority = make_authority()
    # When it issues a leaf for DNS names and IP addresses, one of them twice
    names = ["gpu.cozy-system.svc", "LOCALHOST", "10.0.0.7", "::1", "*.example.org", "localhost"]
    pair = authority.issue(names=names, now=NOW, lifetime=90 * DAY)
    # Then the names are of the right kinds, each once
    leaf = leaf_of(pair)
    alternatives = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert list(alternatives.value) == [
        x509.DNSName("gpu.cozy-system.svc"),
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("10.0.0.7")),
        x509.IPAddress(ipaddress.ip_address("::1")),
        x509.DNSName("*.example.org"),
    ]
    assert alternatives.critical
    # And it may serve, and not sign
    assert leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    purposes = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(purposes) == [ExtendedKeyUsageOID.SERVER_AUTH]
    usage = leaf.extensions.get_extension_for_class(x509.KeyUsage).value
    assert (usage.digital_signature, usage.key_cert_sign) == (True, False)
    # And it is the authority's
    root = x509.load_pem_x509_certificate(authority.certificate_pem)
    leaf.verify_directly_issued_by(root)
    issuer = leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    own = root.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    assert issuer.key_identifier == own.digest


def test_a_pair_tells_what_its_certificate_says() -> None:
    # When a leaf is issued
    pair = make_authority().issue(names=["localhost"], now=NOW, lifetime=90 * DAY)
    # Then the pair has its validity, in UTC, and its serial, and a plain PKCS8 key on P-256
    assert (pair.not_before, pair.not_after) == (NOW - HOUR, NOW + 90 * DAY)
    assert pair.not_before.tzinfo is UTC
    assert pair.serial == leaf_of(pair).serial_number
    assert pair.key_pem.startswith(b"-----BEGIN PRIVATE KEY-----")
    key = load_pem_private_key(pair.key_pem, password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert isinstance(key.curve, ec.SECP256R1)


def test_leaves_share_neither_serial_nor_key() -> None:
    # Given one authority
    authority = make_authority()
    # When it issues the same leaf often
    pairs = [authority.issue(names=["localhost"], now=NOW, lifetime=DAY) for _ in range(20)]
    # Then no two are alike
    assert len({pair.serial for pair in pairs}) == 20
    assert len({pair.key_pem for pair in pairs}) == 20


moments = st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - aware by timezones
lifetimes = st.timedeltas(timedelta(seconds=1), timedelta(days=36500))


@settings(deadline=None)
@given(born=moments, ca_lifetime=lifetimes, lifetime=lifetimes, age=st.floats(-0.5, 1.5))
def test_a_leaf_never_leaves_the_life_of_its_authority(
    born: datetime, ca_lifetime: timedelta, lifetime: timedelta, age: float
) -> None:
    # Given an authority of any lifetime, and any moment in or about it
    authority = make_authority(now=born, lifetime=ca_lifetime)
    now = authority.not_before + (authority.not_after - authority.not_before) * age
    # When a leaf is asked for
    try:
        pair = authority.issue(names=["localhost"], now=now, lifetime=lifetime)
    except CertificateError:
        # Then it is refused exactly when the authority is not valid
        assert not authority.not_before <= now < authority.not_after
        return
    assert authority.not_before <= now < authority.not_after
    # Then it lives within the authority's life, and around now
    assert authority.not_before <= pair.not_before <= now
    # And those who take it for one of now take it for one of any time before: a clock may have jumped
    assert pair.not_before == authority.not_before
    assert pair.not_after == min(authority.not_after, (now + lifetime).replace(microsecond=0))


@pytest.mark.parametrize("name", ["", " ", "https://localhost", "a b", "bücher.example", "-a", "a..b", "a.", "x" * 64])
def test_what_is_no_name_is_refused(name: str) -> None:
    # When a leaf is asked for something that is neither a DNS name nor an address, then it is told
    with pytest.raises(CertificateError, match="neither a DNS name nor an IP address"):
        make_authority().issue(names=["localhost", name], now=NOW, lifetime=DAY)


def test_a_name_of_254_characters_is_refused_and_one_of_253_is_not() -> None:
    authority = make_authority()
    longest = ".".join(["x" * 63] * 3 + ["x" * 61])
    authority.issue(names=[longest], now=NOW, lifetime=DAY)
    with pytest.raises(CertificateError, match="neither"):
        authority.issue(names=[longest + "x"], now=NOW, lifetime=DAY)


def test_a_leaf_without_names_is_refused() -> None:
    with pytest.raises(CertificateError, match="at least one name"):
        make_authority().issue(names=[], now=NOW, lifetime=DAY)


def test_an_expired_authority_issues_nothing() -> None:
    # Given an authority at the end of its life
    authority = make_authority(lifetime=DAY)
    # When a leaf is asked for, then it is refused; a moment before it was not
    authority.issue(names=["localhost"], now=NOW + DAY - timedelta(milliseconds=1), lifetime=DAY)
    with pytest.raises(CertificateError, match="expired at 2031-05-18T12:30:15"):
        authority.issue(names=["localhost"], now=NOW + DAY, lifetime=DAY)


def test_an_authority_of_the_future_issues_nothing() -> None:
    with pytest.raises(CertificateError, match="not valid before 2031-05-17T11:30:15"):
        make_authority().issue(names=["localhost"], now=NOW - 2 * HOUR, lifetime=DAY)


@pytest.mark.parametrize("lifetime", [timedelta(), -DAY, timedelta.max])
def test_an_impossible_lifetime_is_refused(lifetime: timedelta) -> None:
    with pytest.raises(CertificateError, match="lifetime"):
        make_authority(lifetime=lifetime)
    with pytest.raises(CertificateError, match="lifetime"):
        make_authority().issue(names=["localhost"], now=NOW, lifetime=lifetime)


@pytest.mark.parametrize("common_name", ["", "x" * 65])
def test_an_impossible_authority_name_is_refused(common_name: str) -> None:
    with pytest.raises(CertificateError, match="cannot be an authority's name"):
        make_authority(common_name=common_name)


def test_a_loaded_authority_goes_on_where_the_stored_one_was() -> None:
    # Given an authority that was stored
    stored = make_authority()
    # When it is loaded
    loaded = Authority.load(stored.certificate_pem, stored.key_pem)
    # Then it is the same, and what it issues is the stored one's
    assert loaded == stored
    pair = loaded.issue(names=["localhost"], now=NOW, lifetime=DAY)
    leaf_of(pair).verify_directly_issued_by(x509.load_pem_x509_certificate(stored.certificate_pem))


def test_an_authority_with_an_rsa_key_can_be_loaded() -> None:
    # Given an RSA authority without key usage or key identifier
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    certificate_pem = self_signed(key, CA)
    # When it is loaded and issues
    pair = Authority.load(certificate_pem, pkcs8(key)).issue(names=["localhost"], now=NOW, lifetime=DAY)
    # Then the leaf is its own
    leaf_of(pair).verify_directly_issued_by(x509.load_pem_x509_certificate(certificate_pem))


def test_the_key_identifier_an_authority_gives_itself_is_kept() -> None:
    # Given an authority whose identifier is not the usual hash
    key = ec.generate_private_key(ec.SECP256R1())
    certificate_pem = self_signed(key, CA, x509.SubjectKeyIdentifier(b"my own"))
    # When it issues
    pair = Authority.load(certificate_pem, pkcs8(key)).issue(names=["localhost"], now=NOW, lifetime=DAY)
    # Then the leaf points to it
    identifier = leaf_of(pair).extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert identifier.key_identifier == b"my own"


def test_a_leaf_of_an_intermediate_authority_brings_the_chain_without_the_root() -> None:
    # Given a root and an intermediate authority, stored with its root
    root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root_pem = self_signed(root_key, x509.BasicConstraints(ca=True, path_length=1), subject="root")
    root = x509.load_pem_x509_certificate(root_pem)
    intermediate_pem = self_signed(key, CA, issuer=(root.subject, root_key), subject="between")
    authority = Authority.load(intermediate_pem + root_pem, pkcs8(key))
    # When it issues
    pair = authority.issue(names=["localhost"], now=NOW, lifetime=DAY)
    # Then the leaf comes first, then the intermediate one
    leaf, *chain = x509.load_pem_x509_certificates(pair.certificate_pem)
    assert chain == [x509.load_pem_x509_certificate(intermediate_pem)]
    leaf.verify_directly_issued_by(chain[0])


def test_a_leaf_of_a_root_comes_alone() -> None:
    pair = make_authority().issue(names=["localhost"], now=NOW, lifetime=DAY)
    assert len(x509.load_pem_x509_certificates(pair.certificate_pem)) == 1


def test_a_leaf_is_no_authority() -> None:
    # Given a leaf, and certificates that say too little or that they do not sign
    pair = make_authority().issue(names=["localhost"], now=NOW, lifetime=DAY)
    key = ec.generate_private_key(ec.SECP256R1())
    no_signing = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    # When they are loaded as authorities, then they are refused
    for certificate_pem, key_pem in [
        (pair.certificate_pem, pair.key_pem),
        (self_signed(key), pkcs8(key)),
        (self_signed(key, CA, no_signing), pkcs8(key)),
    ]:
        with pytest.raises(CertificateError, match="not an authority's"):
            Authority.load(certificate_pem, key_pem)


def test_an_authority_with_a_key_of_another_kind_is_refused() -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    with pytest.raises(CertificateError, match="neither an EC nor an RSA key"):
        Authority.load(self_signed(key, CA), pkcs8(key))


def test_the_key_must_be_the_certificates() -> None:
    # Given two authorities
    one, other = make_authority(), make_authority()
    pair = one.issue(names=["localhost"], now=NOW, lifetime=DAY)
    # When a certificate comes with another one's key, then it is refused, be it an authority's or a leaf's
    with pytest.raises(CertificateError, match="not the key of the first certificate"):
        Authority.load(one.certificate_pem, other.key_pem)
    with pytest.raises(CertificateError, match="not the key of the first certificate"):
        Pair(certificate_pem=pair.certificate_pem, key_pem=other.key_pem)
    # And so is a chain in the wrong order
    with pytest.raises(CertificateError, match="not the key of the first certificate"):
        Pair(certificate_pem=one.certificate_pem + pair.certificate_pem, key_pem=pair.key_pem)


def test_an_encrypted_key_is_refused() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    with pytest.raises(CertificateError, match="encrypted"):
        Pair(certificate_pem=self_signed(key), key_pem=encrypted)


def test_a_key_of_the_old_form_is_kept_in_the_new_one() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    old = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    assert Pair(certificate_pem=self_signed(key), key_pem=old).key_pem == pkcs8(key)


GOOD = make_authority()


@settings(deadline=None)
@given(broken=st.binary(max_size=200), at=st.integers(0, 1000), length=st.integers(0, 300))
def test_broken_pem_is_refused_with_a_sentence(broken: bytes, at: int, length: int) -> None:
    # Given PEM that is damaged somewhere, or that is none at all
    for certificate_pem, key_pem in [
        (GOOD.certificate_pem[:at] + broken + GOOD.certificate_pem[at + length :], GOOD.key_pem),
        (GOOD.certificate_pem, GOOD.key_pem[:at] + broken + GOOD.key_pem[at + length :]),
        (broken, broken),
    ]:
        # When it is loaded
        try:
            loaded = Authority.load(certificate_pem, key_pem)
        except CertificateError as error:
            outcome: object = str(error)
        else:
            outcome = loaded
        # Then it is refused with a sentence, unless the damage was none
        assert outcome == GOOD or (isinstance(outcome, str) and outcome.endswith("."))


@pytest.mark.parametrize("key_pem", [b"", b"nonsense", GOOD.key_pem[:100]], ids=["empty", "nonsense", "cut off"])
def test_a_broken_key_is_refused(key_pem: bytes) -> None:
    with pytest.raises(CertificateError, match="private key is not readable"):
        Authority.load(GOOD.certificate_pem, key_pem)


@pytest.mark.parametrize(
    "certificate_pem", [b"", b"nonsense", GOOD.certificate_pem[:100]], ids=["empty", "nonsense", "cut off"]
)
def test_a_broken_certificate_is_refused(certificate_pem: bytes) -> None:
    with pytest.raises(CertificateError, match="certificate is not readable"):
        Pair(certificate_pem=certificate_pem, key_pem=GOOD.key_pem)


def test_neither_repr_shows_a_key() -> None:
    # Given an authority and a pair
    pair = GOOD.issue(names=["localhost"], now=NOW, lifetime=DAY)
    # When they are shown, then their keys are not
    for shown in (repr(GOOD), repr(pair), str(GOOD), str(pair), f"{[GOOD, pair]}"):
        assert "KEY" not in shown
        assert "BEGIN" not in shown
        assert "key" not in shown
    assert str(pair.serial) in repr(pair)


def test_a_key_in_the_certificates_file_is_not_published() -> None:
    # Given a file that holds certificate and key
    combined = GOOD.key_pem + GOOD.certificate_pem
    # When an authority is loaded from it, then what clients are given is the certificate alone
    assert Authority.load(combined, combined).certificate_pem == GOOD.certificate_pem
