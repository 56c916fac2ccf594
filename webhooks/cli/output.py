"""How outcomes of a review are shown."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from gpu.fields import clip, printable
from webhooks.manifests import ManifestError
from webhooks.outcome import ADMITTED, COUNTED, REFUSED, SKIPPED, UNUSABLE, VERDICTS, Outcome, Reason

_COLOURS: Final = {ADMITTED: "green", REFUSED: "red", UNUSABLE: "red", COUNTED: "cyan", SKIPPED: "white"}
_NOTES: Final = {COUNTED: " (looked up for others)", SKIPPED: " (admission does not look at it)"}
_DIFF_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}
_LONGEST_NAME: Final = 253


def subject(outcome: Outcome) -> str:
    """Kind, namespace and name, fit to be shown."""
    name = f"{outcome.namespace}/{outcome.name}" if outcome.namespace else outcome.name
    return printable(f"{clip(outcome.kind)} {clip(name, _LONGEST_NAME) or '(no name)'}")


def placed(file: Path, line: int, text: str) -> str:
    """A text after its place, as compilers print it; alone where it stands in no file."""
    return f"{printable(f'{file}:{line}')}: {text}" if line else text


def place_as_json(file: Path, line: int) -> dict[str, Any]:
    """A place for a program."""
    return {"file": str(file) if line else None, "line": line or None}


def sentence(reason: Reason) -> str:
    """What is wrong, after the field where one is to blame."""
    of = f" of {reason.of}" if reason.of else ""
    return f"{reason.field}{of}: {reason.message}" if reason.field else reason.message


def shown(outcome: Outcome, *, controller: str) -> Iterator[str]:
    """The lines for a person; it is said who asks where that is ``controller``."""
    verdict = click.style(outcome.verdict, fg=_COLOURS[outcome.verdict], bold=True)
    code = f" ({outcome.code})" if outcome.verdict == REFUSED else ""
    asker = ", asked by virt-controller" if outcome.user == controller else ""
    told = f"{subject(outcome)}{asker}: {verdict}{code}{_NOTES.get(outcome.verdict, '')}"
    yield placed(outcome.manifest.file, outcome.manifest.line(), told)
    for reason in outcome.reasons:
        yield f"  {placed(reason.file, reason.line, sentence(reason))}"
    if outcome.advice:
        yield f"  to do: {outcome.advice}"
    for device in outcome.devices:
        yield f"  builds {device}"
    for warning in outcome.warnings:
        yield click.style(f"  {placed(warning.file, warning.line, f'warning: {warning.message}')}", fg="yellow")
    for change in outcome.changes:
        yield f"  changes: {change.message}"
    for line in outcome.diff.split("\n") if outcome.diff else ():
        yield "  | " + click.style(line, fg=_DIFF_COLOURS.get(line[:1]))


def as_json(outcome: Outcome) -> dict[str, Any]:
    """The outcome for a program; lines count from 1, ``code`` is the refusal's."""
    return {
        **place_as_json(outcome.manifest.file, outcome.manifest.line()),
        "kind": outcome.kind,
        "namespace": outcome.namespace or None,
        "name": outcome.name,
        "user": outcome.user or None,
        "verdict": outcome.verdict,
        "code": outcome.code if outcome.verdict == REFUSED else None,
        "reasons": [reason_as_json(reason) for reason in outcome.reasons],
        "advice": outcome.advice or None,
        "warnings": [warning.message for warning in outcome.warnings],
        "changes": [change.message for change in outcome.changes],
        "devices": outcome.devices,
        "diff": outcome.diff or None,
    }


def reason_as_json(reason: Reason) -> dict[str, Any]:
    """A reason for a program; ``of`` is the object that the field is in, where it is not the one that is refused."""
    return {
        **place_as_json(reason.file, reason.line),
        "field": reason.field or None,
        "of": reason.of or None,
        "message": reason.message,
    }


def problem_as_json(problem: ManifestError) -> dict[str, Any]:
    """An input that can't be used, for a program."""
    return {"file": str(problem.file), "line": problem.line, "message": problem.problem}


def annotations(outcome: Outcome) -> Iterator[str]:
    """Workflow commands of GitHub Actions: an error a reason, a warning a warning, a notice a change."""
    title = f"{subject(outcome)} {outcome.verdict}"
    end = f"; to do: {outcome.advice}" if outcome.advice else ""
    noted = [("error", reason, end) for reason in outcome.reasons]
    noted += [("warning", warning, "") for warning in outcome.warnings]
    noted += [("notice", change, "") for change in outcome.changes]
    for level, reason, more in noted:
        yield annotation(level, f"{sentence(reason)}{more}", file=reason.file, line=reason.line, title=title)


def annotation(level: str, message: str, *, file: Path | None = None, **properties: object) -> str:
    """A workflow command of GitHub Actions: ``::error file=a.yaml,line=3::what is wrong``."""
    named = {"file": _from_here(file), **properties} if file else properties
    where = ",".join(f"{key}={_escaped(str(value), ':,')}" for key, value in named.items() if value is not None)
    return f"::{level}{' ' if where else ''}{where}::{_escaped(message)}"


def _from_here(file: Path) -> Path:
    """The path from the working directory, which in a workflow is the repository's own: that is what GitHub links."""
    here = Path.cwd()
    return file.relative_to(here) if file.is_relative_to(here) else file


def _escaped(text: str, more: str = "") -> str:
    shown = "".join(char if char.isprintable() or char in "\r\n" else "?" for char in text)
    for char in f"%\r\n{more}":
        shown = shown.replace(char, f"%{ord(char):02X}")
    return shown


def summary(outcomes: Iterable[Outcome]) -> str:
    """How many met which verdict."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines in which the cells of a column stand below each other."""
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown]
