"""The key that service account tokens are signed with."""

from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

PRIVATE: Final = "service-accounts.key"
PUBLIC: Final = "service-accounts.pub"


def write_key_pair(directory: Path) -> None:
    """Write a new pair as PEM, PRIVATE and PUBLIC."""
    key = ec.generate_private_key(ec.SECP256R1())
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    private = directory / PRIVATE
    private.touch(mode=0o600)
    private.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    (directory / PUBLIC).write_bytes(public)
