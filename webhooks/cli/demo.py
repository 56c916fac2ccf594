"""``gpu-webhooks demo``: stories told by a running service."""

import click


@click.command()
def demo() -> None:
    """Start the pair and show what it does to a few virtual machines."""
