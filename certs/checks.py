"""Whether a serving certificate that others made is one that the API server will take."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs.errors import CertificateError
from certs.pem import read_certificates

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from certs.authority import Pair

_SERVES = {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}


def check_usable(pair: Pair, *, names: Sequence[str], now: datetime, instead: bool) -> None:
    """Raise CertificateError unless the pair serves every one of `names` at `now` (aware).

    One that is not valid yet is refused where it is to be served `instead` of another, and taken where there is none,
    as the clock that is wrong may be ours. Names are looked for where Go looks for them, in the SAN alone, and
    an extended key usage must allow a server where there is one (crypto/x509, Certificate.Verify).
    """
    if now >= pair.not_after:
        raise CertificateError(f"The certificate expired at {pair.not_after.isoformat()}.")
    if instead and now < pair.not_before:
        raise CertificateError(f"The certificate is not valid before {pair.not_before.isoformat()}.")
    leaf = read_certificates(pair.certificate_pem)[0]
    try:
        extensions = leaf.extensions
    except ValueError as error:
        raise CertificateError(f"The certificate's extensions cannot be read: {error}.") from error
    _check_usage(extensions)
    _check_names(extensions, names)


def _check_usage(extensions: x509.Extensions) -> None:
    try:
        usages = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return
    if _SERVES.isdisjoint(usages):
        raise CertificateError("The certificate is not for servers: its extended key usage has no serverAuth.")


def _check_names(extensions: x509.Extensions, names: Sequence[str]) -> None:
    try:
        alternatives: Iterable[x509.GeneralName] = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        alternatives = ()
    has = list(alternatives)
    missing = [name for name in names if not any(_covers(alternative, name) for alternative in has)]
    if missing:
        known = ", ".join(str(one.value) for one in has if isinstance(one, x509.DNSName | x509.IPAddress)) or "none"
        raise CertificateError(f"The certificate is not for {', '.join(missing)}: the names in its SAN are {known}.")


def _covers(alternative: x509.GeneralName, name: str) -> bool:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return isinstance(alternative, x509.DNSName) and _matches(alternative.value.lower(), name.lower())
    return isinstance(alternative, x509.IPAddress) and alternative.value == address


def _matches(pattern: str, name: str) -> bool:
    """A wildcard stands for one label, the first."""
    return pattern == name or (pattern.startswith("*.") and "." in name and pattern[2:] == name.partition(".")[2])
