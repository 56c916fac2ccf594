"""A catalog that takes its time."""

import asyncio
from typing import Any, Self

from gpu.offer import Offer
from webhooks.testing import InMemoryCatalog


class SlowCatalog(InMemoryCatalog):
    """Its fresh reads of the offer wait until they are let go; ``reached`` is set by the first, ``waiting`` counts.

    It is not filled while it is told so.
    """

    filled = True

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.waiting = 0
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    @classmethod
    def of(cls, catalog: InMemoryCatalog) -> Self:
        """One with what another holds."""
        slow = cls()
        slow._truth = slow._memory = catalog._truth
        return slow

    @property
    def synced(self) -> bool:
        return self.filled

    async def fresh_offer(self) -> Offer:
        self.waiting += 1
        self.reached.set()
        await self.go.wait()
        return await super().fresh_offer()
