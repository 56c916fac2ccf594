"""Random histories: whatever happens in whatever order, nothing is over-held, taken back or left behind."""

from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from gpuwatch import Watcher, owner
from gpuworld import H200, World
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from memoryapi import Obj, Refused
from spoiled import SPOILS, mend, spoil

from cluster import kinds

NAMESPACES = ("tenant-a", "tenant-a", "tenant-b")
NODES = {"n1": 2, "n2": 4, "n3": 1}
OTHER = "nvidia.com/H200-new"
DEVICES = ("d1", "d2", "d3")
VMS = ("vm1", "vm2", "vm3")
CLASSES = ("h200", "h200-east")
POD = "virt-launcher-"
ZONES = ("", "", "", "east", "west", "moon")
MAKERS = ("VirtualMachine", "VirtualMachineInstanceReplicaSet", "")
CHANGES = (H200, OTHER, OTHER, OTHER, "east", None, "offer", 1, 3)
NODE_EVENTS = ("cordon", "uncordon", "fail", "recover", "remove", "come back", "lose a GPU", "find it again")

namespaces = st.sampled_from(NAMESPACES)
devices = st.sampled_from(DEVICES)
vms = st.sampled_from(VMS)
nodes = st.sampled_from(sorted(NODES))
classes = st.sampled_from(CLASSES)


class Histories(RuleBasedStateMachine):
    """A cluster, its tenants, KubeVirt in small, and a controller that may be stopped at any write."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(device_class_names=frozenset({"gpu.nvidia.com"}))
        self.watcher = Watcher(self.world)
        self.number = 0
        self.chance = Random(0)  # noqa: S311 - a history, no secret

    @initialize(seed=st.integers(0, 2**16))
    def begin(self, seed: int) -> None:
        self.chance = Random(seed)  # noqa: S311 - a history, no secret
        self.world.namespace("tenant-b")
        self.world.namespace("platform", other="x")
        for name, gpus in NODES.items():
            self.node(name, gpus)
        self.world.gpu_class(maxPerNamespace=3)
        self.world.gpu_class("h200-east")
        for name, count in (("d1", 1), ("d2", 2)):
            self.order("tenant-a", name, "h200", count, template=name == "d2")
            self.start("tenant-a", name.replace("d", "vm"), name, "", "VirtualMachine")

    def node(self, name: str, gpus: int) -> None:
        self.world.node(name, gpus, others={OTHER: 1}, zone="east" if name != "n2" else "west")

    # tenants

    @rule(namespace=namespaces, name=devices, of=classes, count=st.integers(1, 3), template=st.booleans())
    def order(self, namespace: str, name: str, of: str, count: int, *, template: bool) -> None:
        self.attempt(lambda: self.world.order(name, count, of=of, namespace=namespace, template=template))

    @rule(namespace=namespaces, name=devices)
    def give_up_an_order(self, namespace: str, name: str) -> None:
        self.attempt(lambda: self.world.api.delete(kinds.GPU_DEVICES, name, namespace))

    @rule(namespace=namespaces, name=vms, device=devices, zone=st.sampled_from(ZONES), kind=st.sampled_from(MAKERS))
    def start(self, namespace: str, name: str, device: str, zone: str, kind: str) -> None:
        spec: dict[str, Any] = {"nodeSelector": {"zone": zone}} if zone else {}
        owner = f"{namespace}-{kind}-{name}" if kind else ""
        self.attempt(lambda: self.world.vmi(name, device, namespace=namespace, owner=owner, owner_kind=kind, **spec))

    @rule(namespace=namespaces, name=vms)
    def stop(self, namespace: str, name: str) -> None:
        self.attempt(lambda: self.world.api.delete(kinds.VMIS, name, namespace))

    @rule(namespace=namespaces, name=vms)
    def take_the_finalizers_off_a_vmi(self, namespace: str, name: str) -> None:
        self.world.api.remove(kinds.VMIS, name, namespace)

    @rule(namespace=namespaces, name=vms)
    def migrate(self, namespace: str, name: str) -> None:
        self.attempt(lambda: self.world.migration(name, f"move-{name}", namespace=namespace))

    # KubeVirt, the scheduler and kubelets

    @rule(seed=st.integers(0, 2**32))
    def a_busy_hour(self, seed: int) -> None:  # noqa: C901 - a table of what may happen
        """Many things one after the other, as a seed has it: longer histories than the single rules lead to."""
        self.chance = chance = Random(seed)  # noqa: S311 - a history, no secret
        for _ in range(15):
            namespace, name = chance.choice(NAMESPACES), chance.choice(DEVICES)
            vm, node = name.replace("d", "vm"), chance.choice(sorted(NODES))
            match chance.randrange(13):
                case 0 | 1 | 2:
                    self.order(
                        namespace,
                        name,
                        chance.choice(CLASSES),
                        chance.choice((1, 1, 2)),
                        template=chance.random() < 0.5,
                    )
                    self.start(namespace, vm, name, chance.choice(ZONES), chance.choice(MAKERS))
                case 3:
                    self.start(namespace, chance.choice(VMS), name, chance.choice(ZONES), chance.choice(MAKERS))
                case 4:
                    self.give_up_an_order(namespace, name)
                case 5:
                    chance.choice((self.stop, self.take_the_finalizers_off_a_vmi))(namespace, vm)
                case 6 | 7:
                    self.migrate(namespace, vm)
                case 8:
                    self.platform_pods(node, ends=chance.random() < 0.4)
                case 9:
                    self.a_node(node, chance.choice(NODE_EVENTS))
                    self.a_node(chance.choice(sorted(NODES)), chance.choice(("uncordon", "recover", "come back")))
                case 10:
                    self.a_class(
                        chance.choice(CLASSES), chance.choice((H200, OTHER, "east", None, None, "offer", 1, 3))
                    )
                case 11:
                    self.something_cant_be_read(chance.choice(sorted(SPOILS)), chance.randrange(9))
                case _:
                    self.time_passes(chance.choice((1, 16, 61, 121)))
            self.life_goes_on()
        self.everything_comes_back()

    def everything_comes_back(self) -> None:
        """Most of the time, so that there is something to hold in the hour after."""
        mend(self.world)
        for name in CLASSES:
            for what in ("offer", H200, None, 3):
                self.a_class(name, what)
        for node in NODES:
            for event in ("come back", "recover", "uncordon", "find it again"):
                self.a_node(node, event)
            self.platform_pods(node, ends=True)
        for namespace in set(NAMESPACES):
            for name in DEVICES:
                if self.chance.random() < 0.5:
                    self.stop(namespace, name.replace("d", "vm"))
                    self.give_up_an_order(namespace, name)

    @invariant()
    def life_goes_on(self) -> None:
        """After each thing that somebody does, the others act, more or less of them and more or less far."""
        everybody = (
            self.controller_comes_to_rest,
            self.controller_comes_to_rest,
            self.controller_is_killed,
            self.virt_controller,
            self.scheduler,
            self.migrations,
            self.kubelets,
        )
        for act in self.chance.choices(everybody, k=self.chance.choice((0, 2, 6, 12))):
            act()

    def virt_controller(self) -> None:
        """Pods for VMIs whose device is held and bound, as the pair lets them in; the end of VMIs that are deleted."""
        for vmi in self.world.api.every(kinds.VMIS):
            name, namespace = vmi["metadata"]["name"], vmi["metadata"]["namespace"]
            pods = [pod for pod in self.watcher.pods() if owner(pod) == vmi["metadata"]["uid"]]
            if vmi["metadata"].get("deletionTimestamp"):
                for pod in pods:
                    self.world.api.delete(kinds.PODS, pod["metadata"]["name"], namespace)
                if not [pod for pod in self.watcher.pods() if owner(pod) == vmi["metadata"]["uid"]]:
                    self.world.api.patch(kinds.VMIS, name, {"metadata": {"finalizers": None}}, namespace)
            elif not pods and vmi["status"]["phase"] == "Pending" and self.has(vmi):
                device = vmi["metadata"]["labels"]["gpu.cozystack.io/device-reference"]
                self.attempt(lambda vmi=vmi, device=device: self.launch(vmi, device))
            elif not pods and vmi["status"]["phase"] != "Pending":
                self.made_again(vmi)

    def made_again(self, vmi: Obj) -> None:
        """A VMI that lost its pod: its VM or replica set makes another, and one of its own has failed."""
        name, namespace = vmi["metadata"]["name"], vmi["metadata"]["namespace"]
        if not vmi["metadata"]["ownerReferences"]:
            self.world.api.patch(kinds.VMIS, name, {"status": {"phase": "Failed"}}, namespace)
            return
        self.world.api.remove(kinds.VMIS, name, namespace)
        again = {key: vmi["metadata"][key] for key in ("name", "namespace", "labels", "ownerReferences", "finalizers")}
        self.world.api.create(kinds.VMIS, {"metadata": again, "spec": vmi["spec"], "status": {"phase": "Pending"}})

    def launch(self, vmi: Obj, device: str) -> None:
        name, namespace = vmi["metadata"]["name"], vmi["metadata"]["namespace"]
        self.world.launch(name, device, namespace=namespace, scheduled=False)
        self.world.api.patch(kinds.VMIS, name, {"status": {"phase": "Scheduling"}}, namespace)

    def has(self, vmi: Obj) -> bool:
        """Whether the pair lets a pod of it in."""
        device = vmi["metadata"]["labels"]["gpu.cozystack.io/device-reference"]
        found = self.world.api.get(kinds.GPU_DEVICES, device, vmi["metadata"]["namespace"])
        status = (found or {}).get("status") or {}
        bound = (status.get("binding") or {}).get("uid") == vmi["metadata"]["uid"]
        return bool(status.get("nodeName")) and bound and vmi["status"]["phase"] != "Failed"

    def scheduler(self) -> None:
        for pod in self.watcher.pods():
            if pod["spec"].get("nodeName") or "affinity" not in pod["spec"]:
                continue
            affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            node = affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
            name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
            if self.schedulable(pod, node):
                self.world.api.patch(kinds.PODS, name, {"spec": {"nodeName": node}}, namespace)
                if "migration" not in name:
                    body = {"status": {"nodeName": node, "phase": "Running"}}
                    self.attempt(lambda name=name, body=body, namespace=namespace:
                                 self.world.api.patch(kinds.VMIS, name.removeprefix(POD), body, namespace))  # fmt: skip
            elif not pod["status"].get("conditions"):
                self.world.unschedulable(name, namespace)

    def schedulable(self, pod: Obj, node: str) -> bool:
        found = self.world.api.get(kinds.NODES, node)
        if found is None or found["spec"].get("unschedulable") or found["status"]["conditions"][0]["status"] != "True":
            return False
        requests = pod["spec"]["containers"][0]["resources"]["requests"]
        return all(self.unused(node, resource) >= int(count) for resource, count in requests.items())

    def unused(self, node: str, resource: str) -> int:
        found = self.world.found(kinds.NODES, node)
        used = sum(
            int(pod["spec"]["containers"][0]["resources"]["requests"].get(resource, 0))
            for pod in self.watcher.pods()
            if pod["spec"].get("nodeName") == node
        )
        return int(found["status"]["allocatable"].get(resource, 0)) - used

    def kubelets(self) -> None:
        """Pods that are deleted end; so do those whose owner or node is gone."""
        uids = {vmi["metadata"]["uid"] for vmi in self.world.api.every(kinds.VMIS)}
        for pod in self.watcher.pods():
            name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
            at = pod["spec"].get("nodeName")
            lost = (at and self.world.api.get(kinds.NODES, at) is None) or (owner(pod) and owner(pod) not in uids)
            if pod["metadata"].get("deletionTimestamp") or lost:
                self.world.api.remove(kinds.PODS, name, namespace)

    def migrations(self) -> None:
        """One step of each: a target where it is reserved, then the guest there, then the end."""
        for found in self.world.api.every(kinds.MIGRATIONS):
            name, namespace, uid = (found["metadata"][key] for key in ("name", "namespace", "uid"))
            vmi = self.world.api.get(kinds.VMIS, found["spec"]["vmiName"], namespace)
            target = self.world.api.get(kinds.PODS, f"{POD}migration-{uid}", namespace)
            ended = vmi is None or not vmi["status"].get("nodeName") or vmi["metadata"].get("deletionTimestamp")
            if vmi is None or ended or found["status"]["phase"] in {"Succeeded", "Failed"}:
                self.world.api.remove(kinds.MIGRATIONS, name, namespace)
            elif self.chance.random() < 0.2:
                self.migration_ends_badly(found, target)
            elif target is None:
                self.target(vmi, uid)
            elif target["spec"].get("nodeName"):
                source, node = vmi["status"]["nodeName"], target["spec"]["nodeName"]
                self.world.api.patch(kinds.VMIS, vmi["metadata"]["name"], {"status": {"nodeName": node}}, namespace)
                self.world.migration_phase("Succeeded", name, namespace)
                for pod in self.watcher.pods():
                    if owner(pod) == vmi["metadata"]["uid"] and pod["spec"].get("nodeName") == source:
                        self.world.api.delete(kinds.PODS, pod["metadata"]["name"], namespace)

    def migration_ends_badly(self, migration: Obj, target: Obj | None) -> None:
        """It fails, or somebody deletes it; either way KubeVirt deletes the target that there may be."""
        name, namespace = migration["metadata"]["name"], migration["metadata"]["namespace"]
        if self.chance.random() < 0.5:
            self.world.migration_phase("Failed", name, namespace)
        else:
            self.world.api.remove(kinds.MIGRATIONS, name, namespace)
        if target is not None:
            self.attempt(lambda: self.world.api.delete(kinds.PODS, target["metadata"]["name"], namespace))

    def target(self, vmi: Obj, uid: str) -> None:
        namespace = vmi["metadata"]["namespace"]
        device = vmi["metadata"]["labels"]["gpu.cozystack.io/device-reference"]
        found = self.world.api.get(kinds.GPU_DEVICES, device, namespace) or {}
        status = found.get("status") or {}
        reserved = status.get("migration") or {}
        if reserved.get("uid") == uid and (status.get("binding") or {}).get("uid") == vmi["metadata"]["uid"]:
            self.world.pod(
                f"{POD}migration-{uid}",
                gpus=found["spec"]["count"],
                resource=status["resourceName"],
                vmi=vmi,
                pinned=reserved["nodeName"],
                labels={"kubevirt.io/migrationJobUID": uid},
            )

    # the platform

    @rule(node=nodes, ends=st.booleans())
    def platform_pods(self, node: str, *, ends: bool) -> None:
        """One comes to a node, or all of them end."""
        for pod in self.watcher.pods() if ends else ():
            if not owner(pod):
                self.world.api.remove(kinds.PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])
        if not ends and self.world.api.get(kinds.NODES, node) and self.unused(node, H200) > 0:
            self.number += 1
            self.world.pod(f"platform-{self.number}", node)

    @rule(node=nodes, what=st.sampled_from(NODE_EVENTS))
    def a_node(self, node: str, what: str) -> None:
        there = self.world.api.get(kinds.NODES, node) is not None
        match what:
            case "remove":
                self.world.api.remove(kinds.NODES, node)
            case "come back" if not there:
                self.node(node, NODES[node])
            case "cordon" | "uncordon" if there:
                self.world.cordon(node, cordoned=what == "cordon")
            case "fail" | "recover" if there:
                self.world.ready(node, is_ready=what == "recover")
            case "lose a GPU" | "find it again" if there:
                amount = str(NODES[node] - (what == "lose a GPU"))
                self.world.api.patch(kinds.NODES, node, {"status": {"allocatable": {H200: amount}}}, status=True)

    @rule(kind=st.sampled_from(sorted(SPOILS)), number=st.integers(0, 8))
    def something_cant_be_read(self, kind: kinds.Kind, number: int) -> None:
        """Something changes in a way that nobody foresaw; what it means stays what it was."""
        if found := list(self.world.api.every(kind)):
            self.attempt(lambda: spoil(self.world, kind, found[number % len(found)]))

    @rule()
    def everything_can_be_read_again(self) -> None:
        mend(self.world)

    @rule(name=classes, what=st.sampled_from((H200, OTHER, "east", "west", None, "delete", "offer", 1, 3)))
    def a_class(self, name: str, what: str | int | None) -> None:
        """It sells another resource, moves to other nodes, allows another amount, is deleted or offered again."""
        match what:
            case "delete":
                self.attempt(lambda: self.world.api.delete(kinds.GPU_CLASSES, name))
            case "offer":
                self.attempt(lambda: self.world.gpu_class(name))
            case int():
                self.attempt(lambda: self.world.api.patch(kinds.GPU_CLASSES, name, {"spec": {"maxPerNamespace": what}}))
            case _:
                resold = what in {H200, OTHER}
                plugin = {"resourceName": what} if resold else {"nodeSelector": {"zone": what}}
                body = {"spec": {"source": {"devicePlugin": plugin}}}
                self.attempt(lambda: self.world.api.patch(kinds.GPU_CLASSES, name, body))

    @rule()
    def the_settings_are_lost(self) -> None:
        self.world.api.remove(kinds.CONFIG_MAPS, "gpu-settings", "gpu-system")

    @rule(seconds=st.sampled_from((1, 16, 61, 121)))
    def time_passes(self, seconds: int) -> None:
        self.world.api.pass_time(seconds)

    # the controller

    def controller(self) -> None:
        self.acted(None)

    def controller_is_killed(self) -> None:
        self.acted(self.chance.randrange(12))
        self.world.restart()

    @rule(after=st.integers(0, 6), namespace=namespaces, device=devices, vm=vms)
    def controller_is_raced(self, after: int, namespace: str, device: str, vm: str) -> None:
        """A tenant deletes a device and starts a VM between two writes of one plan."""

        def race() -> None:
            self.give_up_an_order(namespace, device)
            self.start(namespace, vm, device, "", "VirtualMachine")

        self.acted(after, race)
        self.controller()

    def acted(self, writes: int | None, then: Any = None) -> None:
        made = self.world.applying(self.world.plan().writes)
        for number, _ in enumerate(self.act(made)):
            if writes is not None and number >= writes:
                break
        if then is not None:
            then()
            for _ in self.act(made):
                pass

    def act(self, made: Iterator[Any]) -> Iterator[Any]:
        while True:
            self.watcher.acting = True
            try:
                write = next(made, None)
            finally:
                self.watcher.acting = False
            if write is None:
                return
            yield write

    def controller_comes_to_rest(self) -> None:
        """Its writes made, another plan has none."""
        self.watcher.acting = True
        try:
            self.world.run()
        finally:
            self.watcher.acting = False
        self.watcher.at_rest()

    @staticmethod
    def attempt(act: Any) -> None:
        with suppress(Refused, AssertionError):
            act()

    def teardown(self) -> None:
        """When all VMs are stopped and all orders and classes deleted, nothing is left but the names."""
        if not self.world.api.objects.get(kinds.NODES):
            return
        mend(self.world)
        self.controller_comes_to_rest()
        names = self.world.found(kinds.CONFIG_MAPS, "gpu-settings", "gpu-system")["data"]["resourceNames"]
        for kind in (kinds.VMIS, kinds.GPU_DEVICES, kinds.GPU_CLASSES):
            for obj in self.world.api.every(kind):
                self.attempt(lambda kind=kind, obj=obj: self.world.api.delete(
                    kind, obj["metadata"]["name"], obj["metadata"].get("namespace", "")))  # fmt: skip
        for _ in range(3):
            self.virt_controller()
            self.kubelets()
            self.controller_comes_to_rest()
        left = [
            (kind.name, obj["metadata"]["name"])
            for kind in (kinds.GPU_DEVICES, kinds.GPU_CLASSES, kinds.WORKLOADS, kinds.WORKLOAD_MONITORS)
            for obj in self.world.api.every(kind)
        ]
        assert not left, f"left behind: {left}"
        assert self.world.found(kinds.CONFIG_MAPS, "gpu-settings", "gpu-system")["data"]["resourceNames"] == names


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=20,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    # What fails is a seed that can be run again; making it smaller takes minutes.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


@pytest.mark.parametrize("seed", range(3))
def test_a_long_history(seed: int) -> None:
    histories = Histories()
    histories.begin(seed)
    for hour in range(25):
        histories.a_busy_hour(1000 * seed + hour)
    assert histories.watcher.holds > 25, "a history in which hardly anything is held shows nothing"
    histories.teardown()
