"""What a plan says is to be written, and what else it found."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from cluster.kinds import Kind

Target: TypeAlias = tuple[Kind, str, str]
"""Kind, namespace (empty for what has none) and name."""

Verb: TypeAlias = Literal["create", "merge", "status", "delete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something to tell about an object, to whoever looks at it."""

    kind: Kind
    namespace: str
    name: str
    uid: str
    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Normal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One write.

    ``merge`` and ``status`` are merge patches (RFC 7386) of the object and of its status subresource; ``body`` is the
    patch, or the object to create. It is made only if the object still has the resource version ``version`` and the uid
    ``uid``, where given (with a patch they are sent in its metadata); and, where ``podless`` is the uid of a VMI, only
    if no unfinished pod of that VMI is found afresh in the same namespace: watches keep no order among each other, so a
    VMI may be known to be gone before its pod is known at all. ``after`` is a write of the same plan without which this
    one is not made. ``events`` are told once it is made; ``waited`` is for how many seconds the order that it holds had
    waited.
    """

    kind: Kind
    verb: Verb
    name: str
    why: str
    namespace: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""
    uid: str = ""
    podless: str = ""
    after: Target | None = None
    events: tuple[Event, ...] = ()
    waited: float | None = None

    @property
    def target(self) -> Target:
        """What is written."""
        return self.kind, self.namespace, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """GPUs of one class: on its nodes, held, free for the next orders, and waited for; whole ones."""

    capacity: int = 0
    held: int = 0
    free: int = 0
    pending: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trespasser:
    """A tenant's unfinished pod that asks for published GPUs beyond what a device covers; ``node`` empty before one."""

    namespace: str
    name: str
    uid: str
    resource_name: str
    amount: int
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be written, in this order; ``again`` is when to plan anew though nothing changes.

    ``notices`` are true as long as plans have them: each is told when it first appears. ``classes`` has the figures by
    class, ``trespassers`` who may win a GPU past its holder.
    """

    writes: tuple[Write, ...] = ()
    again: datetime | None = None
    notices: tuple[Event, ...] = ()
    classes: Mapping[str, Figures] = field(default_factory=dict)
    trespassers: tuple[Trespasser, ...] = ()
