"""The options of ``serve`` that say where its certificate comes from."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from certs import ClusterCertificates, FileCertificates, service_names
from cluster.kinds import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from webhooks.cli.durations import Duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cluster.api import Api

_option = partial(click.option, show_default=True, show_envvar=True)
_PATH: Final = click.Path(path_type=Path)
_OPTIONS: Final = (
    _option("--ca-lifetime", default="365d", type=Duration(), help="How long a CA of its own lives."),
    _option("--leaf-lifetime", default="7d", type=Duration(), help="How long a certificate of that CA lives."),
    _option(
        "--settle-time",
        default="30s",
        type=Duration(),
        help="How long every webhook must trust the next CA before it signs: until every API server knows.",
    ),
    _option(
        "--clock-skew",
        default="1h",
        type=Duration(),
        help="How far other clocks may be behind: a CA is valid from so long before it is made.",
    ),
    _option("--tls-cert", type=_PATH, help="Certificate (PEM, then its chain) to serve instead of one of its own CA."),
    _option("--tls-key", type=_PATH, help="Its key; both are read again when they change."),
)


def certificate_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add them to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def from_files(options: Mapping[str, Any], *, names: Sequence[str]) -> FileCertificates | None:
    """The certificate of the files that are given, which must be for all of ``names``; None where none are."""
    certificate, key = options["tls_cert"], options["tls_key"]
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise click.UsageError("--tls-cert and --tls-key go together: give both or neither")
    return FileCertificates(certificate=certificate, key=key, names=names)


def from_authority(options: Mapping[str, Any], *, namespace: str) -> Callable[[Api], ClusterCertificates]:
    """Certificates of the authority that the replicas share, once there is an API server."""
    configurations = dict.fromkeys((MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS), options["webhook_configuration"])
    return partial(
        ClusterCertificates,
        namespace=namespace,
        names=[*service_names(options["service"], namespace), *options["tls_names"]],
        secret=options["certificate_secret"],
        configurations=configurations,
        ca_lifetime=options["ca_lifetime"],
        leaf_lifetime=options["leaf_lifetime"],
        settle=options["settle_time"],
        skew=options["clock_skew"],
    )
