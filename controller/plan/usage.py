"""Usage records: a Workload for each held device, under one WorkloadMonitor in its namespace."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from cluster import kinds
from controller.plan.draft import Draft
from controller.record import PREFIX, Monitor, Record
from controller.state import State
from controller.writes import Target, Write
from gpu import names

_SELECTOR: Final = {names.USAGE_MONITOR: "true"}
_LABELS: Final = {names.MONITOR: names.USAGE}


def usage_writes(state: State, drafts: Iterable[Draft], writing: Mapping[tuple[str, str], Target]) -> Iterator[Write]:
    """A record appears with the hold and goes with the release; deleted or edited by hand, it is put right.

    ``drafts`` are the devices that keep what they hold, ``writing`` those whose hold is being written. Only where the
    kinds are served; in a namespace that is being deleted nothing new can be made. The record of a device that can't
    be read stays as it is.
    """
    if not {kinds.WORKLOADS, kinds.WORKLOAD_MONITORS} <= state.served:
        return
    wanted = {(draft.device.namespace, PREFIX + draft.device.name): draft for draft in drafts if draft.held}
    records = {(record.namespace, record.name): record for record in state.records}
    unread = {(one.namespace, PREFIX + one.name) for one in state.unread if one.kind == kinds.GPU_DEVICES}
    monitors = {monitor.namespace: monitor for monitor in state.monitors}
    for namespace in sorted({namespace for namespace, _ in wanted}):
        if not _ending(state, namespace):
            yield from _monitor(namespace, monitors.get(namespace))
    for (namespace, name), draft in wanted.items():
        if not _ending(state, namespace):
            after = writing.get((draft.device.namespace, draft.device.name))
            yield from _record(namespace, name, draft, records.get((namespace, name)), after)
    for at, record in records.items():
        if record.ours and at not in wanted and at not in unread and not record.deleting:
            yield Write(
                kind=kinds.WORKLOADS,
                verb="delete",
                namespace=record.namespace,
                name=record.name,
                uid=record.uid,
                after=writing.get((record.namespace, record.name.removeprefix(PREFIX))),
                why="no GPUDevice holds GPUs for it",
            )
    used = {namespace for namespace, _ in (*wanted, *unread)}
    for namespace, monitor in monitors.items():
        if namespace not in used and not monitor.deleting:
            yield Write(
                kind=kinds.WORKLOAD_MONITORS,
                verb="delete",
                namespace=namespace,
                name=names.USAGE,
                uid=monitor.uid,
                why="no GPUDevice holds GPUs in the namespace",
            )


def _ending(state: State, namespace: str) -> bool:
    found = state.namespaces.get(namespace)
    return found is not None and found.deleting


def _monitor(namespace: str, found: Monitor | None) -> Iterator[Write]:
    spec = {"selector": _SELECTOR, "replicas": 0}
    if found is None:
        yield _create(kinds.WORKLOAD_MONITORS, namespace, names.USAGE, {"spec": spec})
    elif not found.deleting and (dict(found.selector) != _SELECTOR or found.replicas != 0 or found.owned):
        strange = dict.fromkeys(found.selector.keys() - _SELECTOR.keys())
        patch = {"spec": {"selector": {**strange, **_SELECTOR}, "replicas": 0}}
        yield _merge(kinds.WORKLOAD_MONITORS, namespace, names.USAGE, {**patch, "metadata": {"ownerReferences": None}})


def _record(namespace: str, name: str, draft: Draft, found: Record | None, after: Target | None) -> Iterator[Write]:
    if found is not None and found.deleting:
        return
    if found is None:
        yield _create(kinds.WORKLOADS, namespace, name, {}, labels=_LABELS, after=after)
    elif not found.ours or found.owned:
        yield _merge(kinds.WORKLOADS, namespace, name, {"metadata": {"labels": _LABELS, "ownerReferences": None}})
    status = _status(draft)
    stored = found and {
        "kind": found.kind, "type": found.type, "resources": dict(found.resources), "operational": found.operational
    }  # fmt: skip
    if stored != status:
        strange = dict.fromkeys(found.resources.keys() - status["resources"].keys()) if found else {}
        patch = {**status, "resources": {**strange, **status["resources"]}}
        yield _merge(kinds.WORKLOADS, namespace, name, {"status": patch}, status=True, after=after)


def _status(draft: Draft) -> dict[str, Any]:
    """The usage that a record tells."""
    of = draft.device.class_name
    resources = {f"{of}.gpuclass.{names.GROUP}/requests.devices": str(draft.device.count)}
    return {"kind": "gpu", "type": of, "resources": resources, "operational": True}


def _create(
    kind: kinds.Kind,
    namespace: str,
    name: str,
    body: Mapping[str, Any],
    *,
    labels: Mapping[str, str] | None = None,
    after: Target | None = None,
) -> Write:
    metadata = {"namespace": namespace, "name": name, **({"labels": dict(labels)} if labels else {})}
    manifest = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **body}
    return Write(
        kind=kind, verb="create", namespace=namespace, name=name, body=manifest, after=after, why="usage is recorded"
    )


def _merge(
    kind: kinds.Kind,
    namespace: str,
    name: str,
    body: Mapping[str, Any],
    *,
    status: bool = False,
    after: Target | None = None,
) -> Write:
    return Write(
        kind=kind,
        verb="status" if status else "merge",
        namespace=namespace,
        name=name,
        body=body,
        after=after,
        why="the usage record is made right",
    )
