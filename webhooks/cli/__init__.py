"""The command line, where the rooms are put together."""

import click

from webhooks.cli.audit import audit
from webhooks.cli.classes import classes
from webhooks.cli.completion import completion
from webhooks.cli.demo import demo
from webhooks.cli.doctor import doctor
from webhooks.cli.review import review
from webhooks.cli.serve import serve


@click.group(context_settings={"auto_envvar_prefix": "GPU_WEBHOOKS", "help_option_names": ["-h", "--help"]})
@click.version_option(package_name="gpu-webhooks")
def main() -> None:
    """GPU-aware admission for KubeVirt: tenants order GPUs by reference, never by raw name."""


for command in (serve, review, audit, doctor, classes, demo, completion):
    main.add_command(command)
