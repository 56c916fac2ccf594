"""What the documentation names is there: pages, headings, commands, flags, values, alerts, tests."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import click
import pytest
from chartvalues import CHART, values
from markdown import Page

from webhooks.cli import main

ROOT: Final = Path(__file__).parents[2]
README: Final = ROOT / "README.md"
RUNBOOK: Final = ROOT / "docs" / "runbook.md"
DOCS: Final = sorted((ROOT / "docs").glob("*.md"))
PAGES: Final = [README, CHART / "README.md", *DOCS]
OF_OTHERS: Final = frozenset(
    {
        "--admission-control-config-file",
        "--cascade",
        "--proxy-client-cert-file",
        "--emulated-version",
        "--force-conflicts",
        "--no-hooks",
        "--reset-then-reuse-values",
        "--reset-values",
        "--set",
        "--take-ownership",
    }
)
"""Flags of kube-apiserver and helm that are told of by themselves."""
_FLAG: Final = re.compile(r"--[a-z][a-z-]*")
_ALERT: Final = re.compile(r"- alert: (\w+)")
_TEST: Final = re.compile(r"(?:async )?def (test_\w+)")

every_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


@cache
def page(path: Path) -> Page:
    return Page(path)


@cache
def alerts() -> frozenset[str]:
    found = {name for file in (CHART / "templates").rglob("alerts.yaml") for name in _ALERT.findall(file.read_text())}
    assert len(found) > 20
    return frozenset(found)


@cache
def all_tests() -> frozenset[str]:
    return frozenset(name for file in (ROOT / "tests").rglob("test_*.py") for name in _TEST.findall(file.read_text()))


@every_page
def test_every_relative_link_leads_somewhere(path: Path) -> None:
    assert [link for link in page(path).links if not _resolves(path, link)] == []


def _resolves(path: Path, link: str) -> bool:
    if re.match(r"[a-z]+:", link):
        return True
    name, _, fragment = link.partition("#")
    target = (path.parent / name).resolve() if name else path
    if not target.exists():
        return False
    return not fragment or (target.suffix == ".md" and fragment in page(target).anchors)


@every_page
def test_every_command_and_flag_is_one_that_there_is(path: Path) -> None:
    assert [problem for words in page(path).commands() for problem in _problems(words)] == []


def test_commands_are_found_where_they_are_told_of() -> None:
    found = [words[0] for path in PAGES for words in page(path).commands() if words]
    assert {"serve", "review", "audit", "doctor", "devices", "classes", "settings", "release-all"} <= set(found)
    assert len(found) > 50


def _problems(words: list[str]) -> Iterator[str]:
    """What is wrong with a command line."""
    command: click.Command = main
    told = "gpu-webhooks"
    flags: set[str] = {"--help", "-h"}
    for word in words:
        if word.startswith("-") and word != "-":
            if word.partition("=")[0] not in flags | _flags(command):
                yield f"{told} has no {word}"
        elif isinstance(command, click.Group):
            told = f"{told} {word}"
            if word not in command.commands:
                yield f"there is no {told}"
                return
            command = command.commands[word]


def _flags(command: click.Command) -> set[str]:
    return {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}


def _variables(command: click.Command) -> Iterator[str]:
    prefix = command.context_settings.get("auto_envvar_prefix")
    for parameter in command.params:
        yield str(parameter.envvar or f"{prefix}_{parameter.name}".upper())


def _commands(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        for one in command.commands.values():
            yield from _commands(one)


@every_page
def test_every_flag_and_variable_that_is_told_of_by_itself_is_one_that_there_is(path: Path) -> None:
    known = {flag for command in _commands(main) for flag in _flags(command)}
    variables = {name for command in _commands(main) for name in _variables(command)}
    told = [code.split()[0].partition("=")[0] for code in page(path).inline if code.strip()]
    assert [flag for flag in told if _FLAG.fullmatch(flag) and flag not in known | OF_OTHERS] == []
    assert [name for name in told if re.fullmatch(r"GPU_WEBHOOKS_[A-Z_]+", name) and name not in variables] == []


@every_page
def test_every_value_of_the_chart_that_is_set_is_one_that_there_is(path: Path) -> None:
    known = {value.name for value in values()}
    given = [name for code in page(path).fenced for name in re.findall(r"--set(?:-file|-json)? '?([\w.]+)=", code)]
    assert [name for name in given if name not in known] == []


def test_the_readme_names_every_page() -> None:
    named = {(ROOT / link.partition("#")[0]).resolve() for link in page(README).links}
    assert [path.name for path in DOCS if path not in named] == []


def test_every_alert_has_its_heading_in_the_runbook() -> None:
    told = [heading for heading in page(RUNBOOK).headings if heading.startswith("GPU")]
    assert sorted(told) == sorted(alerts())


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_every_test_and_file_that_a_page_names_is_there(path: Path) -> None:
    named = [code for code in page(path).inline if re.fullmatch(r"test_\w+", code)]
    assert [name for name in named if name not in all_tests()] == []
    files = [code for code in page(path).inline if re.fullmatch(r"tests/[\w/.]+", code)]
    assert [name for name in files if not (ROOT / name).exists()] == []
