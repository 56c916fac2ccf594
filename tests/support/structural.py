"""A short way to write structural schemas (apiextensions.k8s.io/v1), which prune every field they do not name."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

Schema = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
FLAG: Final[Schema] = {"type": "boolean"}
NUMBER: Final[Schema] = {"type": "integer"}
INT32: Final[Schema] = {"type": "integer", "format": "int32"}
INT64: Final[Schema] = {"type": "integer", "format": "int64"}
UINT32: Final[Schema] = {"type": "integer", "format": "int32", "minimum": 0}
TIME: Final[Schema] = {"type": "string", "format": "date-time"}
NULLABLE_TIME: Final[Schema] = {**TIME, "nullable": True}
INT_OR_TEXT: Final[Schema] = {"x-kubernetes-int-or-string": True}
_DECIMAL: Final = r"(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
QUANTITY: Final[Schema] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": f"^{_DECIMAL}(([KMGTPE]i)|[numkMGTPE]|([eE]{_DECIMAL}))?$",
    "x-kubernetes-int-or-string": True,
}
ANYTHING: Final[Schema] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
"""An object that nothing is pruned from."""
EMPTY: Final[Schema] = {"type": "object"}


def fields(*required: str, **properties: Schema) -> Schema:
    """An object of these fields."""
    schema: Schema = {"type": "object", "properties": properties}
    return {**schema, "required": sorted(required)} if required else schema


def items(of: Schema) -> Schema:
    """A list without a list type, which is atomic in a server-side apply."""
    return {"type": "array", "items": of}


def atomic(of: Schema) -> Schema:
    """A list that is declared atomic."""
    return {**items(of), "x-kubernetes-list-type": "atomic"}


def keyed(of: Schema, *keys: str) -> Schema:
    """A list that is a map by these fields."""
    return {**items(of), "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def mapping(of: Schema) -> Schema:
    """An object of any keys."""
    return {"type": "object", "additionalProperties": of}


def crd(
    group: str,
    kind: str,
    versions: Mapping[str, Mapping[str, Schema]],
    *,
    plural: str = "",
    short: Sequence[str] = (),
    cluster: bool = False,
    status: bool = False,
    scale: bool = False,
) -> dict[str, Any]:
    """A CustomResourceDefinition; its first version is the stored one. ``status`` and ``scale`` are subresources."""
    plural = plural or f"{kind.lower()}s"
    subresources: Schema = {"status": {}} if status else {}
    if scale:
        subresources["scale"] = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.labelSelector",
        }
    stored = next(iter(versions))
    served = [
        {
            "name": version,
            "served": True,
            "storage": version == stored,
            "schema": {
                "openAPIV3Schema": fields(apiVersion=TEXT, kind=TEXT, metadata={"type": "object"}, **properties)
            },
            **({"subresources": subresources} if subresources else {}),
        }
        for version, properties in versions.items()
    ]
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster" if cluster else "Namespaced",
            "names": {**names, "shortNames": list(short)} if short else names,
            "versions": served,
        },
    }
