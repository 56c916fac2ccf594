"""The pair behind an aiohttp test client."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp.test_utils import TestClient

from webhooks.testing.reply import Reply
from webhooks.testing.reviews import persisted, review


@dataclass(frozen=True, slots=True)
class Admitted:
    """What came of a manifest on both paths; ``validated`` is None where the mutating path refused it."""

    obj: dict[str, Any]
    mutated: Reply
    validated: Reply | None

    @property
    def allowed(self) -> bool:
        """Whether both paths let it in."""
        return self.validated is not None and self.validated.allowed

    @property
    def refusal(self) -> Reply:
        """The reply that refused it."""
        refused = self.validated or self.mutated
        assert not refused.allowed, "it was let in"
        return refused


class Pair:
    """Posts reviews to an application of ``make_app``."""

    def __init__(self, client: TestClient[Any, Any]) -> None:
        self.client = client

    async def mutate(self, body: Mapping[str, Any]) -> Reply:
        """Post an AdmissionReview to the mutating path."""
        return await self._post("/mutate", body)

    async def validate(self, body: Mapping[str, Any]) -> Reply:
        """Post an AdmissionReview to the validating path."""
        return await self._post("/validate", body)

    async def admit(self, manifest: Mapping[str, Any], **options: Any) -> Admitted:
        """Take a manifest through both paths as the API server would; options are those of ``review``."""
        first = review(manifest, **options)
        obj = first["request"]["object"]
        mutated = await self.mutate(first)
        if not mutated.allowed:
            return Admitted(obj, mutated, None)
        final = persisted(mutated.applied_to(obj))
        return Admitted(final, mutated, await self.validate(review(final, **options)))

    async def _post(self, path: str, body: Mapping[str, Any]) -> Reply:
        async with self.client.post(path, json=body) as response:
            assert response.status == 200, await response.text()
            return Reply.of(await response.read(), uid=body["request"]["uid"])
