"""``gpu-webhooks serve``."""

import asyncio
import signal
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import click
import structlog
import uvloop

from certs import CertificateError, ClientAuthorities, service_names
from gpu import names
from gpu.errors import GPUError
from webhooks.admission import Admission
from webhooks.cli.backing import Backing, embedded, in_cluster, pod_namespace
from webhooks.cli.certificates import certificate_options, from_authority, from_files
from webhooks.cli.common import connected, context_option, kubeconfig_option
from webhooks.clients import Clients
from webhooks.door import MOST_HANDSHAKES
from webhooks.embedded import EmbeddedCatalog
from webhooks.lag import lag_watched
from webhooks.logs import configure_logs
from webhooks.manifests import ManifestError
from webhooks.process import allow_open_files, collect_rarely, settle
from webhooks.server import MOST_PROBES, Listen, Server
from webhooks.settings import MEBIBYTE, Settings
from webhooks.transport import Transport

_log = structlog.get_logger("gpu-webhooks")
_DEFAULTS = Settings()
_LISTEN = Listen()
_PATH = click.Path(path_type=Path)
_PORT = click.IntRange(0, 65535)
_SECONDS = click.FloatRange(min=0)
_FILES_BESIDE_CONNECTIONS = 64
_LEAST_DRAIN = 5.0

_option = partial(click.option, show_default=True, show_envvar=True)


@click.command(context_settings={"auto_envvar_prefix": "GPU_WEBHOOKS"})
@_option("--catalog", type=_PATH, help="Directory of manifests to look things up in, instead of a cluster.")
@kubeconfig_option
@context_option
@_option("--namespace", help="Namespace of the release, where the settings and the CA's Secret are; the pod's own.")
@_option("--service", default=names.WEBHOOKS, help="Service that the API server calls, for the certificate.")
@_option("--certificate-secret", default=names.AUTHORITY, help="Secret that the CA is kept in.")
@certificate_options
@_option("--webhook-configuration", default=names.WEBHOOKS, help="Both configurations to put the caBundle into.")
@_option("--host", default="127.0.0.1", help="Address to listen on.")
@_option("--port", default=9443, type=_PORT, help="Port for admission, over TLS; 0 takes a free one.")
@_option("--plain-port", default=8080, type=_PORT, help="Port for probes and metrics; 0 takes a free one.")
@_option(
    "--tls-name",
    "tls_names",
    multiple=True,
    help="Further name or address in the certificate; with --tls-cert what it must be for.",
)
@_option("--ca-file", type=_PATH, help="With --catalog: write the CA's certificate here, for clients.")
@_option(
    "--client-ca-file",
    type=_PATH,
    help="Authorities (PEM) of the certificates that API servers show; others may not call. Followed when it changes.",
)
@_option(
    "--client-name",
    "client_names",
    multiple=True,
    help="Name in a caller's certificate, common or alternative; without any, all of --client-ca-file may call.",
)
@_option("--kubevirt-namespace", default=_DEFAULTS.kubevirt_namespace, help="Namespace of virt-controller.")
@_option(
    "--platform-group",
    "platform_groups",
    multiple=True,
    default=sorted(_DEFAULTS.platform_groups),
    help="Group of the platform's own callers; replaces the default; in the variable by spaces.",
)
@_option(
    "--platform-user",
    "platform_users",
    multiple=True,
    default=sorted(_DEFAULTS.platform_users),
    help="User that is the platform's own; replaces the default; in the variable by spaces.",
)
@_option(
    "--largest-body",
    default=_DEFAULTS.largest_body // MEBIBYTE,
    type=click.IntRange(min=1),
    help="Largest body that is read, in MiB.",
)
@_option(
    "--most-bodies",
    default=_DEFAULTS.most_body_bytes // MEBIBYTE,
    type=click.IntRange(min=1),
    help="Bodies that are held at once, in MiB; above that the one that takes longest to come in is given up.",
)
@_option(
    "--most-in-flight",
    default=_DEFAULTS.most_in_flight,
    type=click.IntRange(min=1),
    help="Reviews judged at once; above that the answer is 503.",
)
@_option(
    "--most-connections",
    default=_DEFAULTS.most_connections,
    type=click.IntRange(min=1),
    help="Connections on the admission port; above that one without a call makes room.",
)
@_option(
    "--head-timeout",
    default=_DEFAULTS.head_seconds,
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds that the line and headers of a call may take.",
)
@_option(
    "--connection-age",
    default=_LISTEN.connection_age,
    type=_SECONDS,
    help="Seconds, and from half of them on, after which a connection ends with an answer; 0 keeps it.",
)
@_option("--drain-quiet", default=0.5, type=_SECONDS, help="Seconds without a call that end a drain.")
@_option(
    "--drain-least",
    type=_SECONDS,
    help="Seconds that a drain takes at least, until nobody has this replica in its rules; 5, with --catalog 0.",
)
@_option("--drain-timeout", default=20.0, type=_SECONDS, help="Seconds that a drain waits for that at most.")
@_option("--log-format", type=click.Choice(["json", "console"]), default="json", help="How log lines look.")
@_option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    help="The least that is logged; refusals are info.",
)
def serve(catalog: Path | None, **options: Any) -> None:
    """Serve the admission pair over TLS, for a cluster; with --catalog on a directory of manifests, without one.

    On a cluster everything is looked up there and kept up to date; the CA is in a Secret that the replicas share, and
    its certificate is put into the webhook configurations. It is ready once all of that is done.
    """
    if options["most_bodies"] < options["largest_body"]:
        raise click.UsageError(
            f"--most-bodies {options['most_bodies']} is less than --largest-body {options['largest_body']}: "
            "a body of that size could never be read"
        )
    if options["client_names"] and not options["client_ca_file"]:
        raise click.UsageError("--client-name says nothing without --client-ca-file, which verifies the certificates")
    configure_logs(style=options["log_format"], level=options["log_level"])
    settings = Settings(
        kubevirt_namespace=options["kubevirt_namespace"],
        platform_groups=frozenset(options["platform_groups"]),
        platform_users=frozenset(options["platform_users"]),
        largest_body=options["largest_body"] * MEBIBYTE,
        most_body_bytes=options["most_bodies"] * MEBIBYTE,
        most_in_flight=options["most_in_flight"],
        most_connections=options["most_connections"],
        head_seconds=options["head_timeout"],
    )
    listen = Listen(
        host=options["host"],
        port=options["port"],
        plain_port=options["plain_port"],
        connection_age=options["connection_age"],
        quiet=options["drain_quiet"],
        least_drain=least_drain(catalog, options["drain_least"]),
        longest_drain=options["drain_timeout"],
    )
    allow_open_files(settings.most_connections + MOST_HANDSHAKES + MOST_PROBES + _FILES_BESIDE_CONNECTIONS)
    try:
        backing = _backing(catalog, options)
        uvloop.run(_serve(backing, settings, listen, options["client_ca_file"], frozenset(options["client_names"])))
    except (OSError, CertificateError, ManifestError, GPUError) as error:
        raise click.ClickException(str(error)) from None


def least_drain(catalog: Path | None, given: float | None) -> float:
    """Seconds; in a cluster a Service's new endpoints are known everywhere after one or two."""
    if given is not None:
        return given
    return 0.0 if catalog else _LEAST_DRAIN


def _backing(catalog: Path | None, options: Mapping[str, Any]) -> AbstractAsyncContextManager[Backing]:
    if catalog is not None:
        found = EmbeddedCatalog.from_directory(catalog)
        own = ["localhost", "127.0.0.1", "::1", *options["tls_names"]]
        files = from_files(options, names=options["tls_names"])
        return embedded(found, tls_names=list(dict.fromkeys(own)), ca_file=options["ca_file"], files=files)
    namespace = options["namespace"] or pod_namespace()
    if namespace is None:
        raise click.UsageError("name the release's namespace with --namespace, or serve without a cluster by --catalog")
    api = connected(kubeconfig=options["kubeconfig"], context=options["context"])
    # What the API server asks for: a name that is given, or the Service's.
    asked_for = options["tls_names"] or service_names(options["service"], namespace)[:1]
    if (files := from_files(options, names=asked_for)) is not None:
        told = {"certificate": str(options["tls_cert"])}
        return in_cluster(api, namespace=namespace, told=told, certificates=lambda _: files)
    told = {"webhook_configuration": options["webhook_configuration"]}
    certificates = from_authority(options, namespace=namespace)
    return in_cluster(api, namespace=namespace, told=told, certificates=certificates)


async def _serve(
    backing: AbstractAsyncContextManager[Backing],
    settings: Settings,
    listen: Listen,
    client_ca: Path | None,
    client_names: frozenset[str],
) -> None:
    collect_rarely()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with backing as found, AsyncExitStack() as stack:
        admission = Admission.of(catalog=found.catalog, settings=settings)
        metrics = admission.metrics
        for collector in found.collectors:
            metrics.registry.register(collector)
        clients = None
        if client_ca is not None:
            authorities = ClientAuthorities(client_ca, found.serving)
            metrics.registry.register(authorities)
            stack.callback(asyncio.create_task(authorities.keep_fresh()).cancel)
            clients = Clients(client_names)
        await stack.enter_async_context(lag_watched(metrics.loop_lag))
        server = Server(
            Transport(admission),
            tls=found.serving.context,
            listen=listen,
            waits=(found.serving.waiting, *found.waits),
            clients=clients,
        )
        await server.start()
        _log.info(
            "serving",
            url=f"https://{listen.host}:{server.port}",
            plain=f"http://{listen.host}:{server.plain_port}",
            **found.told,
        )
        stack.callback(asyncio.create_task(_settled(found)).cancel)
        await stop.wait()
        await server.stop()


async def _settled(backing: Backing) -> None:
    await backing.filled()
    settle()
