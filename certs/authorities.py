"""The authorities that the replicas share, and the Secret that they are kept in."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

from certs.authority import Authority
from certs.errors import CertificateError, ForeignSecret
from certs.pem import read_certificates, write_certificates
from gpu import names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from cryptography import x509

_CURRENT: Final = ("ca.crt", "ca.key")
_NEXT: Final = ("next.crt", "next.key")
_OLD: Final = "old.crt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorities:
    """The authority that signs, the one that is to sign next, and certificates of old ones that are still trusted."""

    current: Authority
    next: Authority | None = None
    old: tuple[x509.Certificate, ...] = ()

    @property
    def bundle(self) -> bytes:
        """What clients trust, PEM: the certificate of each, the eldest first, without any key.

        It does not tell which of them signs, so that a change of that alone changes no configuration.
        """
        signing = [self.current] if self.next is None else [self.current, self.next]
        trusted = {certificate_of(authority) for authority in signing} | set(self.old)
        return write_certificates(sorted(trusted, key=_age))

    def trusts(self, authority: Authority) -> bool:
        """Whether the certificate of `authority` is in the bundle."""
        return trusts(self.bundle, authority)

    def preparing(self, authority: Authority) -> Self:
        """With another that is to sign next."""
        return replace(self, next=authority)

    def promoted(self) -> Self:
        """With the next one signing, and the certificate of the one that signed so far trusted still."""
        if self.next is None:
            return self
        return replace(self, current=self.next, next=None, old=_unique([*self.old, certificate_of(self.current)]))

    def trusting(self, authority: Authority) -> Self:
        """With the certificate of `authority` trusted too."""
        return replace(self, old=_unique([*self.old, certificate_of(authority)]))

    def without_expired(self, now: datetime) -> Self:
        """Without the old ones that have expired at `now` (aware)."""
        return replace(self, old=tuple(old for old in self.old if old.not_valid_after_utc > now))


def certificate_of(authority: Authority) -> x509.Certificate:
    """The authority's own certificate."""
    return read_certificates(authority.certificate_pem)[0]


def trusts(bundle: bytes, authority: Authority) -> bool:
    """Whether the authority's certificate is in a bundle (PEM, or whatever it was edited to)."""
    try:
        return certificate_of(authority) in read_certificates(bundle)
    except CertificateError:
        return False


def read_secret(secret: Mapping[str, Any]) -> Authorities | None:
    """The authorities in a Secret of ours, or None where the one that signs is missing or can't be read.

    The rest is read as far as it can be. Raises ForeignSecret when the Secret is not ours by its type.
    """
    if secret.get("type") != names.AUTHORITY_TYPE:
        metadata = secret.get("metadata") or {}
        raise ForeignSecret(
            f"Secret {metadata.get('namespace')}/{metadata.get('name')} is not ours and is left alone: its type is "
            f"{secret.get('type')!r}, not {names.AUTHORITY_TYPE!r}. "
            "Rename or delete it, and the authority is made there."
        )
    data = secret.get("data") or {}
    current = _authority(data, _CURRENT)
    if current is None:
        return None
    return Authorities(current=current, next=_authority(data, _NEXT), old=_certificates(data, _OLD))


def secret_of(
    authorities: Authorities, *, name: str, namespace: str, found: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The Secret to store in place of the one `found`, if it is still the stored one; its metadata stays."""
    data = {_CURRENT[0]: authorities.current.certificate_pem, _CURRENT[1]: authorities.current.key_pem}
    if authorities.next is not None:
        data |= {_NEXT[0]: authorities.next.certificate_pem, _NEXT[1]: authorities.next.key_pem}
    if authorities.old:
        data[_OLD] = write_certificates(authorities.old)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": names.AUTHORITY_TYPE,
        "metadata": (found or {}).get("metadata") or {"name": name, "namespace": namespace},
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }


def _authority(data: Mapping[str, Any], keys: tuple[str, str]) -> Authority | None:
    certificate_pem, key_pem = (_decoded(data, key) for key in keys)
    try:
        return Authority.load(certificate_pem, key_pem)
    except CertificateError:
        return None


def _certificates(data: Mapping[str, Any], key: str) -> tuple[x509.Certificate, ...]:
    try:
        return _unique(read_certificates(_decoded(data, key)))
    except CertificateError:
        return ()


def _decoded(data: Mapping[str, Any], key: str) -> bytes:
    try:
        return base64.b64decode(data.get(key) or "", validate=True)
    except (binascii.Error, TypeError, ValueError):
        return b""


def _age(certificate: x509.Certificate) -> tuple[datetime, int]:
    return certificate.not_valid_before_utc, certificate.serial_number


def _unique(certificates: Iterable[x509.Certificate]) -> tuple[x509.Certificate, ...]:
    return tuple(sorted(set(certificates), key=_age))
