"""Objects that can't be read for a while, as no API server would store them now; what they mean stays what it was."""

from typing import Any, Final

from gpuworld import World
from memoryapi import Obj

from cluster import kinds
from cluster.kinds import Kind

_HELD: Final = "gpu.cozystack.io/device-held"

SPOILS: Final[dict[Kind, tuple[dict[str, Any], dict[str, Any]]]] = {
    kinds.GPU_DEVICES: ({"status": {"conditions": "none"}}, {"status": {"conditions": None}}),
    kinds.VMIS: ({"metadata": {"annotations": {_HELD: 7}}}, {"metadata": {"annotations": {_HELD: None}}}),
    kinds.PODS: ({"status": {"phase": 7}}, {"status": {"phase": "Running"}}),
    kinds.NODES: ({"spec": {"taints": "none"}}, {"spec": {"taints": []}}),
    kinds.GPU_CLASSES: ({"spec": {"memory": "much"}}, {"spec": {"memory": "141Gi"}}),
}
"""By kind: the patch after which an object can't be read, and the one after which it can."""


def spoil(world: World, kind: Kind, obj: Obj) -> None:
    """Have an object be one that can't be read."""
    _patch(world, kind, obj, SPOILS[kind][0])


def mend(world: World) -> None:
    """Have every object be one that can be read."""
    for kind, (spoiled, mended) in SPOILS.items():
        for obj in world.api.every(kind):
            if _has(obj, spoiled):
                _patch(world, kind, obj, mended)


def is_spoiled(kind: Kind, obj: Obj) -> bool:
    """Whether it can't be read."""
    return _has(obj, SPOILS[kind][0])


def _patch(world: World, kind: Kind, obj: Obj, body: dict[str, Any]) -> None:
    metadata = obj["metadata"]
    of_status = "status" in body and kind != kinds.VMIS
    world.api.patch(kind, metadata["name"], body, metadata.get("namespace", ""), status=of_status)


def _has(obj: Any, part: Any) -> bool:
    if not isinstance(part, dict):
        return bool(obj == part)
    return isinstance(obj, dict) and all(_has(obj.get(key), value) for key, value in part.items())
