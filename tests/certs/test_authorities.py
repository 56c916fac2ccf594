"""What the replicas share, to the Secret and back."""

from __future__ import annotations

import base64
import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certs import Authority, ForeignSecret
from certs.authorities import Authorities, certificate_of, read_secret, secret_of
from certs.pem import read_certificates
from gpu import names

NOW = datetime(2031, 5, 17, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)
POOL = [Authority.create(common_name=f"ca {number}", now=NOW - number * DAY, lifetime=365 * DAY) for number in range(6)]


def stored(authorities: Authorities, *, found: dict[str, Any] | None = None) -> dict[str, Any]:
    return secret_of(authorities, name="ca", namespace="gpu", found=found)


members = st.sampled_from(POOL)
shared = st.builds(
    Authorities,
    current=members,
    next=st.none() | members,
    old=st.sets(members, max_size=3).map(
        lambda old: tuple(sorted(map(certificate_of, old), key=lambda one: one.not_valid_before_utc))
    ),
)


@settings(deadline=None)
@given(authorities=shared)
def test_what_is_stored_is_what_is_read(authorities: Authorities) -> None:
    assert read_secret(stored(authorities)) == authorities


@settings(deadline=None)
@given(authorities=shared)
def test_the_bundle_has_each_certificate_once_and_no_key(authorities: Authorities) -> None:
    bundle = authorities.bundle
    expected = {certificate_of(authorities.current), *authorities.old}
    if authorities.next is not None:
        expected.add(certificate_of(authorities.next))
    assert len(read_certificates(bundle)) == len(expected)
    assert set(read_certificates(bundle)) == expected
    # In one order, so that no two replicas could put the same into a configuration in turns.
    births = [certificate.not_valid_before_utc for certificate in read_certificates(bundle)]
    assert births == sorted(births)
    assert b"KEY" not in bundle


def test_signing_with_the_next_authority_changes_no_bundle() -> None:
    # Given a next authority that was published
    prepared = Authorities(current=POOL[0]).preparing(POOL[1])
    # When it comes to sign
    promoted = prepared.promoted()
    # Then what clients trust is the same
    assert promoted.current == POOL[1]
    assert promoted.next is None
    assert promoted.trusts(POOL[0])
    assert promoted.bundle == prepared.bundle


@pytest.mark.parametrize("secret_type", ["Opaque", "kubernetes.io/tls", "", None])
def test_a_secret_of_another_type_is_refused_and_named(secret_type: str | None) -> None:
    # Given a Secret with a good authority in it, of another type
    secret = stored(Authorities(current=POOL[0])) | {"type": secret_type}
    # When it is read, then it is refused, with its name and what to do
    with pytest.raises(ForeignSecret, match=r"gpu/ca is not ours .* Rename or delete it"):
        read_secret(secret)


def broken(secret: dict[str, Any], key: str, value: bytes | None) -> dict[str, Any]:
    secret = copy.deepcopy(secret)
    if value is None:
        del secret["data"][key]
    else:
        secret["data"][key] = base64.b64encode(value).decode()
    return secret


@pytest.mark.parametrize("key", ["ca.crt", "ca.key"])
@pytest.mark.parametrize("value", [None, b"", b"garbage", POOL[5].key_pem, POOL[5].certificate_pem])
def test_a_secret_of_ours_without_a_usable_authority_is_none(key: str, value: bytes | None) -> None:
    secret = stored(Authorities(current=POOL[0], next=POOL[1]))
    assert read_secret(broken(secret, key, value)) is None


def test_a_secret_that_was_emptied_is_none() -> None:
    secret = stored(Authorities(current=POOL[0]))
    assert read_secret({key: value for key, value in secret.items() if key != "data"}) is None
    assert read_secret(secret | {"data": None}) is None
    assert read_secret(secret | {"data": {"ca.crt": "no base64", "ca.key": "!"}}) is None


@pytest.mark.parametrize(("key", "lost"), [("next.crt", "next"), ("next.key", "next"), ("old.crt", "old")])
def test_what_is_broken_beside_the_authority_is_left_out(key: str, lost: str) -> None:
    authorities = Authorities(current=POOL[0], next=POOL[1], old=(certificate_of(POOL[2]),))
    read = read_secret(broken(stored(authorities), key, b"garbage"))
    assert read is not None
    assert read.current == POOL[0]
    assert bool(read.next) is (lost != "next")
    assert bool(read.old) is (lost != "old")


def test_what_others_wrote_on_the_secret_stays() -> None:
    # Given a stored Secret with a label of somebody's and a key that is not ours
    metadata = {"name": "ca", "namespace": "gpu", "resourceVersion": "7", "labels": {"team": "a"}}
    found = {"kind": "Secret", "type": names.AUTHORITY_TYPE, "metadata": metadata, "data": {"ca.crt": "", "x": ""}}
    # When it is repaired
    secret = stored(Authorities(current=POOL[0]), found=found)
    # Then the label stays, the write holds for that version alone, and the data is ours
    assert secret["metadata"] == metadata
    assert sorted(secret["data"]) == ["ca.crt", "ca.key"]


def test_keys_do_not_show() -> None:
    authorities = Authorities(current=POOL[0], next=POOL[1])
    assert "PRIVATE" not in repr(authorities)
    assert POOL[0].key_pem.decode().split("\n")[1] not in repr(authorities)
