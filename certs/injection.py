"""The ``caBundle`` of webhook configurations: what is there, and what is to be applied."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu import names

if TYPE_CHECKING:
    from collections.abc import Mapping


class Injection(NamedTuple):
    """A document for server-side apply and the sentence that says why."""

    document: dict[str, Any]
    reason: str


def injection(configuration: Mapping[str, Any], bundle: bytes) -> Injection | None:
    """What puts `bundle` (PEM) into every webhook of a configuration as it was read, or None where each has it.

    The document names every webhook, as a field that an apply leaves out is given up by its manager. It holds for the
    configuration that was read and no other: by the uid it never makes one, by the resource version it never adds a
    webhook that has gone meanwhile.
    """
    found = bundles(configuration)
    missing = [name for name, value in found.items() if not value]
    other = [name for name, value in found.items() if value and value != bundle]
    if not (missing or other):
        return None
    told = [
        f"{state}: {', '.join(webhooks)}" for state, webhooks in (("none", missing), ("another", other)) if webhooks
    ]
    encoded = base64.b64encode(bundle).decode()
    metadata = configuration["metadata"]
    document = {
        "apiVersion": configuration["apiVersion"],
        "kind": configuration["kind"],
        "metadata": {key: metadata[key] for key in ("name", "uid", "resourceVersion")},
        "webhooks": [{"name": name, "clientConfig": {"caBundle": encoded}} for name in found],
    }
    return Injection(document, f"Webhooks with {' and with '.join(told)}.")


def release(configuration: Mapping[str, Any]) -> dict[str, Any] | None:
    """A merge patch by which nobody owns a configuration's bundles, or None where nobody does who owns nothing else.

    An apply that leaves a webhook out does not delete it while another manager owns a field of it: it would stay with
    that field alone, and the API server would refuse it and so the whole apply, a chart's upgrade for instance
    (sigs.k8s.io/structured-merge-diff/merge, Updater.prune). A field without an owner is left alone by other applies,
    and goes with its webhook. So our field manager is to own nothing, and neither is who filled the bundles before us,
    such as cert-manager's cainjector: that the bundles were taken from it leaves it the webhooks' names.
    """
    metadata = configuration["metadata"]
    entries = metadata.get("managedFields") or []
    others = [entry for entry in entries if not _is_injectors(entry)]
    if len(others) == len(entries):
        return None
    # An empty list would be taken for none given; one empty entry is how a list is cleared.
    return {"metadata": {"resourceVersion": metadata["resourceVersion"], "managedFields": others or [{}]}}


def _is_injectors(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of managedFields is ours, or has nothing but names and bundles of webhooks."""
    fields = entry.get("fieldsV1") or {}
    webhooks = fields.get("f:webhooks") or {}
    return entry.get("manager") == names.BUNDLE_MANAGER or (
        set(fields) == {"f:webhooks"}
        and all(
            set(webhook) <= {".", "f:name", "f:clientConfig"}
            and set(webhook.get("f:clientConfig") or {}) <= {".", "f:caBundle"}
            for webhook in webhooks.values()
        )
    )


def bundles(configuration: Mapping[str, Any]) -> dict[str, bytes]:
    """The bundle of each webhook of a configuration by its name; empty where there is none."""
    return {
        webhook["name"]: _bundle(webhook.get("clientConfig") or {}) for webhook in configuration.get("webhooks") or ()
    }


def _bundle(client_config: Mapping[str, Any]) -> bytes:
    try:
        return base64.b64decode(client_config.get("caBundle") or "", validate=True)
    except (binascii.Error, TypeError, ValueError):
        return b""
