"""``gpu-webhooks classes``."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from gpu.fields import printable
from gpu.gpuclass import GPUClass
from gpu.gpudevice import GPUDevice
from webhooks.cli.common import catalog_option, load_catalog


@click.command()
@catalog_option
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def classes(catalog: Path, output: str) -> None:
    """List the classes that a catalog offers: what a device of each is, where its GPUs are, and how many are ordered.

    HELD and WAITING are GPUs: those of devices that are held, and of devices that are not yet.
    """
    found = load_catalog(catalog)
    devices = found.every_device()
    offered = [_row(found.offer.classes[name], devices) for name in sorted(found.offer.classes)]
    sold = {name for gpu_class in found.offer.classes.values() for name in gpu_class.resource_names}
    others = sorted(found.offer.names - sold)
    if output == "json":
        click.echo(json.dumps({"classes": offered, "otherNames": others}, indent=2))
        return
    if not offered:
        click.echo("the catalog offers no class")
    else:
        for line in _table([_HEADINGS, *map(_cells, offered)]):
            click.echo(line)
    if others:
        click.echo()
        click.echo(printable(f"GPUs by name as well: {', '.join(others)}"))


_HEADINGS = ("NAME", "GPU", "MEMORY", "RESOURCE", "NODES", "PER DEVICE", "PER NAMESPACE", "HELD", "WAITING")


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
        "-" if row["maxPerNamespace"] is None else str(row["maxPerNamespace"]),
        str(row["held"]),
        str(row["waiting"]),
    )


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown]
