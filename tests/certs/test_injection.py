"""What is applied to a webhook configuration."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certs.injection import bundles, injection, release
from gpu import names

BUNDLE = b"-----BEGIN CERTIFICATE-----"


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


def configuration(**webhooks: bytes | None) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "gpu-webhooks", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}},
        "webhooks": [
            {
                "name": name,
                "clientConfig": {"url": "https://x"} | ({} if value is None else {"caBundle": encoded(value)}),
                "failurePolicy": "Fail",
            }
            for name, value in webhooks.items()
        ],
    }


def test_every_webhook_is_named_with_its_bundle_and_nothing_else() -> None:
    # Given a configuration in which one webhook of three is right
    found = configuration(right=BUNDLE, none=None, other=b"other")
    # When the bundle is to be put in
    todo = injection(found, BUNDLE)
    # Then the document has the bundle of all, for that version of that object, and no other field
    assert todo is not None
    assert todo.document == {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "gpu-webhooks", "uid": "u", "resourceVersion": "7"},
        "webhooks": [
            {"name": name, "clientConfig": {"caBundle": encoded(BUNDLE)}} for name in ("right", "none", "other")
        ],
    }
    assert todo.reason == "Webhooks with none: none and with another: other."


@pytest.mark.parametrize("found", [configuration(a=BUNDLE, b=BUNDLE), configuration()])
def test_a_configuration_that_is_right_is_left_alone(found: dict[str, Any]) -> None:
    assert injection(found, BUNDLE) is None


def test_a_configuration_without_the_field_has_no_webhooks() -> None:
    found = configuration()
    del found["webhooks"]
    assert bundles(found) == {}
    assert injection(found, BUNDLE) is None


@given(webhooks=st.dictionaries(st.text(min_size=1, max_size=8), st.none() | st.binary(max_size=40)))
def test_applied_once_nothing_is_left_to_apply(webhooks: dict[str, bytes | None]) -> None:
    found = configuration()
    found["webhooks"] = configuration(**webhooks)["webhooks"]
    todo = injection(found, BUNDLE)
    assert (todo is None) == all(value == BUNDLE for value in webhooks.values())
    if todo is not None:
        applied = found | {"webhooks": todo.document["webhooks"]}
        assert injection(applied, BUNDLE) is None
        assert bundles(applied) == dict.fromkeys(webhooks, BUNDLE)


def owned(*managers: str) -> dict[str, Any]:
    found = configuration(a=BUNDLE)
    found["metadata"]["managedFields"] = [{"manager": manager, "fieldsV1": {}} for manager in managers]
    return found


def test_what_our_manager_owns_is_given_up_and_nobody_elses() -> None:
    patch = release(owned("helm", names.BUNDLE_MANAGER, "kubectl-edit"))
    assert patch is not None
    assert [entry["manager"] for entry in patch["metadata"]["managedFields"]] == ["helm", "kubectl-edit"]
    assert patch["metadata"]["resourceVersion"] == "7"


def test_the_only_owner_leaves_a_list_that_the_api_server_takes_as_cleared() -> None:
    patch = release(owned(names.BUNDLE_MANAGER))
    assert patch is not None
    assert patch["metadata"]["managedFields"] == [{}]


def test_where_nothing_is_owned_nothing_is_given_up() -> None:
    assert release(owned("helm")) is None
    assert release(configuration(a=BUNDLE)) is None


def entry(manager: str, webhook: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What a manager owns, as the API server tells it: of one webhook, and more."""
    return {"manager": manager, "fieldsV1": {"f:webhooks": {'k:{"name":"a"}': webhook}, **more}}


OF_BUNDLE: dict[str, Any] = {".": {}, "f:name": {}, "f:clientConfig": {"f:caBundle": {}}}


@pytest.mark.parametrize(
    "webhook",
    [OF_BUNDLE, {".": {}, "f:name": {}}, {"f:clientConfig": {"f:caBundle": {}}}],
    ids=["applied", "taken from it", "updated"],
)
def test_what_another_injector_owns_is_given_up_too(webhook: dict[str, Any]) -> None:
    found = owned("helm")
    found["metadata"]["managedFields"].append(entry("cert-manager-cainjector", webhook))
    patch = release(found)
    assert patch is not None
    assert [one["manager"] for one in patch["metadata"]["managedFields"]] == ["helm"]


@pytest.mark.parametrize(
    "other",
    [
        entry("edit", {**OF_BUNDLE, "f:failurePolicy": {}}),
        entry("edit", {**OF_BUNDLE, "f:clientConfig": {"f:caBundle": {}, "f:url": {}}}),
        entry("edit", OF_BUNDLE, **{"f:metadata": {"f:labels": {"f:a": {}}}}),
        {"manager": "edit", "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}}},
        {"manager": "edit"},
    ],
    ids=["policy", "url", "label too", "label", "nothing told"],
)
def test_who_owns_anything_else_keeps_it(other: dict[str, Any]) -> None:
    found = owned("helm")
    found["metadata"]["managedFields"].append(other)
    assert release(found) is None
