"""The warnings of an answer (RFC 7234, 5.5; the API server writes code 299, no agent, and a quoted text)."""

import re
from collections.abc import Iterable

_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')


def warnings_of(headers: Iterable[str]) -> list[str]:
    """The texts of ``Warning`` headers."""
    return [re.sub(r"\\(.)", r"\1", text) for header in headers for text in _WARNING.findall(header)]
