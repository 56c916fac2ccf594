"""Client certificates, and those who sign them."""

import ssl
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs import utc_now
from certs.keyfile import secret_file

DAY = timedelta(days=1)


class Identity(NamedTuple):
    """A certificate and its key, PEM."""

    certificate: bytes
    key: bytes


class Issuer:
    """An authority that signs clients' certificates: a root, or one ``of`` another."""

    def __init__(self, name: str = "clients", *, of: "Issuer | None" = None) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        basic = x509.BasicConstraints(ca=True, path_length=None)
        self._id = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        certificate = _begun(self._name, of._name if of else self._name, self._key).add_extension(basic, critical=True)
        certificate = certificate.add_extension(self._id, critical=False)
        self.pem = certificate.sign(of._key if of else self._key, SHA256()).public_bytes(Encoding.PEM)

    def identity(
        self,
        name: str = "kube-apiserver",
        *,
        alternatives: Sequence[x509.GeneralName] = (),
        usage: x509.ObjectIdentifier = ExtendedKeyUsageOID.CLIENT_AUTH,
        lasts: timedelta = DAY,
    ) -> Identity:
        """A certificate for a common name, where there is one, and alternative ones."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _begun(_named(name), self._name, key, lasts=lasts).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        # Of two authorities of one name, as while one is exchanged, OpenSSL tells by this which it is.
        by = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._id)
        certificate = certificate.add_extension(by, critical=False)
        if alternatives:
            certificate = certificate.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        pem = certificate.sign(self._key, SHA256()).public_bytes(Encoding.PEM)
        return Identity(pem, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def showing(identity: Identity | None, *, trusts: bytes) -> ssl.SSLContext:
    """How a client connects that shows a certificate, or none."""
    context = ssl.create_default_context(cadata=trusts.decode())
    if identity is not None:
        with secret_file(identity.certificate + identity.key) as path:
            context.load_cert_chain(path)
    return context


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else [])


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, lasts: timedelta = DAY
) -> x509.CertificateBuilder:
    now = utc_now()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 10 * DAY)
        .not_valid_after(now + lasts)
    )
