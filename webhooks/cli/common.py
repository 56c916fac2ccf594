"""What the commands that read manifests have in common."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from gpu import names
from gpu.errors import GPUError
from gpu.fields import printable
from webhooks.embedded import EmbeddedCatalog
from webhooks.manifests import Manifest, ManifestError, read_all
from webhooks.settings import Settings

if TYPE_CHECKING:
    from cluster.api import Api

STATUS: Final = "Exits with 0 where nothing is refused, 1 where something is, 2 where an input can't be used."
UNUSABLE: Final = 2

Command = Callable[..., Any]
T = TypeVar("T")

kubeconfig_option: Final[Callable[[Command], Command]] = click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    envvar="GPU_WEBHOOKS_KUBECONFIG",
    show_envvar=True,
    help="Kubeconfig; without it the pod's own account, else KUBECONFIG or ~/.kube/config.",
)
context_option: Final[Callable[[Command], Command]] = click.option(
    "--context",
    envvar="GPU_WEBHOOKS_CONTEXT",
    show_envvar=True,
    help="Context of the kubeconfig; without it the current one.",
)
release_option: Final[Callable[[Command], Command]] = click.option(
    "--namespace",
    "release",
    envvar="GPU_WEBHOOKS_NAMESPACE",
    show_envvar=True,
    help="Namespace of the release; without it the one that the webhook configuration names.",
)
configuration_option: Final[Callable[[Command], Command]] = click.option(
    "--webhook-configuration",
    "configuration",
    default=names.WEBHOOKS,
    show_default=True,
    envvar="GPU_WEBHOOKS_WEBHOOK_CONFIGURATION",
    show_envvar=True,
    help="Name of both webhook configurations.",
)
tenants_option: Final[Callable[[Command], Command]] = click.option(
    "--tenant-label",
    default="namespace.cozystack.io/host",
    show_default=True,
    metavar="KEY[=VALUE]",
    help="Label of tenants' namespaces.",
)
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


@asynccontextmanager
async def connected(*, kubeconfig: Path | None, context: str | None) -> AsyncIterator[Api]:
    """An API server, until the end. Raises CatalogError."""
    # Only here: the client library takes two seconds to be imported, which commands without a cluster must not pay.
    from cluster.connect import connect  # noqa: PLC0415

    api = await connect(kubeconfig=kubeconfig, context=context)
    try:
        yield api
    finally:
        await api.close()


def with_cluster(act: Callable[[Api], Awaitable[T]], *, kubeconfig: Path | None, context: str | None) -> T:
    """What ``act`` makes of a cluster. Raises UnusableError where that can't be reached or refuses."""

    async def acted() -> T:
        async with connected(kubeconfig=kubeconfig, context=context) as api:
            return await act(api)

    try:
        return asyncio.run(acted())
    except GPUError as error:
        raise UnusableError(f"the cluster can't be read: {error}") from None
