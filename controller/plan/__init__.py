"""What is to be written, from what is known: a pure function."""

from collections.abc import Mapping

from cluster import kinds
from controller import unread
from controller.plan.agenda import Agenda
from controller.plan.bind import bind, rivals
from controller.plan.classes import class_status_write, figures, finalizer_write
from controller.plan.draft import Draft, draft_of
from controller.plan.hold import Holding
from controller.plan.launcher import launcher
from controller.plan.ledger import Ledger
from controller.plan.migrate import follow, give_back, reserve
from controller.plan.move import lost
from controller.plan.places import Places
from controller.plan.release import expire, guard, release
from controller.plan.settings import settings_writes
from controller.plan.status import status_write
from controller.plan.touch import touch
from controller.plan.trespass import notice, trespassers
from controller.plan.usage import usage_writes
from controller.state import State
from controller.writes import Event, Figures, Plan, Target, Write

__all__ = ["Plan", "plan"]


def plan(state: State) -> Plan:
    """Everything that is to be written now; nothing where all is as it should be."""
    agenda = Agenda(state.now)
    published = state.published.listed if state.published else frozenset()
    places = Places(state, Ledger.of(state))
    drafts = [draft_of(device, state) for device in state.devices]
    pods, notices = _place(drafts, state, places, published, agenda)
    found = figures(state, drafts, places)
    writes = [*settings_writes(state), *_classes(state, drafts, found, published)]
    writes += _devices(drafts, state, agenda)
    writes += pods
    strangers = tuple(trespassers(state, published))
    return Plan(
        writes=tuple(writes),
        again=agenda.next,
        notices=(*notices, *map(notice, strangers), *map(unread.notice, state.unread)),
        classes=found,
        trespassers=strangers,
    )


def _place(
    drafts: list[Draft], state: State, places: Places, published: frozenset[str], agenda: Agenda
) -> tuple[list[Write], list[Event]]:
    """Decide for every device where it is held and for whom; the pods to delete, and what to tell."""
    writes: list[Write] = []
    notices: list[Event] = []
    steady = [draft for draft in drafts if draft.device.guarded]
    for draft in steady:
        follow(draft)
        give_back(draft, state)
        if told := reserve(draft, state, places):
            notices.append(told)
        write, told = launcher(draft, state, places, agenda)
        writes += [write] if write else []
        notices += [told] if told else []
        draft.lost = lost(draft, places, published)
    Holding(state, places, published, agenda).hold(steady)
    for draft in steady:
        bind(draft)
        notices += rivals(draft)
    return writes, notices


def _classes(state: State, drafts: list[Draft], found: Mapping[str, Figures], published: frozenset[str]) -> list[Write]:
    held = {draft.device.class_name for draft in drafts if draft.held or draft.device.held}
    of_unread = {one.of_class for one in state.unread if one.kind == kinds.GPU_DEVICES and one.has_gpus}
    known = (state.remembered.known if state.remembered else None) or frozenset()
    writes = (
        finalizer_write(gpu_class, held=name in held or bool(of_unread & {name, None}), known=known)
        or class_status_write(gpu_class, found[name], state, published)
        for name, gpu_class in state.classes.items()
    )
    return [write for write in writes if write]


def _devices(drafts: list[Draft], state: State, agenda: Agenda) -> list[Write]:
    writes: list[Write] = []
    writing: dict[tuple[str, str], Target] = {}
    staying: list[Draft] = []
    for draft in drafts:
        write = guard(draft) or release(draft) or expire(draft, state, agenda)
        if write is None and draft.device.guarded:
            write = status_write(draft, state)
        if write:
            writes.append(write)
            writing[draft.key] = write.target
        if not (draft.device.deleting and not draft.in_use):
            staying.append(draft)
    guarded = (draft for draft in staying if draft.device.guarded)
    writes += [write for draft in guarded if (write := touch(draft, after=writing.get(draft.key)))]
    writes += usage_writes(state, staying, writing)
    return writes
