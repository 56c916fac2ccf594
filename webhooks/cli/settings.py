"""``gpu-webhooks settings``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from cluster import kinds
from cluster.errors import Conflict, NotFound
from cluster.release import release_namespace
from gpu import names
from gpu.errors import CatalogError
from gpu.fields import printable
from gpu.gpuclass import OF_DEVICE_CLASSES, GPUClass
from webhooks.cli.common import UnusableError, context_option, kubeconfig_option, release_option, with_cluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cluster.api import Api

_TRIES: Final = 10
_ARGUMENT: Final = "--resource-name="


@click.group()
def settings() -> None:
    """What is published as a GPU's resource name."""


@settings.command()
@click.argument("name")
@kubeconfig_option
@context_option
@release_option
def forget(name: str, **options: Any) -> None:
    """Publish the resource NAME no more: from then on tenants may ask for it as for any other resource.

    The name of a class that is gone stays published, so that its GPUs do not become free for all. This takes it out. It
    is refused while a class or the chart's values give it.
    """

    async def act(api: Api) -> str:
        release = options["release"] or await release_namespace(api)
        if release is None:
            raise CatalogError("no release is found; name its namespace with --namespace")
        given = _given_by(await _givers(api, release), name)
        if given:
            return given
        await _forget(api, release, name)
        return ""

    if given := with_cluster(act, kubeconfig=options["kubeconfig"], context=options["context"]):
        raise UnusableError(printable(f"{name} is given by {given}: it would be published again"))
    click.echo(printable(f"{name} is forgotten"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Givers:
    """All that gives resource names: ``device_classes`` are the guarded ones, with their extended resource or None."""

    classes: Iterable[GPUClass]
    values: frozenset[str]
    device_classes: Mapping[str, str | None] = field(default_factory=dict)


async def _givers(api: Api, release: str) -> _Givers:
    classes = [GPUClass.from_dict(obj) for obj in await api.items(kinds.GPU_CLASSES)]
    deployments = await api.items(kinds.DEPLOYMENTS, namespace=release, labels="app.kubernetes.io/component=controller")
    arguments = [argument for obj in deployments for argument in _arguments(obj)]
    values = {argument.removeprefix(_ARGUMENT) for argument in arguments if argument.startswith(_ARGUMENT)}
    guarded: dict[str, str | None] = {}
    for name in await _listed(api, release, "deviceClassNames"):
        found = await api.find(kinds.DEVICE_CLASSES, name)
        guarded[name] = (found.get("spec") or {}).get("extendedResourceName") if found else None
    return _Givers(classes=classes, values=frozenset(values), device_classes=guarded)


def _arguments(deployment: Mapping[str, Any]) -> Iterator[str]:
    for container in deployment["spec"]["template"]["spec"]["containers"]:
        yield from container.get("args") or ()


async def _listed(api: Api, release: str, key: str) -> list[str]:
    found = await api.find(kinds.CONFIG_MAPS, names.SETTINGS, namespace=release) or {}
    return [part for part in str((found.get("data") or {}).get(key) or "").split(",") if part]


def _given_by(givers: _Givers, name: str) -> str:
    """Who gives a resource name, in words; empty where nobody does."""
    for gpu_class in givers.classes:
        if name in gpu_class.resource_names:
            sells = name == gpu_class.resource_name
            return f"GPUClass {gpu_class.name}, which {'sells' if sells else 'sold'} it"
    if name in givers.values:
        return "the chart's value settings.resourceNames"
    for device_class, extended in givers.device_classes.items():
        if name in (extended, f"{OF_DEVICE_CLASSES}{device_class}"):
            return f"DeviceClass {device_class}, which the chart's value settings.deviceClassNames names"
    return ""


async def _forget(api: Api, release: str, name: str) -> None:
    """Take a name off the Lease, which keeps it, and out of the settings, which publish it. Raises CatalogError."""
    known = await _without(api, kinds.LEASES, names.CONTROLLER, release, name)
    published = await _without(api, kinds.CONFIG_MAPS, names.SETTINGS, release, name)
    if not known and not published:
        raise CatalogError(f"{name} is not published in namespace {release}")


async def _without(api: Api, kind: kinds.Kind, obj: str, namespace: str, name: str) -> bool:
    """Whether a name was in an object's list, where it is no more."""
    for _ in range(_TRIES):
        try:
            found = await api.get(kind, obj, namespace=namespace)
        except NotFound:
            return False
        metadata, data = found["metadata"], found.get("data") or {}
        text = (
            (metadata.get("annotations") or {}).get(names.RESOURCE_NAMES)
            if kind == kinds.LEASES
            else data.get("resourceNames")
        )
        listed = (text or "").split(",")
        if name not in listed:
            return False
        left = ",".join(one for one in listed if one != name)
        version = {"resourceVersion": metadata["resourceVersion"]}
        patch: dict[str, Any] = (
            {"metadata": {**version, "annotations": {names.RESOURCE_NAMES: left}}}
            if kind == kinds.LEASES
            else {"metadata": version, "data": {"resourceNames": left}}
        )
        try:
            await api.merge(kind, obj, patch, namespace=namespace)
        except Conflict:
            # The holder of the Lease renews it every two seconds.
            continue
        return True
    raise CatalogError(f"{kind.name} {namespace}/{obj} is written by others all the time")
