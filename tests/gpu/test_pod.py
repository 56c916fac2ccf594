"""Where a pod asks for GPUs, which node it is pinned to, and what the catalog keeps of it."""

from copy import deepcopy
from typing import Any, TypeAlias

import jsonpatch
import pytest

from gpu.errors import FieldError
from gpu.pod import (
    Pod,
    PodClaim,
    PodRequest,
    extended_resources,
    is_pinned,
    owning_vmi,
    pin,
    pod_claims,
    pod_requests,
    required_terms,
)

Obj: TypeAlias = dict[str, Any]

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
L40S = "nvidia.com/L40S-24Q"
QAT = "intel.com/qat"
BY_DEVICE_CLASS = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
NODE = "gpu-node-2"
OWNER: Obj = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "uid": "u-1", "controller": True}


def limits(amounts: Obj) -> Obj:
    return {"resources": {"limits": amounts}}


def on(*nodes: str, operator: str = "In", key: str = "metadata.name") -> Obj:
    return {"key": key, "operator": operator, "values": list(nodes)}


def with_terms(*terms: Obj) -> Obj:
    return {"spec": {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}}


class TestRequests:
    def test_each_place_that_has_amounts_of_its_own_counts_once(self) -> None:
        spec = {
            "containers": [limits({L40S: "1"}), {}, limits({L40S: "2", "cpu": "4"})],
            "initContainers": [limits({L40S: "3"})],
            "ephemeralContainers": [limits({QAT: "4"})],
            **limits({L40S: "5"}),
            "overhead": {L40S: "6"},
        }

        found = pod_requests({"spec": spec})

        assert set(found) == {
            PodRequest(f"spec.containers[0].resources.limits[{L40S}]", L40S, 1),
            PodRequest(f"spec.containers[2].resources.limits[{L40S}]", L40S, 2),
            PodRequest(f"spec.initContainers[0].resources.limits[{L40S}]", L40S, 3),
            PodRequest(f"spec.ephemeralContainers[0].resources.limits[{QAT}]", QAT, 4),
            PodRequest(f"spec.resources.limits[{L40S}]", L40S, 5),
            PodRequest(f"spec.overhead[{L40S}]", L40S, 6),
        }
        assert len(found) == 6

    @pytest.mark.parametrize(
        ("requests", "limits", "path", "amount"),
        [
            ("1", "2", "limits", 2),
            ("2", "1", "requests", 2),
            ("2", "2", "limits", 2),
            (None, "2", "limits", 2),
            ("2", None, "requests", 2),
            ("0", None, "requests", 0),
        ],
    )
    def test_of_a_request_and_a_limit_the_larger_counts(
        self, requests: str | None, limits: str | None, path: str, amount: int
    ) -> None:
        sides = {"requests": requests, "limits": limits}
        resources = {side: {L40S: value} for side, value in sides.items() if value is not None}

        found = pod_requests({"spec": {"containers": [{"resources": resources}]}})

        assert found == [PodRequest(f"spec.containers[0].resources.{path}[{L40S}]", L40S, amount)]

    def test_only_wanted_names_are_read(self) -> None:
        pod = {"spec": {"containers": [limits({L40S: "1", QAT: "a few"})]}}

        found = pod_requests(pod, {L40S}.__contains__)

        assert [request.resource_name for request in found] == [L40S]

    @pytest.mark.parametrize("amount", ["0.5", -1, "x", None, True, []], ids=repr)
    def test_an_amount_that_is_no_whole_number_is_malformed(self, amount: object) -> None:
        with pytest.raises(FieldError) as caught:
            pod_requests({"spec": {"initContainers": [limits({L40S: amount})]}})

        assert caught.value.path == f"spec.initContainers[0].resources.limits[{L40S}]"

    @pytest.mark.parametrize("pod", [{}, {"spec": None}, {"spec": {"containers": None, "resources": None}}], ids=str)
    def test_a_pod_may_lack_everything(self, pod: Obj) -> None:
        found = (pod_requests(pod), extended_resources(pod), pod_claims(pod), required_terms(pod))

        assert found == ([], set(), [], ())

    def test_extended_resources_are_those_with_a_domain_of_somebody_elses(self) -> None:
        amounts = {
            L40S: "1",
            QAT: "garbage",
            BY_DEVICE_CLASS: "0",
            "cpu": "1",
            "hugepages-2Mi": "1Mi",
            "kubernetes.io/batch": "1",
            "node.kubernetes.io/fpga": "1",
            "devices.kubevirt.io/kvm": "1",
        }
        spec = {"containers": [limits(amounts)], "overhead": {"amd.com/gpu": None}}

        found = extended_resources({"spec": spec})

        assert found == {L40S, QAT, BY_DEVICE_CLASS, "amd.com/gpu"}


def test_claims_are_named_with_their_place() -> None:
    claims = [{"name": "a", "resourceClaimName": "one"}, {"name": "b", "resourceClaimTemplateName": "two"}, {}]

    found = pod_claims({"spec": {"resourceClaims": claims}})

    assert found == [
        PodClaim("spec.resourceClaims[0]", "one", None),
        PodClaim("spec.resourceClaims[1]", None, "two"),
        PodClaim("spec.resourceClaims[2]", None, None),
    ]


class TestPin:
    @pytest.mark.parametrize(
        "pod",
        [
            pytest.param({}, id="empty pod"),
            pytest.param({"spec": None}, id="spec null"),
            pytest.param({"spec": {"affinity": None}}, id="affinity null"),
            pytest.param({"spec": {"affinity": {"nodeAffinity": {REQUIRED: {}}}}}, id="no terms"),
            pytest.param(with_terms(), id="empty terms"),
            pytest.param(with_terms({}), id="empty term"),
            pytest.param(with_terms({"matchFields": None}), id="match fields null"),
        ],
    )
    def test_the_node_is_put_where_there_is_none(self, pod: Obj) -> None:
        before = deepcopy(pod)

        after = jsonpatch.apply_patch(pod, pin(pod, NODE))

        assert after == with_terms({"matchFields": [on(NODE)]})
        assert pod == before

    def test_every_term_that_lacks_the_node_gets_it(self) -> None:
        zone = on("a", key="zone")
        pod = with_terms({"matchExpressions": [zone]}, {"matchFields": [on(NODE)]}, {"matchFields": [on("other")]})

        operations = pin(pod, NODE)

        assert jsonpatch.apply_patch(pod, operations) == with_terms(
            {"matchExpressions": [zone], "matchFields": [on(NODE)]},
            {"matchFields": [on(NODE)]},
            {"matchFields": [on("other"), on(NODE)]},
        )
        assert len(operations) == 2

    @pytest.mark.parametrize(
        ("terms", "pinned"),
        [
            pytest.param([], False, id="no term"),
            pytest.param([{}], False, id="an empty term"),
            pytest.param([{"matchFields": [on(NODE)]}], True, id="the node"),
            pytest.param([{"matchFields": [on("x", operator="NotIn"), on(NODE)]}], True, id="among others"),
            pytest.param([{"matchFields": [on(NODE)]}, {"matchFields": [on(NODE)]}], True, id="in both terms"),
            pytest.param([{"matchFields": [on(NODE)]}, {}], False, id="in the first term"),
            pytest.param([{}, {"matchFields": [on(NODE)]}], False, id="in the last term"),
            pytest.param([{"matchFields": [on(NODE, "x")]}], False, id="or another"),
            pytest.param([{"matchFields": [on("x")]}], False, id="another"),
            pytest.param([{"matchFields": [on(NODE, operator="NotIn")]}], False, id="not there"),
            pytest.param([{"matchExpressions": [on(NODE)]}], False, id="a label"),
        ],
    )
    def test_pinned_is_what_can_run_nowhere_else(self, terms: list[Obj], pinned: bool) -> None:  # noqa: FBT001
        assert is_pinned(with_terms(*terms), NODE) is pinned

    @pytest.mark.parametrize("bad", ["x", {}, 7, ["x"]], ids=repr)
    def test_match_fields_of_another_type_are_malformed(self, bad: object) -> None:
        pod = with_terms({"matchFields": [on(NODE)]}, {"matchFields": bad})
        path = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[1].matchFields"

        for read in (pin, is_pinned):
            with pytest.raises(FieldError) as caught:
                read(pod, NODE)
            assert caught.value.path.startswith(path)


class TestOwner:
    @pytest.mark.parametrize(
        "owners",
        [
            [OWNER],
            [{**OWNER, "apiVersion": "kubevirt.io/v1alpha3"}],
            [{"kind": "Pod", "uid": "u-0"}, OWNER],
        ],
        ids=["alone", "older version", "second"],
    )
    def test_a_vmi_that_is_the_controller_owns_it(self, owners: list[Obj]) -> None:
        assert owning_vmi({"ownerReferences": owners}) == "u-1"

    @pytest.mark.parametrize(
        "changes",
        [
            {"controller": False},
            {"controller": "true"},
            {"controller": 1},
            {"kind": "VirtualMachine"},
            {"apiVersion": "v1"},
            {"apiVersion": None},
            {"apiVersion": "pool.kubevirt.io/v1"},
            {"apiVersion": "example.com/kubevirt.io"},
            {"uid": None},
        ],
        ids=str,
    )
    def test_nothing_else_does(self, changes: Obj) -> None:
        assert not owning_vmi({"ownerReferences": [{**OWNER, **changes}]})


MANIFEST: Obj = {
    "metadata": {"name": "launcher", "namespace": "tenant-a", "uid": "p-1", "ownerReferences": [OWNER]},
    "spec": {"containers": [limits({L40S: "1", "cpu": "2"}), limits({L40S: "1", QAT: "1"})]},
}


class TestPod:
    def test_what_the_catalog_keeps(self) -> None:
        pod = Pod.from_dict(MANIFEST)

        assert pod == Pod(
            namespace="tenant-a",
            name="launcher",
            uid="p-1",
            vmi_uid="u-1",
            finished=False,
            deleting=False,
            nodes=frozenset(),
            resources={L40S: 2, QAT: 1},
        )

    @pytest.mark.parametrize(
        ("phase", "finished"),
        [("Succeeded", True), ("Failed", True), ("Running", False), ("Pending", False), ("Unknown", False)],
    )
    def test_a_pod_is_finished_when_it_succeeded_or_failed(self, phase: str, finished: bool) -> None:  # noqa: FBT001
        assert Pod.from_dict({**MANIFEST, "status": {"phase": phase}}).finished is finished

    def test_a_pod_with_a_deletion_timestamp_is_being_deleted(self) -> None:
        metadata = {**MANIFEST["metadata"], "deletionTimestamp": "2026-11-01T10:00:00Z"}

        assert Pod.from_dict({**MANIFEST, "metadata": metadata}).deleting

    @pytest.mark.parametrize(
        ("spec", "nodes"),
        [
            pytest.param({"nodeName": NODE}, {NODE}, id="runs there"),
            pytest.param(
                {**with_terms({"matchFields": [on("x")]})["spec"], "nodeName": NODE}, {NODE}, id="runs anyway"
            ),
            pytest.param(with_terms({"matchFields": [on(NODE)]})["spec"], {NODE}, id="pinned"),
            pytest.param(
                with_terms({"matchFields": [on(NODE)]}, {"matchFields": [on("x")]})["spec"], {NODE, "x"}, id="two terms"
            ),
            pytest.param(with_terms({"matchFields": [on(NODE, operator="NotIn")]})["spec"], set(), id="anywhere else"),
            pytest.param({}, set(), id="anywhere"),
        ],
    )
    def test_its_nodes_are_where_it_runs_or_is_pinned(self, spec: Obj, nodes: set[str]) -> None:
        assert Pod.from_dict({**MANIFEST, "spec": spec}).nodes == nodes

    def test_it_asks_for_gpus_by_name_whatever_the_amount(self) -> None:
        pod = Pod.from_dict({**MANIFEST, "spec": {"containers": [limits({L40S: "0", BY_DEVICE_CLASS: "1"})]}})

        assert pod.asks_for({L40S})
        assert pod.asks_for({BY_DEVICE_CLASS, QAT})
        assert not pod.asks_for({QAT})
        assert not pod.asks_for(set())
