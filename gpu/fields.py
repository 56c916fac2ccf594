"""Reading of plain dicts, with errors that say where."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar, cast

from gpu.errors import FieldError

T = TypeVar("T")

_NAMES = {dict: "an object", list: "a list", str: "a string", int: "a whole number", bool: "true or false"}


def described(value: object) -> str:
    """What kind of JSON value this is, in words that stand in a sentence."""
    if value is None:
        return "null"
    return _NAMES.get(type(value), "a number" if isinstance(value, float) else type(value).__name__)


def _wrong(path: str, expected: str, value: object) -> FieldError:
    return FieldError(path, f"must be {expected}, not {described(value)}", reason="FieldValueTypeInvalid")


def clip(text: str, longest: int = 63) -> str:
    """``text`` cut to ``longest`` characters, so that a hostile name can't fill a message."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def printable(text: str) -> str:
    """``text`` with a question mark for each character that can't be shown, such as a line's end or an escape."""
    return text if text.isprintable() else "".join(char if char.isprintable() else "?" for char in text)


def child(path: str, key: str) -> str:
    """The field path of a member; keys that hold a dot or a slash stand in brackets, as Kubernetes writes them."""
    if "." in key or "/" in key or not key:
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def optional_object(parent: Mapping[str, Any], key: str, path: str) -> dict[str, Any] | None:
    """The object at ``key``; None where it is missing or null. Raises FieldError for another type."""
    value = parent.get(key)
    if value is None or isinstance(value, dict):
        return value
    raise _wrong(child(path, key), "an object", value)


def required_object(parent: Mapping[str, Any], key: str, path: str) -> dict[str, Any]:
    """The object at ``key``. Raises FieldError where it is missing or of another type."""
    return required(key, path, optional_object(parent, key, path))


def objects(parent: Mapping[str, Any], key: str, path: str) -> Sequence[dict[str, Any]]:
    """The list of objects at ``key``; empty where it is missing or null. Raises FieldError for another shape."""
    value = parent.get(key)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _wrong(child(path, key), "a list", value)
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            raise _wrong(f"{child(path, key)}[{index}]", "an object", item)
    return value


def optional_text(parent: Mapping[str, Any], key: str, path: str) -> str | None:
    """The string at ``key``; None where it is missing or null. Raises FieldError for another type."""
    value = parent.get(key)
    if value is None or isinstance(value, str):
        return value
    raise _wrong(child(path, key), "a string", value)


def required_text(parent: Mapping[str, Any], key: str, path: str) -> str:
    """The string at ``key``. Raises FieldError where it is missing, empty or of another type."""
    value = required(key, path, optional_text(parent, key, path))
    if not value:
        raise FieldError(child(path, key), "must not be empty", reason="FieldValueRequired")
    return value


def optional_whole(parent: Mapping[str, Any], key: str, path: str) -> int | None:
    """The whole number at ``key``; None where it is missing or null. A boolean or a float is none."""
    value = parent.get(key)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise _wrong(child(path, key), "a whole number", value)


def texts(parent: Mapping[str, Any], key: str, path: str) -> tuple[str, ...]:
    """The list of strings at ``key``; empty where it is missing or null. Raises FieldError for another shape."""
    value = parent.get(key)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _wrong(child(path, key), "a list", value)
    for index, item in enumerate(value):
        if not isinstance(item, str):
            raise _wrong(f"{child(path, key)}[{index}]", "a string", item)
    return tuple(value)


def text_map(parent: Mapping[str, Any], key: str, path: str) -> Mapping[str, str]:
    """The string-to-string map at ``key``; empty where it is missing or null. Raises FieldError for another shape."""
    value = optional_object(parent, key, path)
    if value is None:
        return {}
    for name, item in value.items():
        if not isinstance(item, str):
            raise _wrong(child(child(path, key), name), "a string", item)
    return cast("Mapping[str, str]", value)


def time(text: object) -> datetime | None:
    """The time that an RFC 3339 text tells; None for what is none, or has no time zone."""
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None


def required(key: str, path: str, value: T | None) -> T:
    """``value``, where it is there. Raises FieldError where it is None."""
    if value is None:
        raise FieldError(child(path, key), "is required", reason="FieldValueRequired")
    return value
