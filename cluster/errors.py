"""What the API server answers when it does not do what was asked."""

from collections.abc import Mapping
from typing import Any, Final

from gpu.errors import CatalogError, GPUError


class NotConfigured(GPUError):
    """Nothing says where the API server is, or what says it can't be read."""


class Unreachable(CatalogError):
    """The API server gave no answer: no connection, none in time, or one that can't be read."""


class Silent(Unreachable):
    """A connection that should have brought something by now did not."""


class Unreadable(Unreachable):
    """A watch said something that makes no sense, or was given up by the API server."""


class ApiError(CatalogError):
    """The API server refused; ``code``, ``reason`` and ``message`` are its Status's, ``status`` is the whole of it.

    ``retry_after`` is how many seconds it wants to be left alone, 0 where it does not say.
    """

    def __init__(self, status: Mapping[str, Any], *, asked: str, retry_after: float = 0) -> None:
        self.status = status
        self.code = int(status.get("code") or 0)
        self.reason = str(status.get("reason") or "")
        self.message = str(status.get("message") or "no message")
        self.retry_after = retry_after
        super().__init__(f"{asked}: {self.message}")


class NotFound(ApiError):
    """There is no such object, or the API server does not serve its kind."""


class Conflict(ApiError):
    """The object is there already, or is not as it was when it was read, or another field manager owns the field."""


class Expired(ApiError):
    """The resource version is too old to go on from (410)."""


_BY_CODE: Final = {404: NotFound, 409: Conflict, 410: Expired}


def api_error(status: Mapping[str, Any], *, asked: str, retry_after: float = 0) -> ApiError:
    """The error of a Status; ``asked`` says what was asked, such as ``get pods``."""
    return _BY_CODE.get(status.get("code") or 0, ApiError)(status, asked=asked, retry_after=retry_after)
