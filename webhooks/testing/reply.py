"""What the pair answered, and the assertion that applies its patch."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jsonpatch
import orjson


@dataclass(frozen=True, slots=True)
class Reply:
    """An answered AdmissionReview, read."""

    allowed: bool
    code: int
    reason: str
    message: str
    causes: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    patch: tuple[dict[str, Any], ...]

    @classmethod
    def of(cls, body: bytes, *, uid: str) -> "Reply":
        """Read an answer to the request ``uid``; asserts what the API server insists on."""
        answer = orjson.loads(body)
        assert answer["apiVersion"] == "admission.k8s.io/v1", answer
        assert answer["kind"] == "AdmissionReview", answer
        response = answer["response"]
        assert response["uid"] == uid, f"answers {response['uid']}, not {uid}"
        assert ("patch" in response) == (response.get("patchType") == "JSONPatch"), response
        status = response.get("status", {})
        assert response["allowed"] or status.get("code", 0) >= 400, response
        return cls(
            allowed=response["allowed"],
            code=status.get("code", 200),
            reason=status.get("reason", ""),
            message=status.get("message", ""),
            causes=tuple((c["field"], c["message"]) for c in status.get("details", {}).get("causes", [])),
            warnings=tuple(response.get("warnings", [])),
            patch=tuple(orjson.loads(base64.b64decode(response["patch"])) if "patch" in response else []),
        )

    @property
    def fields(self) -> tuple[str, ...]:
        """The field paths that are to blame."""
        return tuple(field for field, _ in self.causes)

    def applied_to(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        """``obj`` with the patch applied; ``obj`` itself stays as it is."""
        patched: dict[str, Any] = jsonpatch.apply_patch(obj, list(self.patch))
        return patched


def assert_patched(reply: Reply, obj: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, Any]:
    """Assert that the reply lets ``obj`` in and that its patch makes ``expected`` of it; returns the patched object."""
    assert reply.allowed, f"refused: {reply.message}"
    patched = reply.applied_to(obj)
    difference = jsonpatch.make_patch(expected, patched).patch
    assert patched == expected, f"the patched object is another by {orjson.dumps(difference).decode()}"
    return patched
