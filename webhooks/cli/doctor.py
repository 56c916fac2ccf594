"""``gpu-webhooks doctor``."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import click

from gpu.clock import utc_now
from gpu.fields import printable
from webhooks.cli.common import (
    configuration_option,
    context_option,
    kubeconfig_option,
    kubevirt_option,
    release_option,
    with_cluster,
)
from webhooks.doctor import FAILURE, LEVELS, OK, WARNING, Evidence, Finding, diagnose, gather

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.api import Api

_COLOURS: Final = {OK: "green", WARNING: "yellow", FAILURE: "red"}


@click.command(epilog="Exits with 0 where nothing fails, 1 where something does, 2 where the cluster can't be reached.")
@click.option(
    "--tenant-namespace",
    envvar="GPU_WEBHOOKS_TENANT_NAMESPACE",
    show_envvar=True,
    help="Where to ask for the dry runs; without it the first namespace that is a tenant's.",
)
@configuration_option
@kubevirt_option
@kubeconfig_option
@context_option
@release_option
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def doctor(output: str, **options: Any) -> None:
    """Say what stands in the way of an installation on a cluster, and what to do.

    Looked at are the kinds, both webhook configurations and their caBundle, the policies and their bindings, the
    replicas, the settings, the classes beside nodes and KubeVirt's configuration; then one VMI with a device template
    and one with a raw name are asked for in a tenant's namespace as dry runs: nothing is written.
    """

    async def read(api: Api) -> Evidence:
        return await gather(
            api,
            release=options["release"],
            configuration=options["configuration"],
            kubevirt_namespace=options["kubevirt_namespace"],
            probed_in=options["tenant_namespace"],
        )

    evidence = with_cluster(read, kubeconfig=options["kubeconfig"], context=options["context"])
    findings = diagnose(evidence, now=utc_now())
    (_print_json if output == "json" else _print_text)(findings)
    raise SystemExit(int(any(finding.level == FAILURE for finding in findings)))


def _print_json(findings: Sequence[Finding]) -> None:
    found = [
        {"level": one.level, "subject": one.subject, "seen": one.seen, "todo": one.todo or None} for one in findings
    ]
    click.echo(json.dumps({"findings": found}, indent=2))


def _print_text(findings: Sequence[Finding]) -> None:
    for finding in findings:
        level = click.style(finding.level.ljust(7), fg=_COLOURS[finding.level], bold=finding.level != OK)
        click.echo(f"{level}  {printable(finding.subject)}: {printable(finding.seen)}")
        if finding.todo:
            click.echo(f"         to do: {printable(finding.todo)}")
    counts = Counter(finding.level for finding in findings)
    click.echo(", ".join(f"{counts[level]} {level}" for level in LEVELS if counts[level]))
