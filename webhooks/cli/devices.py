"""``gpu-webhooks devices``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from cluster import kinds
from gpu.clock import utc_now
from gpu.errors import FieldError
from gpu.fields import printable, time
from gpu.gpudevice import GPUDevice
from webhooks.cli.common import context_option, kubeconfig_option, with_cluster
from webhooks.cli.output import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from cluster.api import Api

_HEADINGS: Final = ("NAMESPACE", "NAME", "CLASS", "GPUS", "PHASE", "NODE", "VM", "SINCE", "WAITS FOR")
_AGES: Final = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


@click.command()
@click.option("-n", "--namespace", "wanted", help="Those of this namespace alone.")
@click.option("--class", "class_name", help="Those of this class alone.")
@click.option("--waiting", is_flag=True, help="Those alone that are not held.")
@kubeconfig_option
@context_option
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def devices(*, wanted: str | None, class_name: str | None, waiting: bool, output: str, **options: Any) -> None:
    """List the devices of a cluster: who holds which GPUs, where and since when, and who waits for what.

    SINCE is the time since it is held, or, where it waits, since it was ordered.
    """

    async def read(api: Api) -> list[dict[str, Any]]:
        return await api.items(kinds.GPU_DEVICES, namespace=wanted or "")

    found = with_cluster(read, kubeconfig=options["kubeconfig"], context=options["context"])
    rows = [
        row
        for row in sorted(_rows(found), key=lambda row: (row["namespace"], row["name"]))
        if class_name in (None, row["className"]) and not (waiting and row["nodeName"])
    ]
    if output == "json":
        click.echo(json.dumps({"devices": rows}, indent=2))
    elif not rows:
        click.echo("no device waits" if waiting else "there is no device")
    else:
        now = utc_now()
        for line in table([_HEADINGS, *(_cells(row, now) for row in rows)]):
            click.echo(line)


def _rows(objects: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Devices for a program; one that can't be read is told of and left out."""
    for obj in objects:
        try:
            yield _row(GPUDevice.from_dict(obj))
        except FieldError as error:
            metadata = obj.get("metadata") or {}
            told = f"left out: {metadata.get('namespace')}/{metadata.get('name')} can't be read: {error}"
            click.secho(printable(told), fg="yellow", err=True)


def _row(device: GPUDevice) -> dict[str, Any]:
    return {
        "namespace": device.namespace,
        "name": device.name,
        "className": device.class_name,
        "count": device.count,
        "phase": device.phase,
        "nodeName": device.node_name if device.held else None,
        "resourceName": device.resource_name if device.held else None,
        "heldAt": device.held_at if device.held else None,
        "orderedAt": device.created.isoformat() if device.created else None,
        "vm": device.binding.name if device.binding else None,
        "migratesTo": device.migration.node_name if device.migration else None,
        "ofTemplate": device.from_template,
        "deleting": device.deleting,
        "waitsFor": None if device.held else device.waiting or "the controller has not looked at it yet",
    }


def _cells(row: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    return (
        row["namespace"],
        row["name"],
        row["className"],
        str(row["count"]),
        f"{row['phase']}, deleted" if row["deleting"] else row["phase"],
        " to ".join(filter(None, (row["nodeName"], row["migratesTo"]))) or "-",
        row["vm"] or "-",
        _age(time(row["heldAt"] or row["orderedAt"]), now),
        row["waitsFor"] or "",
    )


def _age(since: datetime | None, now: datetime) -> str:
    """A time span in its largest unit, as kubectl has it."""
    if since is None:
        return "-"
    seconds = max(0, int((now - since).total_seconds()))
    return next((f"{seconds // size}{unit}" for size, unit in _AGES if seconds >= size), "0s")
