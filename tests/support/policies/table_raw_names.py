"""Raw names, of VMIs and of pods."""

from collections.abc import Mapping
from typing import Any, Final

from actors import KUBEVIRT
from policies.callers import (
    ADMISSION,
    CAPI,
    CONTROLLER,
    CONTROLLER_OF_KUBEVIRT,
    EVERYBODY,
    HANDLER_OF_KUBEVIRT,
    OUTSIDERS,
    PLATFORM,
    TENANT,
)
from policies.cases import ELSEWHERE, Case, create, delete, everyone, update
from policies.stored import A100, GUARDED, H200, REFERENCE, named, owner, pod, vmi
from release import NAMESPACE

WAY_OUT: Final = (
    "order a GPUDevice and refer to it by the label gpu.cozystack.io/device-reference, or set the annotation "
    "gpu.cozystack.io/device-template on the VM's template"
)
OF_CLASS: Final = f"deviceclass.resource.kubernetes.io/{GUARDED}"
OTHER: Final = "intel.com/sriov"
_BY_GPUS: Final = f"spec.domain.devices.gpus: asks for GPUs without a device; {WAY_OUT}"


def _host_devices(*names: str) -> dict[str, Any]:
    return {"devices": {"hostDevices": [{"name": f"d{at}", "deviceName": name} for at, name in enumerate(names)]}}


def _resources(list_name: str, name: str, amount: str = "1") -> dict[str, Any]:
    return {"resources": {list_name: {"memory": "1Gi", name: amount}}}


def _by_host_device(name: str) -> str:
    return f"spec.domain.devices.hostDevices: asks for {name} by its raw name; {WAY_OUT}"


def _by_resource(list_name: str, name: str) -> str:
    return f"spec.domain.resources.{list_name}[{name}]: asks for a GPU by its raw name; {WAY_OUT}"


_GPU: Final = {"devices": {"gpus": [{"name": "gpu", "deviceName": H200}]}}
ROADS: Final[Mapping[str, tuple[dict[str, Any], str, str]]] = {
    "gpus": (_GPU, _BY_GPUS, H200),
    "gpus of any name": (
        {"devices": {"gpus": [{"name": "gpu", "deviceName": "a.example.org/b"}]}},
        _BY_GPUS,
        "a.example.org/b",
    ),
    "gpus by a claim": ({"devices": {"gpus": [{"name": "gpu", "claimName": "c", "requestName": "r"}]}}, _BY_GPUS, "c"),
    "gpus of no name": ({"devices": {"gpus": [{"name": "gpu"}]}}, _BY_GPUS, "a GPU"),
    "hostDevices": (_host_devices(A100), _by_host_device(A100), A100),
    "hostDevices, the second of them": (_host_devices(OTHER, H200), _by_host_device(H200), H200),
    "hostDevices, of a guarded class": (_host_devices(OF_CLASS), _by_host_device(OF_CLASS), OF_CLASS),
    "requests": (_resources("requests", H200), _by_resource("requests", H200), H200),
    "limits": (_resources("limits", A100), _by_resource("limits", A100), A100),
    "requests of zero": (_resources("requests", H200, "0"), _by_resource("requests", H200), H200),
    "limits, of a guarded class": (_resources("limits", OF_CLASS), _by_resource("limits", OF_CLASS), OF_CLASS),
}
PLAIN: Final[Mapping[str, dict[str, Any]]] = {
    "nothing": {},
    "empty lists": {"devices": {"gpus": [], "hostDevices": []}, "resources": {"requests": {}, "limits": {}}},
    "another device": _host_devices(OTHER, f"{H200}-B"),
    "a device by a claim": {"devices": {"hostDevices": [{"name": "d", "claimName": "c", "requestName": "r"}]}},
    "other resources": _resources("requests", OTHER),
    "other limits": _resources("limits", f"deviceclass.resource.kubernetes.io/{GUARDED}.example"),
}


def _vmis() -> list[Case]:
    cases = []
    for road, (domain, refused, asked) in ROADS.items():
        call = create(vmi(domain=domain))
        cases.append(
            Case(title=f"a VMI with {road}", who=TENANT, call=call, refused=refused, audit={"asked-for": asked})
        )
    cases += everyone("a VMI with gpus", EVERYBODY, create(vmi(domain=_GPU)), _BY_GPUS, audit={"asked-for": H200})
    older = create({**vmi(domain=_GPU), "apiVersion": "kubevirt.io/v1alpha3"})
    cases += everyone("a VMI of the older version", [TENANT], older, _BY_GPUS, audit={"asked-for": H200})
    set_of_vmis = owner(kind="VirtualMachineInstanceReplicaSet")
    cases += everyone(
        "a worker of a pool, which a replica set makes",
        [CONTROLLER_OF_KUBEVIRT],
        create(vmi(domain=_GPU, ownerReferences=[set_of_vmis])),
        _BY_GPUS,
        audit={"asked-for": H200},
    )
    machine = owner(kind="KubevirtMachine", api_version="infrastructure.cluster.x-k8s.io/v1alpha1", controller=True)
    by_provider = create(vmi(domain=_host_devices(H200), ownerReferences=[machine]))
    cases += everyone("a provider's machine", [CAPI], by_provider, _by_host_device(H200), audit={"asked-for": H200})
    both = {"devices": {**_GPU["devices"], **_host_devices(A100)["devices"]}}
    cases.append(
        Case(
            title="a VMI with two roads",
            who=TENANT,
            call=create(vmi(domain=both)),
            refused=_BY_GPUS,
            audit={"asked-for": f"{H200},{A100}"},
        )
    )
    annotated = create(vmi(domain=_host_devices(H200), annotations={"gpu.cozystack.io/device-reference": "my-gpu"}))
    cases += everyone(
        "the label's key as an annotation", [TENANT], annotated, _by_host_device(H200), audit={"asked-for": H200}
    )
    cases += [
        Case(title=f"a VMI with {what}", who=TENANT, call=create(vmi(domain=domain))) for what, domain in PLAIN.items()
    ]
    cases += everyone(
        "a VMI with gpus and a device", [TENANT, CONTROLLER_OF_KUBEVIRT], create(vmi(domain=_GPU, labels=REFERENCE))
    )
    status = {"status": {"phase": "Running"}}
    cases += everyone("a write of an older VMI's status", [HANDLER_OF_KUBEVIRT], update("raw-vmi", status))
    cases += everyone("the deletion of an older VMI", [TENANT], delete("raw-vmi"))
    cases += everyone("a VMI with gpus elsewhere", [TENANT], create(vmi(domain=_GPU)), where=ELSEWHERE)
    for namespace in (NAMESPACE, KUBEVIRT, "kube-system"):
        cases += everyone(f"a VMI with gpus in {namespace}", [TENANT], create(vmi(domain=_GPU)), where=namespace)
    return cases


VMI_RAW_NAMES: Final = _vmis()


_COMPUTE: Final = ("spec.containers[compute].resources.limits", "spec.containers[compute].resources.requests")
_SIDE: Final = ("spec.containers[side].resources.limits", "spec.containers[side].resources.requests")
_INIT: Final = ("spec.initContainers[side].resources.limits", "spec.initContainers[side].resources.requests")


def _by_pod(name: str, where: str = _COMPUTE[0]) -> str:
    return (
        f"{where}: asks for {name} by its raw name; "
        "run a VM that refers to a GPUDevice by the label gpu.cozystack.io/device-reference"
    )


def _sidecar(**amounts: dict[str, str]) -> dict[str, Any]:
    return {"name": "side", "image": "example.org/side", "resources": amounts}


_ONE: Final = {H200: "1"}
POD_ROADS: Final[Mapping[str, tuple[dict[str, Any], str, tuple[str, ...]]]] = {
    "limits": (pod(limits=_ONE), H200, _COMPUTE),
    "limits of zero": (pod(limits={A100: "0"}), A100, _COMPUTE),
    "the resource of a guarded class": (pod(limits={OF_CLASS: "1"}), OF_CLASS, _COMPUTE),
    "limits of the second container": (
        {**pod(), "spec": {"containers": [*pod()["spec"]["containers"], _sidecar(limits=_ONE)]}},
        H200,
        _SIDE,
    ),
    "limits of an init container": (pod(spec={"initContainers": [_sidecar(limits=_ONE)]}), H200, _INIT),
    "overhead, of its RuntimeClass": (
        pod(spec={"runtimeClassName": "heavy", "overhead": _ONE}),
        H200,
        ("spec.overhead",),
    ),
}
"""Each with the name and the fields that it stands in: a limit of a container is made a request of it too. A request
without a limit is none that the API server takes, nor is a GPU in the pod's own resources."""
_LAUNCHER: Final[Mapping[str, Any]] = {"labels": REFERENCE, "ownerReferences": [owner()]}


def _pods() -> list[Case]:
    cases = []
    for road, (obj, asked, fields) in POD_ROADS.items():
        refused = _by_pod(asked, fields[0])
        audit = {"asked-for": ",".join([asked] * len(fields))}
        cases.append(Case(title=f"a pod with {road}", who=TENANT, call=create(obj), refused=refused, audit=audit))
    twice = {"asked-for": f"{H200},{H200}"}
    raw, refused = create(pod(limits=_ONE)), _by_pod(H200)
    cases += everyone("a pod with a GPU", [*OUTSIDERS, *PLATFORM, CAPI], raw, refused, audit=twice)
    cases += everyone("a pod without an owner", [CONTROLLER_OF_KUBEVIRT], raw, refused, audit=twice)
    forged = create(pod(limits=_ONE, **_LAUNCHER))
    cases += everyone("a pod with a VMI as its owner", [*OUTSIDERS, *PLATFORM], forged, refused, audit=twice)
    for what, reference in {
        "is no controller": owner(controller=False),
        "says nothing of control": {key: value for key, value in owner().items() if key != "controller"},
        "is another kind": owner(kind="VirtualMachine"),
        "is of another group": owner(api_version="kubevirt.io.example.org/v1"),
        "is of a group that ends so": owner(api_version="pool.kubevirt.io/v1"),
    }.items():
        other = create(pod(limits=_ONE, labels=REFERENCE, ownerReferences=[reference]))
        cases += everyone(f"a pod whose owner {what}", [CONTROLLER_OF_KUBEVIRT], other, refused, audit=twice)
    for what, labels in {
        "a launcher": {**REFERENCE, "kubevirt.io": "virt-launcher"},
        "a migration's target": {**REFERENCE, "kubevirt.io/migrationJobUID": "0"},
        "a pod that a volume waits for": {**REFERENCE, "kubevirt.io": "virt-launcher", "kubevirt.io/created-by": "0"},
    }.items():
        launcher = create(pod(limits=_ONE, labels=labels, ownerReferences=[owner()]))
        cases += everyone(what, [CONTROLLER_OF_KUBEVIRT], launcher)
    plain = {"nothing": pod(), "other devices": pod(limits={OTHER: "1", "cpu": "1"}, requests={OTHER: "1"})}
    cases += [Case(title=f"a pod with {what}", who=TENANT, call=create(obj)) for what, obj in plain.items()]
    cases += everyone("a label on an older pod", [TENANT], update("raw-pod", {"metadata": {"labels": {"a": "b"}}}))
    status = {"status": {"message": "well"}}
    cases += everyone("a write of an older pod's status", [TENANT], update("raw-pod", status, "status"))
    cases += everyone("the deletion of an older pod", [TENANT], delete("raw-pod"))
    cases += everyone("a ConfigMap", [TENANT], create({**named("v1", "ConfigMap", "new"), "data": {"a": H200}}))
    cases += everyone("a pod with a GPU elsewhere", [TENANT], raw, where=ELSEWHERE)
    for namespace, who in ((NAMESPACE, CONTROLLER), (KUBEVIRT, TENANT), ("kube-system", ADMISSION)):
        cases += everyone(f"a pod with a GPU in {namespace}", [who], raw, where=namespace)
    return cases


POD_RAW_NAMES: Final = _pods()
