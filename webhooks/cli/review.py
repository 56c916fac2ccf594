"""``gpu-webhooks review``."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from webhooks.cli.common import (
    STATUS,
    UNUSABLE,
    catalog_option,
    files_argument,
    kubevirt_option,
    load_catalog,
    read_files,
    told,
)
from webhooks.cli.output import annotation, annotations, as_json, problem_as_json, shown, summary
from webhooks.logs import only_failures
from webhooks.manifests import ManifestError
from webhooks.outcome import COUNTED, REFUSED, SKIPPED, Outcome
from webhooks.outcome import UNUSABLE as NOT_JUDGED
from webhooks.reviewer import Reviewer
from webhooks.settings import Settings
from webhooks.testing.reviews import User

_NOTHING: Final = "nothing to review: no manifest is of a kind that is judged"


@click.command(epilog=STATUS)
@files_argument
@catalog_option
@click.option(
    "--as",
    "username",
    help="User who asks, other than for a VM's VMI; else nobody of the platform, and for a VMI's pod virt-controller.",
)
@click.option("--as-group", "groups", multiple=True, help="Group of the user who asks; can be given more than once.")
@click.option(
    "--operation",
    type=click.Choice(["CREATE", "UPDATE", "DELETE"]),
    default="CREATE",
    show_default=True,
    help="What is asked; an UPDATE is one of the catalog's object of that name.",
)
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of manifests without one.")
@kubevirt_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    show_default=True,
    help="github: annotations for the log of a workflow.",
)
def review(files: tuple[Path, ...], catalog: Path, output: str, **options: Any) -> None:
    """Tell what the pair would do with manifests, without a cluster.

    FILE is a file, a directory, or - for standard input, with VirtualMachines, replica sets, pools, VMIs, pods,
    GPUDevices or GPUClasses, in any number and order. Each goes through both webhooks as a cluster would send it, a
    VM's template as the VMI that it starts. Shown are the verdict, each reason with field and line, warnings, the
    devices that would be built, and what would be changed.

    Classes, devices, VMIs, instancetypes, claims, quotas and the settings among the files count for the rest. Other
    kinds are passed over, with a line each.
    """
    settings = Settings(kubevirt_namespace=options["kubevirt_namespace"])
    reviewer = Reviewer(
        load_catalog(catalog),
        settings,
        user=_user(options["username"], options["groups"]),
        operation=options["operation"],
        namespace=options["namespace"],
    )
    manifests, problems = read_files(files)
    with only_failures():
        outcomes = asyncio.run(reviewer.review(manifests))
    nothing = not problems and all(outcome.verdict in {SKIPPED, COUNTED} for outcome in outcomes)
    if output == "json":
        _print_json(outcomes, problems)
    elif output == "github":
        _print_annotations(outcomes, problems)
    else:
        _print_text(outcomes, problems, controller="" if options["username"] else settings.virt_controller)
    if nothing:
        click.echo(_NOTHING, err=True)
    raise SystemExit(UNUSABLE if nothing else _status(outcomes, problems))


def _user(username: str | None, groups: Sequence[str]) -> User | None:
    """Who asks, with the groups that the API server itself gives."""
    if not username and not groups:
        return None
    found = username or "kubernetes-admin"
    implied = ["system:authenticated"]
    parts = found.split(":")
    if len(parts) == 4 and parts[:2] == ["system", "serviceaccount"]:
        implied += ["system:serviceaccounts", f"system:serviceaccounts:{parts[2]}"]
    return User(found, tuple(dict.fromkeys([*groups, *implied])))


def _status(outcomes: Sequence[Outcome], problems: Sequence[ManifestError]) -> int:
    verdicts = {outcome.verdict for outcome in outcomes}
    return UNUSABLE if problems or NOT_JUDGED in verdicts else int(REFUSED in verdicts)


def _print_json(outcomes: Sequence[Outcome], problems: Sequence[ManifestError]) -> None:
    """In ASCII, so that no name of a manifest can do a terminal harm."""
    found = {"objects": list(map(as_json, outcomes)), "problems": list(map(problem_as_json, problems))}
    click.echo(json.dumps(found, indent=2))


def _print_annotations(outcomes: Sequence[Outcome], problems: Sequence[ManifestError]) -> None:
    for outcome in outcomes:
        for line in annotations(outcome):
            click.echo(line)
    for problem in problems:
        click.echo(annotation("error", problem.problem, file=problem.file, line=problem.line))
    _print_summary(outcomes)


def _print_text(outcomes: Sequence[Outcome], problems: Sequence[ManifestError], *, controller: str) -> None:
    for outcome in outcomes:
        for line in shown(outcome, controller=controller):
            click.echo(line)
    for problem in problems:
        click.secho(told(problem), fg="red", err=True)
    _print_summary(outcomes)


def _print_summary(outcomes: Sequence[Outcome]) -> None:
    if outcomes:
        click.echo(summary(outcomes))
