"""The admission pair: a mutating and a validating webhook for GPUs on KubeVirt."""

from webhooks.app import make_app
from webhooks.settings import Settings

__all__ = ["Settings", "make_app"]
