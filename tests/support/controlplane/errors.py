"""What can go wrong with the control plane itself, as sentences for whoever runs the tests."""

from collections.abc import Mapping, Sequence
from typing import Any


class ControlPlaneError(Exception):
    """It can't be built, started or asked."""


class HelmError(ControlPlaneError):
    """helm ended with an error; ``output`` is what it wrote to stderr."""

    def __init__(self, arguments: Sequence[str], output: str) -> None:
        super().__init__(f"helm {' '.join(arguments)}: {output}")
        self.output = output


class APIError(Exception):
    """The API server's refusal: its whole Status, and the warnings that came with it."""

    def __init__(self, status: Mapping[str, Any], warnings: Sequence[str] = ()) -> None:
        self.status = status
        self.warnings = list(warnings)
        self.code = int(status.get("code") or 0)
        self.reason = str(status.get("reason") or "")
        self.message = str(status.get("message") or "")
        super().__init__(f"{self.code} {self.reason}: {self.message}")

    @property
    def causes(self) -> list[dict[str, Any]]:
        """``details.causes`` of the Status."""
        details = self.status.get("details") or {}
        return list(details.get("causes") or ())
