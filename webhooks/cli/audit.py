"""``gpu-webhooks audit``."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gpu import names
from gpu.fields import clip, printable
from webhooks.audit import (
    AUDITED,
    DELETED,
    ENDED,
    EXISTING,
    NO_TENANT,
    Finding,
    Report,
    Tenants,
    add_existing,
    split,
    state_of,
)
from webhooks.cli.common import (
    STATUS,
    UNUSABLE,
    context_option,
    kubeconfig_option,
    kubevirt_option,
    load_catalog,
    read_files,
    release_option,
    tenants_option,
    told,
    with_cluster,
)
from webhooks.cli.output import place_as_json, placed, problem_as_json, reason_as_json, sentence
from webhooks.embedded import EmbeddedCatalog
from webhooks.logs import only_failures
from webhooks.manifests import ManifestError
from webhooks.outcome import UNUSABLE as NOT_JUDGED
from webhooks.outcome import Outcome
from webhooks.reviewer import Reviewer
from webhooks.running import CLASSES, OTHERS, Running, running
from webhooks.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cluster.api import Api

_LEFT_OUT: Final = {NO_TENANT: "in namespaces that are no tenants'", ENDED: "finished", DELETED: "being deleted"}
_NOTHING: Final = "nothing to audit: no VM, replica set, pool, VMI or pod is given"


@click.command(epilog=STATUS)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, allow_dash=True), metavar="[FILE...]")
@click.option(
    "--catalog",
    type=click.Path(path_type=Path),
    envvar="GPU_WEBHOOKS_CATALOG",
    show_envvar=True,
    help="Directory of manifests to judge by; needed with FILE, and for a cluster that has no classes yet.",
)
@tenants_option
@kubevirt_option
@kubeconfig_option
@context_option
@release_option
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def audit(files: tuple[Path, ...], catalog: Path | None, output: str, **options: Any) -> None:
    """List what is in a cluster now and would be refused once the pair is switched on, by namespace.

    Without FILE the cluster itself is read, by the kubeconfig's account, which has to be able to list namespaces, VMs,
    replica sets, pools, VMIs, pods and what they refer to everywhere; nothing is written. FILE holds their manifests
    instead, such as kubectl get gives them with -o yaml; a directory and - for standard input will do as well.

    What is listed runs on, but it can't migrate or start again as it is. A VM that is stopped is listed too: it can't
    start again either. A VMI or a pod is listed under the VM that it belongs to, where that would be refused itself.

    Left out are namespaces without the tenants' label, kube-system, KubeVirt's and the release's; pods and VMIs that
    are finished, and what is being deleted. A namespace whose manifest is not given counts as a tenant's.
    """
    if files and catalog is None:
        raise click.UsageError("FILE is judged by a catalog of manifests: name it with --catalog")
    existing = load_catalog(catalog) if catalog else EmbeddedCatalog()
    others = {"kube-system", options["kubevirt_namespace"], options["release"] or ""} - {""}
    plain = 0
    if files:
        manifests, problems = read_files(files)
        if manifests and not any(manifest.obj["kind"] in AUDITED for manifest in manifests):
            problems.append(ManifestError(files[0], _NOTHING))
    else:
        found, problems = _read_cluster(options, judged_by_its_own=catalog is None), []
        manifests, plain = found.manifests, found.plain_pods
        others |= {found.release} - {""}
    kept, out = split(manifests, Tenants.by(options["tenant_label"], others=others))
    problems += add_existing(existing, kept)
    reviewer = Reviewer(existing, Settings(kubevirt_namespace=options["kubevirt_namespace"]))
    with only_failures():
        outcomes = asyncio.run(reviewer.review(manifest for manifest in kept if manifest.obj["kind"] not in EXISTING))
    problems += [problem for outcome in outcomes for problem in _unjudged(outcome)]
    report = Report.of(outcomes, out, more=plain)
    (_print_json if output == "json" else _print_text)(report, problems)
    raise SystemExit(UNUSABLE if problems else int(report.refused > 0))


def _read_cluster(options: Mapping[str, Any], *, judged_by_its_own: bool) -> Running:
    """What runs, and the classes and devices too unless a catalog has been given. Raises UnusableError."""
    kinds = CLASSES + OTHERS if judged_by_its_own else OTHERS

    async def read(api: Api) -> Running:
        return await running(api, kinds, release=options["release"])

    found = with_cluster(read, kubeconfig=options["kubeconfig"], context=options["context"])
    if judged_by_its_own and not any(manifest.obj["kind"] == names.GPU_CLASS for manifest in found.manifests):
        told = (
            "warning: the cluster has no GPUClass; with --catalog DIR a catalog of those to come judges by their names"
        )
        click.secho(told, fg="yellow", err=True)
    return found


def _unjudged(outcome: Outcome) -> list[ManifestError]:
    if outcome.verdict != NOT_JUDGED:
        return []
    return [ManifestError(reason.file, sentence(reason), reason.line) for reason in outcome.reasons]


def _print_json(report: Report, problems: Sequence[ManifestError]) -> None:
    found = {
        "refused": report.refused,
        "objects": report.objects,
        "leftOut": dict(report.left_out),
        "namespaces": [
            {"namespace": namespace, "refused": [_finding_as_json(finding) for finding in findings]}
            for namespace, findings in report.namespaces.items()
        ],
        "problems": [problem_as_json(problem) for problem in problems],
    }
    click.echo(json.dumps(found, indent=2))


def _finding_as_json(finding: Finding) -> dict[str, Any]:
    outcome = finding.outcome
    return {
        **_object_as_json(outcome),
        "code": outcome.code,
        "reasons": [reason_as_json(reason) for reason in outcome.reasons],
        "advice": outcome.advice or None,
        "runsAs": [_object_as_json(run) for run in finding.runs],
    }


def _object_as_json(outcome: Outcome) -> dict[str, Any]:
    return {
        **place_as_json(outcome.manifest.file, outcome.manifest.line()),
        "kind": outcome.kind,
        "name": outcome.name,
        "state": state_of(outcome.manifest.obj) or None,
    }


def _print_text(report: Report, problems: Sequence[ManifestError]) -> None:
    for namespace, findings in report.namespaces.items():
        click.secho(printable(namespace), bold=True)
        for finding in findings:
            outcome = finding.outcome
            click.echo(f"  {placed(outcome.manifest.file, outcome.manifest.line(), _named(outcome))}")
            for reason in outcome.reasons:
                click.echo(f"    {placed(reason.file, reason.line, sentence(reason))}")
            if finding.runs:
                click.echo(f"    runs as {', '.join(map(_named, finding.runs))}")
    for advice in report.advice:
        click.echo(f"to do: {advice}")
    for problem in problems:
        click.secho(told(problem), fg="red", err=True)
    click.echo(_summary(report))


def _named(outcome: Outcome) -> str:
    state = state_of(outcome.manifest.obj)
    shown = f"{clip(outcome.kind)} {clip(outcome.name, 253)}{f' ({clip(state)})' if state else ''}"
    return printable(shown)


def _summary(report: Report) -> str:
    spaces = len(report.namespaces)
    in_namespaces = f" in {spaces} namespace{'s' if spaces > 1 else ''}" if spaces else ""
    lines = [f"{report.refused} of {report.objects} objects{in_namespaces} would be refused"]
    if report.left_out:
        lines.append("left out: " + ", ".join(f"{count} {_LEFT_OUT[why]}" for why, count in report.left_out.items()))
    return "\n".join(lines)
