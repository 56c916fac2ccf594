"""Certificates and keys out of PEM, with errors a person can act on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from certs.errors import CertificateError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes


def read_pair(*, certificate_pem: bytes, key_pem: bytes) -> tuple[list[x509.Certificate], PrivateKeyTypes]:
    """The certificates, at least one, and the private key, which is the first certificate's.

    Raises CertificateError when either cannot be read, the key is encrypted, or the two do not belong together.
    """
    certificates = read_certificates(certificate_pem)
    key = _read_key(key_pem)
    try:
        certified = certificates[0].public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise CertificateError(f"The certificate's public key cannot be read: {error}.") from error
    der = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if certified.public_bytes(*der) != key.public_key().public_bytes(*der):
        raise CertificateError("The private key is not the key of the first certificate.")
    return certificates, key


def read_certificates(certificate_pem: bytes) -> list[x509.Certificate]:
    """The certificates of a PEM text, at least one, in their order; raises CertificateError when it is broken."""
    try:
        return x509.load_pem_x509_certificates(certificate_pem)
    except ValueError as error:
        raise CertificateError(f"The certificate is not readable PEM: {error}.") from error


def write_certificates(certificates: Iterable[x509.Certificate]) -> bytes:
    """The PEM text of certificates, and of nothing else."""
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)


def write_key(key: PrivateKeyTypes) -> bytes:
    """The PEM text of a key: PKCS8, unencrypted."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _read_key(key_pem: bytes) -> PrivateKeyTypes:
    try:
        return load_pem_private_key(key_pem, password=None)
    except TypeError as error:
        raise CertificateError("The private key is encrypted; give an unencrypted one.") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        # The library's own text is left out: nothing about a key belongs in a message.
        raise CertificateError("The private key is not readable PEM of a known kind.") from error
