"""``gpu-webhooks classes``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cluster import kinds
from cluster.release import release_namespace
from gpu import names
from gpu.fields import printable
from gpu.gpuclass import GPUClass
from gpu.gpudevice import GPUDevice
from gpu.offer import GPUSettings, Offer
from webhooks.cli.common import context_option, kubeconfig_option, load_catalog, release_option, with_cluster
from webhooks.cli.output import table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cluster.api import Api


@dataclass(frozen=True, slots=True)
class _Offered:
    """What is offered, and what is ordered of it."""

    offer: Offer
    devices: Iterable[GPUDevice]


@click.command()
@click.option(
    "--catalog",
    type=click.Path(path_type=Path),
    envvar="GPU_WEBHOOKS_CATALOG",
    show_envvar=True,
    help="Directory of manifests to look at instead of a cluster.",
)
@kubeconfig_option
@context_option
@release_option
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def classes(catalog: Path | None, output: str, **options: Any) -> None:
    """List the classes that a cluster or a catalog offers: what a device of each is, where its GPUs are, how many there
    are, and how many are ordered.

    CAPACITY, FREE, HELD and WAITING are GPUs: those on the class's nodes and those free for the next orders, as the
    controller publishes them; those of devices that are held, and of devices that are not yet.
    """
    if catalog:
        read = load_catalog(catalog)
        found = _Offered(read.offer, read.every_device())
    else:

        async def ask(api: Api) -> _Offered:
            return await _offered(api, options["release"])

        found = with_cluster(ask, kubeconfig=options["kubeconfig"], context=options["context"])
    offer, devices = found.offer, list(found.devices)
    offered = [_row(offer.classes[name], devices) for name in sorted(offer.classes)]
    sold = {name for gpu_class in offer.classes.values() for name in gpu_class.resource_names}
    others = sorted(offer.names - sold)
    if output == "json":
        click.echo(json.dumps({"classes": offered, "otherNames": others}, indent=2))
        return
    if not offered:
        click.echo(f"the {'catalog' if catalog else 'cluster'} offers no class")
    else:
        for line in table([_HEADINGS, *map(_cells, offered)]):
            click.echo(line)
    if others:
        click.echo()
        click.echo(printable(f"GPUs by name as well: {', '.join(others)}"))


async def _offered(api: Api, release: str | None) -> _Offered:
    classes = [GPUClass.from_dict(obj) for obj in await api.items(kinds.GPU_CLASSES)]
    devices = [GPUDevice.from_dict(obj) for obj in await api.items(kinds.GPU_DEVICES)]
    where = release or await release_namespace(api)
    settings = (
        await api.items(kinds.CONFIG_MAPS, namespace=where, fields=f"metadata.name={names.SETTINGS}") if where else []
    )
    published = GPUSettings.from_dict(settings[0]) if settings else None
    return _Offered(Offer({found.name: found for found in classes}, published), devices)


_HEADINGS = (
    *("NAME", "GPU", "MEMORY", "RESOURCE", "NODES", "PER DEVICE", "PER NAMESPACE"),
    *("CAPACITY", "FREE", "HELD", "WAITING"),
)


def _row(gpu_class: GPUClass, devices: Iterable[GPUDevice]) -> dict[str, Any]:
    """A class for a program; counts are in GPUs."""
    ordered = [device for device in devices if device.class_name == gpu_class.name]
    return {
        "name": gpu_class.name,
        "vendor": gpu_class.vendor,
        "model": gpu_class.model,
        "mode": gpu_class.mode,
        "profile": gpu_class.profile,
        "memory": gpu_class.memory,
        "maxCount": gpu_class.max_count,
        "maxPerNamespace": gpu_class.max_per_namespace,
        "resourceName": gpu_class.resource_name,
        "nodeSelector": dict(gpu_class.source.node_selector) if gpu_class.source else None,
        "deleting": gpu_class.deleting,
        "capacity": gpu_class.capacity,
        "free": gpu_class.free,
        "held": sum(device.count for device in ordered if device.held),
        "waiting": sum(device.count for device in ordered if not device.held),
    }


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    selector = row["nodeSelector"] or {}
    return (
        f"{row['name']} (being deleted)" if row["deleting"] else row["name"],
        ", ".join(filter(None, (f"{row['vendor']} {row['model']}", row["profile"]))),
        row["memory"],
        row["resourceName"] or "-",
        ",".join(f"{key}={value}" for key, value in selector.items()) or ("any" if row["resourceName"] else "-"),
        f"1 to {row['maxCount']}",
        *("-" if row[key] is None else str(row[key]) for key in ("maxPerNamespace", "capacity", "free")),
        str(row["held"]),
        str(row["waiting"]),
    )
