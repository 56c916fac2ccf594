"""What the commands that read manifests have in common."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import click

from gpu.fields import printable
from webhooks.embedded import EmbeddedCatalog
from webhooks.manifests import Manifest, ManifestError, read_all
from webhooks.settings import Settings

STATUS: Final = "Exits with 0 where nothing is refused, 1 where something is, 2 where an input can't be used."
UNUSABLE: Final = 2

Command = Callable[..., Any]

files_argument: Final[Callable[[Command], Command]] = click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True), metavar="FILE..."
)
catalog_option: Final[Callable[[Command], Command]] = click.option(
    "--catalog",
    type=click.Path(path_type=Path),
    required=True,
    envvar="GPU_WEBHOOKS_CATALOG",
    show_envvar=True,
    help="Directory of manifests to look things up in.",
)
kubevirt_option: Final[Callable[[Command], Command]] = click.option(
    "--kubevirt-namespace",
    default=Settings().kubevirt_namespace,
    show_default=True,
    envvar="GPU_WEBHOOKS_KUBEVIRT_NAMESPACE",
    show_envvar=True,
    help="Namespace of virt-controller.",
)


class UnusableError(click.ClickException):
    """An error that ends a command with 2."""

    exit_code = UNUSABLE


def load_catalog(directory: Path) -> EmbeddedCatalog:
    """The catalog of a directory. Raises UnusableError."""
    try:
        return EmbeddedCatalog.from_directory(directory)
    except ManifestError as error:
        raise UnusableError(f"the catalog can't be used: {error}") from None


def read_files(paths: Iterable[Path]) -> tuple[list[Manifest], list[ManifestError]]:
    """The manifests of files and directories, and an error for each input that can't be used."""
    found = list(read_all(paths))
    return (
        [part for part in found if isinstance(part, Manifest)],
        [part for part in found if isinstance(part, ManifestError)],
    )


def told(error: ManifestError) -> str:
    """An error as compilers print theirs: file, line, what is wrong."""
    at = f":{error.line}" if error.line else ""
    return printable(f"{error.file}{at}: {error.problem}")
