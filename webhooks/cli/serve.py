"""``gpu-webhooks serve``."""

import asyncio
import gc
import resource
import signal
from functools import partial
from pathlib import Path
from typing import Any

import click
import structlog
import uvloop

from certs import CertificateError, SelfSigned
from webhooks.admission import Admission
from webhooks.door import MOST_HANDSHAKES
from webhooks.embedded import EmbeddedCatalog
from webhooks.logs import configure_logs
from webhooks.manifests import ManifestError
from webhooks.server import MOST_PROBES, Listen, Server
from webhooks.settings import MEBIBYTE, Settings
from webhooks.transport import Transport

_log = structlog.get_logger("gpu-webhooks")
_DEFAULTS = Settings()
_PATH = click.Path(path_type=Path)
_PORT = click.IntRange(0, 65535)
_SECONDS = click.FloatRange(min=0)
_FILES_BESIDE_CONNECTIONS = 64

_option = partial(click.option, show_default=True, show_envvar=True)


@click.command(context_settings={"auto_envvar_prefix": "GPU_WEBHOOKS"})
@_option("--catalog", type=_PATH, required=True, help="Directory of manifests to look things up in.")
@_option("--host", default="127.0.0.1", help="Address to listen on.")
@_option("--port", default=9443, type=_PORT, help="Port for admission, over TLS; 0 takes a free one.")
@_option("--plain-port", default=8080, type=_PORT, help="Port for probes and metrics; 0 takes a free one.")
@_option("--tls-name", "tls_names", multiple=True, help="Further name or address in the certificate.")
@_option("--ca-file", type=_PATH, help="Write the CA's certificate here, for clients to verify with.")
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
@_option("--drain-quiet", default=0.5, type=_SECONDS, help="Seconds without a call that end a drain.")
@_option("--drain-timeout", default=20.0, type=_SECONDS, help="Seconds that a drain waits for that at most.")
@_option("--log-format", type=click.Choice(["json", "console"]), default="json", help="How log lines look.")
@_option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    help="The least that is logged; refusals are info.",
)
def serve(catalog: Path, **options: Any) -> None:
    """Serve the admission pair over TLS on a catalog of manifests, without a cluster."""
    if options["most_bodies"] < options["largest_body"]:
        raise click.UsageError(
            f"--most-bodies {options['most_bodies']} is less than --largest-body {options['largest_body']}: "
            "a body of that size could never be read"
        )
    configure_logs(style=options["log_format"], level=options["log_level"])
    try:
        found = EmbeddedCatalog.from_directory(catalog)
    except (ManifestError, OSError) as error:
        raise click.ClickException(str(error)) from None
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
        quiet=options["drain_quiet"],
        longest_drain=options["drain_timeout"],
    )
    _allow_open_files(settings.most_connections + MOST_HANDSHAKES + MOST_PROBES + _FILES_BESIDE_CONNECTIONS)
    names = dict.fromkeys(["localhost", "127.0.0.1", "::1", *options["tls_names"]])
    try:
        uvloop.run(_serve(found, settings, listen, names=list(names), ca_file=options["ca_file"]))
    except (OSError, CertificateError) as error:
        raise click.ClickException(str(error)) from None


async def _serve(
    catalog: EmbeddedCatalog, settings: Settings, listen: Listen, *, names: list[str], ca_file: Path | None
) -> None:
    certificates = SelfSigned(names=names)

    def publish(ca_pem: bytes) -> None:
        if ca_file:
            ca_file.write_bytes(ca_pem)

    publish(certificates.ca_pem)
    _settle()
    transport = Transport(Admission.of(catalog=catalog, settings=settings))
    server = Server(transport, tls=certificates.serving.context, listen=listen)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await server.start()
    renewals = asyncio.create_task(certificates.keep_fresh(publish=publish))
    _log.info(
        "serving",
        url=f"https://{listen.host}:{server.port}",
        plain=f"http://{listen.host}:{server.plain_port}",
        ca_file=str(ca_file) if ca_file else None,
        classes=sorted(catalog.offer.classes),
    )
    await stop.wait()
    await server.stop()
    renewals.cancel()


def _allow_open_files(needed: int) -> None:
    """Raise the process's limit of open files to what its connections need, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    allowed = needed if hard == unlimited else min(needed, hard)
    if soft != unlimited and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < needed:
        _log.warning(
            "few open files", allowed=allowed, needed=needed, do="raise ulimit -Hn, or lower --most-connections"
        )


def _settle() -> None:
    """Have the garbage collector pass over what is there for good, and look at the rest less often.

    A review is thousands of objects that are freed without it; by default it would look at them several times a call.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
