"""What every decision is made with."""

from collections.abc import Callable
from dataclasses import dataclass

from gpu.catalog import Catalog
from gpu.clock import Clock
from webhooks.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The catalog, the settings, the clock, and what wants to hear of devices that were built.

    ``devices`` is called with ``built``, ``taken over`` or ``refused``.
    """

    catalog: Catalog
    settings: Settings
    clock: Clock
    devices: Callable[[str], None]
