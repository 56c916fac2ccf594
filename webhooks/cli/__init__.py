"""The command line, where the rooms are put together."""

import click

from webhooks.cli.audit import audit
from webhooks.cli.classes import classes
from webhooks.cli.completion import completion
from webhooks.cli.controller import controller, release_all
from webhooks.cli.demo import demo
from webhooks.cli.devices import devices
from webhooks.cli.doctor import doctor
from webhooks.cli.review import review
from webhooks.cli.serve import serve
from webhooks.cli.settings import settings


@click.group(context_settings={"auto_envvar_prefix": "GPU_WEBHOOKS", "help_option_names": ["-h", "--help"]})
@click.version_option(package_name="gpu-webhooks")
def main() -> None:
    """GPU-aware admission for KubeVirt: tenants order GPUs by reference, never by raw name."""


for command in (serve, controller, review, audit, doctor, classes, devices, settings, release_all, demo, completion):
    main.add_command(command)
