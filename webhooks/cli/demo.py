"""``gpu-webhooks demo``: stories told by a running service."""

import asyncio
import ssl
import sys
import tempfile
import textwrap
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
import click
import jsonpatch
import orjson

from webhooks.cli.stories import LET_IN, PATCHED, REFUSED, STORIES, UNTOUCHED, Step, Story, tell
from webhooks.manifests import ManifestError, read_manifests
from webhooks.testing.reply import Reply

_COLOURS: Final = {PATCHED: "cyan", UNTOUCHED: "green", LET_IN: "green", REFUSED: "yellow"}
_WIDTH: Final = 112
_START: Final = 20.0
_STOP: Final = 10.0


@click.command()
@click.option(
    "--examples",
    type=click.Path(path_type=Path),
    default=Path("examples"),
    show_default=True,
    help="Directory of the examples: its catalog is served, its manifests are the stories.",
)
def demo(examples: Path) -> None:
    """Start the pair on the examples' catalog and show what it does to a few virtual machines.

    Whole AdmissionReviews are posted over TLS, verified against the service's own CA; each returned patch is applied
    and the result is posted to the validating path. Exits with 1 when a verdict is not the expected one.
    """
    try:
        manifests = [_only(examples / story.file) for story in STORIES]
        wrong = asyncio.run(_demo(examples, manifests))
    except (ManifestError, OSError, aiohttp.ClientError, jsonpatch.JsonPatchException, AssertionError) as error:
        hint = "" if (examples / "catalog").is_dir() else "; give the project's examples folder with --examples"
        raise click.ClickException(f"{error}{hint}") from None
    if wrong:
        raise click.ClickException(f"{wrong} verdicts were not the expected ones")


def _only(file: Path) -> dict[str, Any]:
    for manifest in read_manifests(file):
        return manifest.obj
    raise ManifestError(file, "is empty")


async def _demo(examples: Path, manifests: list[dict[str, Any]]) -> int:
    with tempfile.TemporaryDirectory(prefix="gpu-webhooks-") as folder:
        ca_file = Path(folder) / "ca.crt"
        process = await _start(examples / "catalog", ca_file)
        try:
            urls = await asyncio.wait_for(_urls(process), _START)
            drained = asyncio.create_task(_drain(process))
            wrong = await _tell_all(urls["url"], manifests, ssl.create_default_context(cafile=ca_file))
            process.terminate()
            code = await asyncio.wait_for(process.wait(), _STOP)
            await drained
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    click.echo(f"\nThe service was told to stop and ended with {code}.")
    if not wrong and not code:
        click.secho(f"All {len(STORIES)} stories ended as they should.", fg="green", bold=True)
        click.echo("Go on: .venv/bin/gpu-webhooks serve --catalog examples/catalog; docs/admission.md has the rules.")
    return wrong + (code != 0)


async def _start(catalog: Path, ca_file: Path) -> Process:
    arguments = ["serve", "--catalog", str(catalog), "--ca-file", str(ca_file), "--port", "0", "--plain-port", "0"]
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "webhooks", *arguments, "--log-format", "json", stderr=PIPE
    )


async def _urls(process: Process) -> Mapping[str, str]:
    """The addresses that the service says it serves on."""
    assert process.stderr is not None  # noqa: S101 - it was asked for
    said = []
    async for line in process.stderr:
        said.append(line.decode(errors="replace").rstrip())
        if line.startswith(b"{") and (event := orjson.loads(line)).get("event") == "serving":
            return {key: str(event[key]) for key in ("url", "plain")}
    raise click.ClickException("\n".join(["the service did not start:", *said]))


async def _drain(process: Process) -> None:
    """Read what the service logs, so that it never waits for a reader."""
    assert process.stderr is not None  # noqa: S101 - it was asked for
    while await process.stderr.read(65536):
        pass


async def _tell_all(url: str, manifests: list[dict[str, Any]], tls: ssl.SSLContext) -> int:
    click.secho("gpu-webhooks demo", bold=True)
    click.echo(f"The pair serves {url} on examples/catalog; its certificate was verified against its own CA.")
    wrong = 0
    async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(ssl=tls)) as session:

        async def post(path: str, body: Mapping[str, Any]) -> Reply:
            headers = {"Content-Type": "application/json"}
            async with session.post(f"/{path}?timeout=5s", data=orjson.dumps(body), headers=headers) as response:
                return Reply.of(await response.read(), uid=body["request"]["uid"])

        for number, (story, manifest) in enumerate(zip(STORIES, manifests, strict=True), 1):
            _show_title(number, story)
            async for step in tell(story, manifest, post):
                _show(step)
                wrong += not step.as_expected
    return wrong


def _show_title(number: int, story: Story) -> None:
    click.echo()
    click.secho(f"{number}. {story.title}", bold=True)
    click.secho(f"   examples/{story.file}", dim=True)


def _show(step: Step) -> None:
    verdict = click.style(step.verdict, fg=_COLOURS[step.verdict], bold=True)
    click.echo(f"   {'/' + step.path:<10}{step.subject:<34}{verdict}")
    for operation in step.reply.patch:
        click.secho(f"      {operation['op']:<7}{operation['path']}", fg="cyan")
        if "value" in operation:
            click.secho(f"             {orjson.dumps(operation['value']).decode()}", fg="cyan")
    for warning in step.reply.warnings:
        _show_line(f"warning: {warning}", dim=True)
    if not step.reply.allowed:
        _show_line(f"{step.reply.code} {step.reply.reason}: {step.reply.message}", fg="yellow")
    if not step.as_expected:
        _show_line(f"NOT AS EXPECTED: this should have been {step.expected!r}", fg="red", bold=True)


def _show_line(text: str, **style: Any) -> None:
    for line in textwrap.wrap(text, _WIDTH, subsequent_indent="    ", break_on_hyphens=False):
        click.secho(f"      {line}", **style)
