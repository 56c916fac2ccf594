"""Label selectors."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

_FORMS: Final = {
    "In": "{key} in ({values})",
    "NotIn": "{key} notin ({values})",
    "Exists": "{key}",
    "DoesNotExist": "!{key}",
}


def selector_text(selector: Mapping[str, Any]) -> str:
    """A LabelSelector as the query of a list has it; an empty one selects everything.

    Raises ValueError for an operator that a LabelSelector does not have.
    """
    return ",".join(_requirements(selector))


def _requirements(selector: Mapping[str, Any]) -> Iterator[str]:
    for key, value in (selector.get("matchLabels") or {}).items():
        yield f"{key}={value}"
    for expression in selector.get("matchExpressions") or ():
        form = _FORMS.get(expression.get("operator"))
        if form is None:
            raise ValueError(f"a label selector has no operator {expression.get('operator')!r}")
        yield form.format(key=expression["key"], values=",".join(expression.get("values") or ()))


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector selects what has these labels; an empty one selects everything.

    Raises ValueError for an operator that a LabelSelector does not have.
    """
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_meets(expression, labels) for expression in selector.get("matchExpressions") or ())


def _meets(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    found = labels.get(expression["key"])
    match expression.get("operator"):
        case "In":
            return found is not None and found in (expression.get("values") or ())
        case "NotIn":
            return found is None or found not in (expression.get("values") or ())
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
    raise ValueError(f"a label selector has no operator {expression.get('operator')!r}")
