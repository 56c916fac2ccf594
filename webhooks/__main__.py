"""``python -m webhooks`` is ``gpu-webhooks``."""

from webhooks.cli import main

main(prog_name="gpu-webhooks")
