"""Pairs of a serving certificate and its key, and the authority that issues them."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.errors import CertificateError
from certs.pem import read_pair, write_certificates, write_key

if TYPE_CHECKING:
    from collections.abc import Sequence

CLOCK_SKEW = timedelta(hours=1)
"""How far a client's clock may be behind ours: an authority is valid from this long before it is made."""

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_DNS_NAME = re.compile(rf"(?:\*\.)?(?:{_LABEL}\.)*{_LABEL}")
_DNS_NAME_LENGTH = 253


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A serving certificate and its private key, read and found to belong together.

    Give `certificate_pem` (PEM: the leaf, then the issuing chain if any) and `key_pem` (PEM, unencrypted; kept as
    PKCS8); the rest is read from them once. `not_before` and `not_after` are aware and in UTC, `serial` is the leaf's
    serial number. Raises CertificateError when the PEM is broken, the key is encrypted or is not the leaf's. That it
    is valid at some time is not asked here: see `renewal`.
    """

    certificate_pem: bytes = field(repr=False)
    key_pem: bytes = field(repr=False)
    not_before: datetime = field(init=False)
    not_after: datetime = field(init=False)
    serial: int = field(init=False)

    def __post_init__(self) -> None:
        certificates, key = read_pair(certificate_pem=self.certificate_pem, key_pem=self.key_pem)
        leaf = certificates[0]
        _fill(
            self,
            certificate_pem=write_certificates(certificates),
            key_pem=write_key(key),
            not_before=leaf.not_valid_before_utc,
            not_after=leaf.not_valid_after_utc,
            serial=leaf.serial_number,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A certificate authority: its certificate and key, and the issuing of serving certificates.

    Made by `create` or `load`. `certificate_pem` is what clients trust (the authority's certificate first, then its
    own issuers if it has any) and never holds a key; `key_pem` is PKCS8, unencrypted; `not_before` and `not_after`
    are aware and in UTC.
    """

    certificate_pem: bytes = field(repr=False)
    key_pem: bytes = field(repr=False)
    not_before: datetime = field(init=False)
    not_after: datetime = field(init=False)
    serial: int = field(init=False)
    _certificates: tuple[x509.Certificate, ...] = field(init=False, repr=False, compare=False)
    _key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        certificates, key = read_pair(certificate_pem=self.certificate_pem, key_pem=self.key_pem)
        certificate = certificates[0]
        _check_authority(certificate)
        if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
            raise CertificateError("The authority's key is neither an EC nor an RSA key.")
        _fill(
            self,
            certificate_pem=write_certificates(certificates),
            key_pem=write_key(key),
            not_before=certificate.not_valid_before_utc,
            not_after=certificate.not_valid_after_utc,
            serial=certificate.serial_number,
            _certificates=tuple(certificates),
            _key=key,
        )

    @classmethod
    def create(
        cls,
        *,
        common_name: str,
        now: datetime,
        lifetime: timedelta,
        skew: timedelta = CLOCK_SKEW,
        since: datetime | None = None,
    ) -> Self:
        """A new self-signed authority with a P-256 key, valid from `now - skew` until `now + lifetime`.

        With `since`, the beginning of the one that it is to replace, it is valid from then on if that is earlier: a
        clock that is ahead of all others then makes nothing that they take for one of the future. `now` and `since`
        are aware. Raises CertificateError when the name or the lifetime cannot stand in a certificate.
        """
        not_before, not_after = _validity(now=now, lifetime=lifetime, skew=skew)
        if since is not None:
            not_before = min(not_before, since)
        try:
            name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        except ValueError as error:
            raise CertificateError(f"{common_name!r} cannot be an authority's name: {error}.") from error
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(key=key, subject=name, issuer=name, not_before=not_before, not_after=not_after)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(key_cert_sign=True, crl_sign=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate_pem=write_certificates([certificate]), key_pem=write_key(key))

    @classmethod
    def load(cls, certificate_pem: bytes, key_pem: bytes) -> Self:
        """The authority of a certificate and its key, both PEM; the validity is not judged.

        Raises CertificateError when the PEM is broken, the key is encrypted, is not the certificate's or is neither
        EC nor RSA, or the certificate is not an authority's.
        """
        return cls(certificate_pem=certificate_pem, key_pem=key_pem)

    def issue(self, *, names: Sequence[str], now: datetime, lifetime: timedelta) -> Pair:
        """A serving certificate with a new P-256 key for DNS names and IP literals.

        It is valid from the authority's own beginning, so that a clock that jumped ahead makes none that others take
        for one of the future, until `now + lifetime` (`now` is aware), at most until the authority's end. The subject
        is empty, as names belong in the SAN. Raises CertificateError when `names` is empty or holds what is neither a
        DNS name nor an IP address, the lifetime is not positive, or the authority is not valid at `now`.
        """
        alternatives = list(dict.fromkeys(_general_name(name) for name in names))
        if not alternatives:
            raise CertificateError("A serving certificate needs at least one name.")
        if now >= self.not_after:
            raise CertificateError(f"The authority expired at {self.not_after.isoformat()}.")
        if now < self.not_before:
            raise CertificateError(f"The authority is not valid before {self.not_before.isoformat()}.")
        _, not_after = _validity(now=now, lifetime=lifetime, skew=timedelta())
        issuer = self._certificates[0]
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(
                key=key,
                subject=x509.Name([]),
                issuer=issuer.subject,
                not_before=self.not_before,
                not_after=min(not_after, self.not_after),
            )
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            # RFC 5280: with an empty subject the SAN must be critical.
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=True)
            .add_extension(_key_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(_authority_key_identifier(issuer, self._key), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        # Clients hold the root; a server sends what lies between the leaf and it.
        chain = [link for link in self._certificates if link.issuer != link.subject]
        return Pair(certificate_pem=write_certificates([certificate, *chain]), key_pem=write_key(key))


def _fill(instance: Pair | Authority, **values: object) -> None:
    for name, value in values.items():
        object.__setattr__(instance, name, value)


def _check_authority(certificate: x509.Certificate) -> None:
    try:
        extensions = certificate.extensions
    except ValueError as error:
        raise CertificateError(f"The certificate's extensions cannot be read: {error}.") from error
    try:
        ca = extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        ca = False
    try:
        signs = extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound:
        signs = True
    if not (ca and signs):
        raise CertificateError("The certificate is not an authority's: it may not sign other certificates.")


def _validity(*, now: datetime, lifetime: timedelta, skew: timedelta) -> tuple[datetime, datetime]:
    if lifetime <= timedelta():
        raise CertificateError(f"A lifetime must be positive, not {lifetime}.")
    try:
        not_after = now.astimezone(UTC) + lifetime
    except OverflowError as error:
        raise CertificateError(f"A lifetime of {lifetime.days} days ends after the last date there is.") from error
    # X.509 counts in whole seconds.
    return (now.astimezone(UTC) - skew).replace(microsecond=0), not_after.replace(microsecond=0)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    lowered = name.lower()
    if len(lowered) > _DNS_NAME_LENGTH or not _DNS_NAME.fullmatch(lowered):
        raise CertificateError(f"{name!r} is neither a DNS name nor an IP address.")
    return x509.DNSName(lowered)


def _builder(
    *,
    key: ec.EllipticCurvePrivateKey,
    subject: x509.Name,
    issuer: x509.Name,
    not_before: datetime,
    not_after: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_before)
        .not_valid_after(not_after)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _authority_key_identifier(
    issuer: x509.Certificate, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
) -> x509.AuthorityKeyIdentifier:
    # An authority from elsewhere may have computed its identifier in another way: what it says of itself counts.
    try:
        subject = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(subject.value)
