"""What a cluster holds, as manifests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cluster import kinds
from cluster.discovery import served
from cluster.release import release_namespace
from gpu import names
from gpu.errors import FieldError
from gpu.pod import extended_resources, pod_claims
from webhooks.manifests import Manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cluster.api import Api

CLASSES: Final = (kinds.GPU_CLASSES, kinds.GPU_DEVICES)
OTHERS: Final = (
    kinds.NAMESPACES,
    kinds.VMS,
    kinds.REPLICA_SETS,
    kinds.POOLS,
    kinds.VMIS,
    kinds.PODS,
    kinds.MIGRATIONS,
    kinds.RESOURCE_CLAIMS,
    kinds.RESOURCE_CLAIM_TEMPLATES,
    *kinds.INSTANCETYPES,
)
"""The kinds that are audited, and those that they are judged by. No quotas: what runs has been counted already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The objects of a cluster, and how many pods are not among them since they ask for nothing that could be a GPU.

    ``release`` is the namespace of the release; empty where there is none.
    """

    manifests: list[Manifest]
    plain_pods: int
    release: str


async def running(api: Api, wanted: Iterable[kinds.Kind], *, release: str | None) -> Running:
    """Every object of the wanted kinds that the API server serves, and the settings.

    The release's namespace is found where it is not given. Raises CatalogError.
    """
    release = release or await release_namespace(api) or ""
    manifests: list[Manifest] = []
    plain = 0
    for kind in [found for one in wanted if (found := await served(api, one))]:
        async for page in api.pages(kind):
            items = page.get("items") or ()
            kept = [item for item in items if kind != kinds.PODS or _counts(item)]
            plain += len(items) - len(kept)
            manifests += _manifests(kind, kept)
    if release:
        where = f"metadata.name={names.SETTINGS}"
        settings = await api.items(kinds.CONFIG_MAPS, namespace=release, fields=where)
        manifests += _manifests(kinds.CONFIG_MAPS, settings)
    return Running(manifests=manifests, plain_pods=plain, release=release)


def _counts(pod: Mapping[str, Any]) -> bool:
    """Whether a pod asks for an extended resource or a claim, or can't be read."""
    try:
        return bool(extended_resources(pod) or pod_claims(pod))
    except FieldError:
        return True


def _manifests(kind: kinds.Kind, items: Iterable[Mapping[str, Any]]) -> list[Manifest]:
    """A list's items with what they do not say of themselves: their kind."""
    return [
        Manifest({"apiVersion": kind.api_version, "kind": kind.name, **item}, _called(kind, item), None)
        for item in items
    ]


def _called(kind: kinds.Kind, obj: Mapping[str, Any]) -> Path:
    metadata = obj.get("metadata") or {}
    return Path(kind.resource, str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))
