"""A cluster in memory with GPUs, its tenants, KubeVirt in small, and the controller that acts on it."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from memoryapi import MemoryApi, Obj, Refused

from cluster import kinds
from cluster.kinds import Kind
from controller.plan import plan
from controller.seen import Seen
from controller.state import READERS, Config, State
from controller.unread import salvage
from controller.writes import Event, Plan, Write
from gpu.errors import FieldError

RELEASE: Final = "gpu-system"
TENANT: Final = "tenant-a"
H200: Final = "nvidia.com/H200"
TENANTS: Final = {"matchExpressions": [{"key": "namespace.cozystack.io/host", "operator": "Exists"}]}
_READY: Final = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
_FINISHED: Final = frozenset({"Succeeded", "Failed"})


class World:
    """Built by tests; ``run`` lets the controller act until it has nothing to do."""

    def __init__(self, *, served: Sequence[Kind] = (kinds.WORKLOADS, kinds.WORKLOAD_MONITORS), **config: Any) -> None:
        self.api = MemoryApi()
        self.config = Config(**{"namespace": RELEASE, "tenants": TENANTS, "outside": frozenset({RELEASE}), **config})
        self.served = served
        self.seen = Seen()
        self.events: list[Event] = []
        self.last = Plan()
        self.made: list[Write] = []
        self.api.create(kinds.LEASES, {"metadata": {"namespace": RELEASE, "name": self.config.lease}})
        self.namespace(TENANT)

    # what is there

    def namespace(self, name: str, **labels: str) -> Obj:
        tenant = {"namespace.cozystack.io/host": "x"}
        return self.api.create(kinds.NAMESPACES, {"metadata": {"name": name, "labels": labels or tenant}})

    def node(
        self,
        name: str,
        gpus: int = 8,
        *,
        resource: str = H200,
        others: Mapping[str, int] | None = None,
        taints: Sequence[Any] = (),
        **labels: str,
    ) -> Obj:
        amounts = {resource: gpus, **(others or {})}
        allocatable = {"cpu": "64", **{name: str(amount) for name, amount in amounts.items()}}
        status = {"allocatable": allocatable, "conditions": [_READY]}
        obj = {"metadata": {"name": name, "labels": {"gpu": "h200", **labels}}, "spec": {"taints": list(taints)}}
        return self.api.create(kinds.NODES, obj, status=status)

    def ready(self, name: str, *, is_ready: bool) -> None:
        condition = {**_READY, "status": "True" if is_ready else "Unknown"}
        self.api.patch(kinds.NODES, name, {"status": {"conditions": [condition]}}, status=True)

    def cordon(self, name: str, *, cordoned: bool = True) -> None:
        self.api.patch(kinds.NODES, name, {"spec": {"unschedulable": cordoned or None}})

    def gpu_class(self, name: str = "h200", *, resource: str = H200, gpu: str = "h200", **spec: Any) -> Obj:
        source = {"devicePlugin": {"resourceName": resource, "nodeSelector": {"gpu": gpu}}}
        given = {"vendor": "NVIDIA", "model": "H200", "mode": "Passthrough", "memory": "141Gi", "maxCount": 8}
        return self.api.create(
            kinds.GPU_CLASSES, {"metadata": {"name": name}, "spec": {**given, "source": source, **spec}}
        )

    def order(
        self, name: str = "d", count: int = 1, *, of: str = "h200", namespace: str = TENANT, template: bool = False
    ) -> Obj:
        labels = {"gpu.cozystack.io/template-device": "true"} if template else {}
        metadata = {"namespace": namespace, "name": name, "labels": labels}
        return self.api.create(kinds.GPU_DEVICES, {"metadata": metadata, "spec": {"className": of, "count": count}})

    def vmi(
        self,
        name: str = "vm",
        device: str = "d",
        *,
        namespace: str = TENANT,
        owner: str = "",
        owner_kind: str = "VirtualMachine",
        **spec: Any,
    ) -> Obj:
        owners = (
            [{"apiVersion": "kubevirt.io/v1", "kind": owner_kind, "uid": owner, "controller": True}] if owner else []
        )
        metadata = {
            "namespace": namespace,
            "name": name,
            "labels": {"gpu.cozystack.io/device-reference": device},
            "ownerReferences": owners,
            "finalizers": ["foregroundDeletionVirtualMachine"],
        }
        return self.api.create(kinds.VMIS, {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})

    def vmi_gone(self, name: str = "vm", namespace: str = TENANT) -> None:
        """The VMI and nothing else: its pods are its kubelet's business."""
        self.api.remove(kinds.VMIS, name, namespace)

    def pod(
        self,
        name: str,
        node: str = "",
        *,
        gpus: int = 1,
        resource: str = H200,
        vmi: Obj | None = None,
        namespace: str = "",
        pinned: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> Obj:
        """A pod on a node, or without one yet."""
        owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "controller": True}
        owners = [{**owner, "name": vmi["metadata"]["name"], "uid": vmi["metadata"]["uid"]}] if vmi else []
        where = namespace or (vmi["metadata"]["namespace"] if vmi else "platform")
        requests = {resource: str(gpus)} if gpus else {}
        spec: Obj = {"containers": [{"name": "compute", "resources": {"requests": requests, "limits": requests}}]}
        if node:
            spec["nodeName"] = node
        if pinned:
            fields = [{"key": "metadata.name", "operator": "In", "values": [pinned]}]
            terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
            spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        metadata = {"namespace": where, "name": name, "ownerReferences": owners, "labels": dict(labels or {})}
        return self.api.create(
            kinds.PODS, {"metadata": metadata, "spec": spec}, status={"phase": "Running" if node else "Pending"}
        )

    def launch(self, vmi: str = "vm", device: str = "d", *, namespace: str = TENANT, scheduled: bool = True) -> Obj:
        """What virt-controller, the pair and the scheduler do for a VMI whose device is held and bound to it."""
        found, status = self.found(kinds.VMIS, vmi, namespace), self.status(device, namespace)
        assert status["binding"]["uid"] == found["metadata"]["uid"], "the pair refuses the pod"
        node = status["nodeName"]
        count = self.found(kinds.GPU_DEVICES, device, namespace)["spec"]["count"]
        pod = self.pod(
            f"virt-launcher-{vmi}",
            node if scheduled else "",
            gpus=count,
            resource=status["resourceName"],
            vmi=found,
            pinned=node,
        )
        if scheduled:
            self.api.patch(kinds.VMIS, vmi, {"status": {"phase": "Running", "nodeName": node}}, namespace)
        return pod

    def unschedulable(self, pod: str, namespace: str = TENANT) -> None:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        since = {"lastTransitionTime": self.api.stamp, "message": "0/1 nodes"}
        self.api.patch(kinds.PODS, pod, {"status": {"conditions": [{**condition, **since}]}}, namespace, status=True)

    def migration(self, vmi: str = "vm", name: str = "move", *, namespace: str = TENANT, **spec: Any) -> Obj:
        obj = {"metadata": {"namespace": namespace, "name": name}, "spec": {"vmiName": vmi, **spec}}
        return self.api.create(kinds.MIGRATIONS, obj, status={"phase": "Pending"})

    def migration_phase(self, phase: str, name: str = "move", namespace: str = TENANT) -> None:
        self.api.patch(kinds.MIGRATIONS, name, {"status": {"phase": phase}}, namespace, status=True)

    # what is seen

    def found(self, kind: Kind, name: str, namespace: str = "") -> Obj:
        obj = self.api.get(kind, name, namespace)
        assert obj is not None, f"{kind.name} {namespace}/{name} is not there"
        return obj

    def status(self, device: str = "d", namespace: str = TENANT) -> Obj:
        status: Obj = self.found(kinds.GPU_DEVICES, device, namespace).get("status") or {}
        return status

    def reason(self, device: str = "d", namespace: str = TENANT) -> str:
        conditions = {
            condition["type"]: condition for condition in self.status(device, namespace).get("conditions", ())
        }
        return str(conditions["Held"]["reason"]) if "Held" in conditions else ""

    def exists(self, kind: Kind, name: str, namespace: str = TENANT) -> bool:
        return self.api.get(kind, name, namespace) is not None

    def told(self, reason: str) -> list[str]:
        return [f"{event.kind.name} {event.name}: {event.message}" for event in self.events if event.reason == reason]

    # the controller

    def state(self) -> State:
        tables: dict[Kind, list[Any]] = {}
        for kind, read in READERS.items():
            values = (_value(kind, read, obj) for obj in self.api.every(kind))
            tables[kind] = [value for value in values if value is not None]
        served = {*READERS} - {kinds.WORKLOADS, kinds.WORKLOAD_MONITORS} | set(self.served)
        return State.of(tables, config=self.config, now=self.api.now, served=served, seen=self.seen)

    def plan(self) -> Plan:
        state = self.state()
        self.seen = state.seen
        self.last = plan(state)
        self.events += self.last.notices
        return self.last

    def restart(self) -> None:
        """The controller forgets what it saw."""
        self.seen = Seen()

    def run(self, rounds: int = 30) -> None:
        """Plan and write until nothing is to be written."""
        for _ in range(rounds):
            if not self.plan().writes:
                return
            self.apply(self.last.writes)
        left = [(write.verb, write.name, write.body, write.why) for write in self.last.writes]
        raise AssertionError(f"does not come to rest: {left}")

    def apply(self, writes: Iterable[Write]) -> None:
        for _ in self.applying(writes):
            pass

    def applying(self, writes: Iterable[Write]) -> Iterator[Write]:
        """Make the writes one after the other, as the runtime does; gives each that was made."""
        dropped: set[tuple[Kind, str, str]] = set()
        for write in writes:
            if write.target in dropped or write.after in dropped or self._has_pod(write):
                dropped.add(write.target)
                continue
            try:
                self._make(write)
            except Refused:
                dropped.add(write.target)
                continue
            self.made.append(write)
            self.events += write.events
            yield write

    def _has_pod(self, write: Write) -> bool:
        return bool(write.podless) and any(
            owner["uid"] == write.podless
            for pod in self.api.every(kinds.PODS)
            if pod["status"].get("phase") not in _FINISHED and pod["metadata"]["namespace"] == write.namespace
            for owner in pod["metadata"].get("ownerReferences", ())
        )

    def _make(self, write: Write) -> None:
        # What cannot be sent as JSON would be found out only by the API server.
        body = json.loads(json.dumps(write.body))
        preconditions = {"resourceVersion": write.version, "uid": write.uid}
        given = {key: value for key, value in preconditions.items() if value}
        match write.verb:
            case "create":
                self.api.create(write.kind, body)
            case "delete":
                self.api.delete(write.kind, write.name, write.namespace, version=write.version, uid=write.uid)
            case verb:
                body = {**body, "metadata": {**body.get("metadata", {}), **given}}
                self.api.patch(write.kind, write.name, body, write.namespace, status=verb == "status")


def _value(kind: Kind, read: Callable[[Obj], Any], obj: Obj) -> Any:
    try:
        return read(obj)
    except FieldError as error:
        return salvage(kind, obj, str(error))
