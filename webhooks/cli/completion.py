"""``gpu-webhooks completion``."""

import click
from click.shell_completion import get_completion_class

_PROGRAM = "gpu-webhooks"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that has a shell complete commands, options, their values and files.

    For bash, in ~/.bashrc: eval "$(gpu-webhooks completion bash)"
    """
    found = get_completion_class(shell)
    if found is None:
        raise click.ClickException(f"click knows no completion for {shell}")
    variable = f"_{_PROGRAM.replace('-', '_').upper()}_COMPLETE"
    click.echo(found(context.find_root().command, {}, _PROGRAM, variable).source())
