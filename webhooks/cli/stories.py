"""The demo's stories: a manifest each, and the verdicts that it should meet."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from gpu import names
from webhooks.testing.reply import Reply
from webhooks.testing.reviews import TENANT, VIRT_CONTROLLER, User, persisted, review
from webhooks.virtcontroller import TEMPLATE_PATHS, vmi_of

PATCHED: Final = "patched"
UNTOUCHED: Final = "let in untouched"
LET_IN: Final = "let in"
REFUSED: Final = "refused"

Post: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[Reply]]
"""Posts a whole AdmissionReview to a path and gives the reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A manifest of the examples, and what each path should say; ``validate`` is None where it is not asked."""

    title: str
    file: str
    mutate: str
    validate: str | None
    user: User = VIRT_CONTROLLER


STORIES: Final = (
    Story(
        title="A VM with a template: the annotation has a device built, two GPUs are added",
        file="vms/by-template.yaml",
        mutate=PATCHED,
        validate=LET_IN,
    ),
    Story(
        title="A VM by reference: the tenant's own device, which is held, decides what it gets",
        file="vms/by-reference.yaml",
        mutate=PATCHED,
        validate=LET_IN,
    ),
    Story(
        title="A VM that asked by raw name and now has a template: rewritten to what is granted",
        file="vms/rewritten.yaml",
        mutate=PATCHED,
        validate=LET_IN,
    ),
    Story(
        title="A replica set with a template: its VMIs have no name yet when they are rewritten",
        file="vms/replicas.yaml",
        mutate=PATCHED,
        validate=LET_IN,
    ),
    Story(
        title="A VM with raw gpus and no device",
        file="vms/raw-gpus.yaml",
        mutate=UNTOUCHED,
        validate=REFUSED,
    ),
    Story(
        title="A VM with raw hostDevices: the GPU is refused, the other device is none of our business",
        file="vms/raw-hostdevices.yaml",
        mutate=UNTOUCHED,
        validate=REFUSED,
    ),
    Story(
        title="A launcher pod whose device is held and bound to its VM: pinned to the device's node",
        file="pods/launcher-held.yaml",
        mutate=PATCHED,
        validate=LET_IN,
    ),
    Story(
        title="A launcher pod whose device still waits for a free GPU",
        file="pods/launcher-waiting.yaml",
        mutate=REFUSED,
        validate=None,
    ),
    Story(
        title="A tenant's own pod with a GPU by raw name",
        file="pods/raw.yaml",
        mutate=UNTOUCHED,
        validate=REFUSED,
        user=TENANT,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One review of a story: what was posted where, and the verdict that was met and should have been."""

    path: str
    subject: str
    reply: Reply
    verdict: str
    expected: str

    @property
    def as_expected(self) -> bool:
        """Whether the verdict is the right one."""
        return self.verdict == self.expected


async def tell(story: Story, manifest: Mapping[str, Any], post: Post) -> AsyncIterator[Step]:
    """Take a manifest through both paths as the cluster would; a VM's own manifest first, for its warnings."""
    obj = dict(manifest)
    if obj["kind"] in TEMPLATE_PATHS:
        reply = await post("validate", review(obj, user=TENANT))
        verdict = LET_IN if reply.allowed else REFUSED
        yield Step(path="validate", subject=_subject(obj), reply=reply, verdict=verdict, expected=LET_IN)
        obj = vmi_of(obj, namespace=obj["metadata"]["namespace"])
    reply = await post("mutate", review(obj, user=story.user))
    verdict = (PATCHED if reply.patch else UNTOUCHED) if reply.allowed else REFUSED
    yield Step(path="mutate", subject=_subject(obj), reply=reply, verdict=verdict, expected=story.mutate)
    if not reply.allowed or story.validate is None:
        return
    final = persisted(reply.applied_to(obj))
    reply = await post("validate", review(final, user=story.user))
    verdict = LET_IN if reply.allowed else REFUSED
    yield Step(path="validate", subject=_subject(final), reply=reply, verdict=verdict, expected=story.validate)


def _subject(obj: Mapping[str, Any]) -> str:
    metadata = obj["metadata"]
    kind = {names.VMI: "VMI", names.VM: "VM", names.REPLICA_SET: "VMIReplicaSet"}.get(obj["kind"], obj["kind"])
    return f"{kind} {metadata.get('name') or metadata['generateName'] + '…'}"
