"""Reading of request bodies, within a size for each and a sum for all."""

import asyncio

from aiohttp import HttpVersion11, hdrs, web


class BodyError(Exception):
    """A body that is not judged: a short ``cause``, the HTTP ``code``, the API's ``reason``, and a sentence."""

    def __init__(self, cause: str, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause
        self.code = code
        self.reason = reason


class Bodies:
    """The bodies that are held now, whole ones and those that still come in; ``largest`` and ``most`` are in bytes.

    Where there is no room for another the one that has been coming in for longest is given up: a body that comes
    without delay never waits for those that don't.
    """

    def __init__(self, *, largest: int, most: int) -> None:
        self.largest = largest
        self._most = most
        self._held = 0
        self._coming: dict[asyncio.Timeout, int] = {}

    def take(self, call: web.BaseRequest) -> bytes | None:
        """The body, which counts until it is released; None where it is not whole yet. Raises BodyError."""
        content = call.content
        if not content.is_eof():
            return None
        body = content.read_nowait()
        if len(body) > self.largest:
            raise self._too_large()
        self._make_room(len(body))
        self.hold(body)
        return body

    def has_room(self, size: int) -> bool:
        """Whether a body of that size can be held, without giving up another."""
        return size <= self.largest and self._held + size <= self._most

    def hold(self, body: bytes) -> None:
        """Count a body until it is released."""
        self._held += len(body)

    def release(self, body: bytes) -> None:
        """A body is done with."""
        self._held -= len(body)

    def give_up_one(self) -> bool:
        """Give up the body that has been coming in for longest; whether there was one."""
        oldest = next(iter(self._coming), None)
        if oldest is None:
            return False
        self._held -= self._coming.pop(oldest)
        if not oldest.expired():
            oldest.reschedule(0.0)
        return True

    async def read(self, call: web.BaseRequest, until: float) -> bytes:
        """The body once it has come in, counted like one that is taken; ``until`` is of the loop's clock.

        Raises BodyError.
        """
        if (call.content_length or 0) > self.largest:
            raise self._too_large()
        limit = asyncio.timeout_at(until)
        try:
            async with limit:
                await _ask_for_it(call)
                return await self._collect(call, limit)
        except TimeoutError:
            raise BodyError("slow body", 408, "Timeout", "the body was not whole in time") from None
        except (OSError, web.RequestPayloadError):
            raise lost() from None
        finally:
            self._held -= self._coming.pop(limit, 0)

    async def _collect(self, call: web.BaseRequest, limit: asyncio.Timeout) -> bytes:
        body = bytearray()
        self._coming[limit] = 0
        if call.transport is None:
            raise lost()
        while chunk := await call.content.readany():
            body += chunk
            if len(body) > self.largest:
                raise self._too_large()
            self._make_room(len(chunk))
            if limit not in self._coming:
                raise TimeoutError
            self._coming[limit] += len(chunk)
            self._held += len(chunk)
        self._held += len(body)
        return bytes(body)

    def _make_room(self, size: int) -> None:
        while self._held + size > self._most:
            if not self.give_up_one():
                raise BodyError("busy", 503, "ServiceUnavailable", "too many large reviews at once; try again")

    def _too_large(self) -> BodyError:
        return BodyError("too large", 413, "RequestEntityTooLarge", f"the body is over {self.largest} bytes")


def lost() -> BodyError:
    """The error of a body that will never be whole."""
    return BodyError("lost", 400, "BadRequest", "the connection was lost before the body was whole")


async def _ask_for_it(call: web.BaseRequest) -> None:
    """Tell a client that waits with its body to send it (RFC 9110, 10.1.1)."""
    if call.version >= HttpVersion11 and call.headers.get(hdrs.EXPECT, "").lower() == "100-continue":
        await call.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        call.writer.output_size = 0
