"""``gpu-webhooks controller`` and ``gpu-webhooks release-all``."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import structlog
import uvloop

from gpu import names
from gpu.errors import GPUError
from webhooks.cli.backing import pod_namespace
from webhooks.cli.common import connected, context_option, kubeconfig_option, kubevirt_option, with_cluster
from webhooks.logs import configure_logs
from webhooks.process import collect_rarely

if TYPE_CHECKING:
    from cluster.api import Api
    from controller.leaving import Released
    from controller.state import Config

_log = structlog.get_logger("gpu-webhooks")
_option = partial(click.option, show_default=True, show_envvar=True)
_PORT = click.IntRange(0, 65535)
_SECONDS = click.FloatRange(1, 86400)
_TENANTS = {"matchExpressions": [{"key": "namespace.cozystack.io/host", "operator": "Exists"}]}

_namespace_option = _option("--namespace", help="Namespace of the release, where Lease and settings are; the pod's.")
_account_option = _option(
    "--service-account",
    default=f"{names.WEBHOOKS}-controller",
    help="Service account of the controller; by its uid an installation is told from one that was there before.",
)


class Selector(click.ParamType[Mapping[str, Any]]):
    """A LabelSelector as JSON."""

    name = "JSON"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Mapping[str, Any]:
        """See click.ParamType."""
        from cluster.selectors import selector_text  # noqa: PLC0415 - see with_cluster

        try:
            found = json.loads(value)
            if not isinstance(found, dict) or not selector_text(found):
                self.fail("must be a LabelSelector that is not empty", param, ctx)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.fail(f"is no LabelSelector: {error}", param, ctx)
        return found


@click.command(context_settings={"auto_envvar_prefix": "GPU_WEBHOOKS"})
@kubeconfig_option
@context_option
@_namespace_option
@_account_option
@kubevirt_option
@_option(
    "--tenant-selector",
    type=Selector(),
    default=json.dumps(_TENANTS),
    help="LabelSelector of tenants' namespaces; the release's, KubeVirt's and kube-system are out whatever it says.",
)
@_option("--resource-name", "resource_names", multiple=True, help="Resource name to publish besides the classes'.")
@_option("--device-class-name", "device_class_names", multiple=True, help="DeviceClass (DRA) that stands for GPUs.")
@_option(
    "--template-kept-seconds",
    default=15.0,
    type=_SECONDS,
    help="How long a template's device is kept after its VMI went, for the next VMI of the same VM.",
)
@_option(
    "--template-unclaimed-seconds",
    default=120.0,
    type=_SECONDS,
    help="How long a template's device waits for a VMI that has never come.",
)
@_option(
    "--launcher-patience-seconds",
    default=60.0,
    type=_SECONDS,
    help="How long a launcher may be unschedulable before its device moves to another node that has room.",
)
@_option(
    "--lease-seconds",
    default=15,
    type=click.IntRange(3, 600),
    help="After so long without a renewal another replica leads; a leader that can't renew stops at two thirds of it.",
)
@_option("--host", default="127.0.0.1", help="Address to listen on.")
@_option(
    "--plain-port", default=8080, type=click.IntRange(0, 65535), help="Port for probes and metrics; 0 takes a free one."
)
@_option("--log-format", type=click.Choice(["json", "console"]), default="json", help="How log lines look.")
@_option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    help="The least that is logged; what is written to devices is info.",
)
def controller(**options: Any) -> None:
    """Hold GPUs for orders, bind them to VMs, give them back, and publish what counts as a GPU.

    Of several only the one that has the Lease writes; the others know the cluster and take over within seconds. It is
    ready once everything has been read.
    """
    configure_logs(style=options["log_format"], level=options["log_level"])
    namespace = _release(options["namespace"])
    try:
        uvloop.run(_run(namespace, options))
    except (OSError, GPUError) as error:
        raise click.ClickException(str(error)) from None


def _release(namespace: str | None) -> str:
    found = namespace or pod_namespace()
    if found is None:
        raise click.UsageError("name the release's namespace with --namespace")
    return found


def _config(namespace: str, options: Mapping[str, Any]) -> Config:
    from controller.state import Config  # noqa: PLC0415 - see with_cluster

    return Config(
        namespace=namespace,
        tenants=options["tenant_selector"],
        outside=frozenset({"kube-system", namespace, options["kubevirt_namespace"]}),
        resource_names=frozenset(options["resource_names"]),
        device_class_names=frozenset(options["device_class_names"]),
        template_kept=options["template_kept_seconds"],
        template_unclaimed=options["template_unclaimed_seconds"],
        launcher_patience=options["launcher_patience_seconds"],
    )


async def _run(namespace: str, options: Mapping[str, Any]) -> None:
    from cluster.lease import Term  # noqa: PLC0415 - see with_cluster
    from controller.probes import probes  # noqa: PLC0415
    from controller.running import running  # noqa: PLC0415

    collect_rarely()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with (
        connected(kubeconfig=options["kubeconfig"], context=options["context"]) as api,
        running(
            api,
            _config(namespace, options),
            service_account=options["service_account"],
            term=Term(options["lease_seconds"]),
        ) as found,
        probes(
            found.metrics.registry,
            lambda: found.keeper.missing,
            stuck=found.stuck,
            host=options["host"],
            port=options["plain_port"],
        ) as port,
    ):
        _log.info("controlling", plain=f"http://{options['host']}:{port}", namespace=namespace)
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({stopped, found.loop}, return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            await found.loop
        _log.info("stopping")


@click.command("release-all", context_settings={"auto_envvar_prefix": "GPU_WEBHOOKS"})
@kubeconfig_option
@context_option
@_namespace_option
@_account_option
@click.confirmation_option(prompt="Every device and class loses its protection, and nothing is held any more. Go on?")
def release_all(**options: Any) -> None:
    """Take our finalizers off every device and class, and keep this installation's controllers from acting again.

    The orders stay. From then on namespaces, classes and CRDs can be deleted, and no GPU is held for anybody. The
    chart does this before an uninstall and before gpus.enabled is switched off. It can be repeated.
    """
    from controller.leaving import release_all as leave  # noqa: PLC0415 - see with_cluster
    from controller.running import identity  # noqa: PLC0415

    configure_logs(style="console", level="info")
    namespace = _release(options["namespace"])

    async def act(api: Api) -> Released:
        return await leave(
            api, namespace=namespace, service_account=options["service_account"], me=f"release-all_{identity()}"
        )

    found = with_cluster(act, kubeconfig=options["kubeconfig"], context=options["context"])
    click.echo(f"released {found.devices} devices and {found.classes} classes; the orders stay")
