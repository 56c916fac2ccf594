"""Claims by the name of a DeviceClass, and networks that name a resource."""

from typing import Any, Final

from policies.callers import CAPI, CONTROLLER_MANAGER, EVERYBODY, GARBAGE_COLLECTOR, OUTSIDERS, PLATFORM, TENANT
from policies.cases import ELSEWHERE, Case, create, delete, everyone, update
from policies.stored import A100, GUARDED, H200, NETWORK_RESOURCE, claim, claim_spec, claim_template, network, pod
from policies.table_raw_names import OF_CLASS, WAY_OUT

_CLAIM: Final = f"devices.requests: asks for the DeviceClass {GUARDED} by name, in exactly or firstAvailable; {WAY_OUT}"
_AUDIT: Final = {"asked-for": GUARDED}
_OTHER: Final = "other.example.com"


def first_available(*device_classes: str) -> dict[str, Any]:
    alternatives = [{"name": f"a{at}", "deviceClassName": name} for at, name in enumerate(device_classes)]
    return {"devices": {"requests": [{"name": "r", "firstAvailable": alternatives}]}}


def of_v1beta1(*device_classes: str) -> dict[str, Any]:
    """A claim's spec as v1beta1 has it: the class stands in the request itself."""
    return {
        "devices": {"requests": [{"name": f"r{at}", "deviceClassName": of} for at, of in enumerate(device_classes)]}
    }


_RAW: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "exactly": (claim_spec(GUARDED), "v1"),
    "exactly, the second": (claim_spec(_OTHER, GUARDED), "v1"),
    "firstAvailable": (first_available(GUARDED), "v1"),
    "firstAvailable, the second": (first_available(_OTHER, GUARDED), "v1"),
    "exactly, v1beta2": (claim_spec(GUARDED), "v1beta2"),
    "firstAvailable, v1beta2": (first_available(_OTHER, GUARDED), "v1beta2"),
    "the request itself, v1beta1": (of_v1beta1(_OTHER, GUARDED), "v1beta1"),
    "firstAvailable, v1beta1": (first_available(GUARDED), "v1beta1"),
}
_PLAIN: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "exactly": (claim_spec(_OTHER, f"a.{GUARDED}"), "v1"),
    "firstAvailable": (first_available(_OTHER), "v1"),
    "no request": ({"devices": {}}, "v1"),
    "exactly, v1beta2": (claim_spec(_OTHER), "v1beta2"),
    "the request itself, v1beta1": (of_v1beta1(_OTHER), "v1beta1"),
}


def _claims() -> list[Case]:
    cases = []
    for what, (spec, version) in _RAW.items():
        cases += everyone(f"a claim: {what}", [TENANT], create(claim(spec=spec, version=version)), _CLAIM, audit=_AUDIT)
        template = create(claim_template("new", spec, version))
        cases += everyone(f"a template: {what}", [TENANT], template, _CLAIM, audit=_AUDIT)
    for what, (spec, version) in _PLAIN.items():
        cases += everyone(f"another claim: {what}", [TENANT], create(claim(spec=spec, version=version)))
        cases += everyone(f"another template: {what}", [TENANT], create(claim_template("new", spec, version)))
    everybody = [*OUTSIDERS, *PLATFORM, CAPI]
    cases += everyone("a claim", everybody, create(claim(spec=claim_spec(GUARDED))), _CLAIM, audit=_AUDIT)
    template = create(claim_template("new", claim_spec(GUARDED)))
    cases += everyone("a template", everybody, template, _CLAIM, audit=_AUDIT)
    for what, change, subresource in (
        ("another label", {"metadata": {"labels": {"a": "b"}}}, ""),
        ("its finalizers", {"metadata": {"finalizers": None}}, ""),
        ("its status", {"status": {}}, "status"),
    ):
        for version_of in ("raw-claim", "claim"):
            cases += everyone(
                f"{what} of {version_of}", [TENANT, CONTROLLER_MANAGER], update(version_of, change, subresource)
            )
    cases += everyone("an older claim deleted", [TENANT, GARBAGE_COLLECTOR], delete("raw-claim"))
    cases += everyone("a pod", [TENANT], create(pod()))
    cases += everyone("a claim elsewhere", [TENANT], create(claim(spec=claim_spec(GUARDED))), where=ELSEWHERE)
    return cases


CLAIMS: Final = _claims()


def _named(name: str) -> str:
    return f"metadata.annotations[{NETWORK_RESOURCE}]: names the GPU {name}; {WAY_OUT}"


def _resource(value: str | None) -> dict[str, Any]:
    return {"metadata": {"annotations": {NETWORK_RESOURCE: value}}}


def _networks() -> list[Case]:
    cases = []
    for what, value, found in (
        ("a GPU", H200, H200),
        ("a GPU with spaces", f"  {A100} ", A100),
        ("a GPU after another", f"intel.com/sriov, {H200}", H200),
        ("a guarded class", OF_CLASS, OF_CLASS),
    ):
        refused, audit = _named(found), {"asked-for": found}
        cases += everyone(f"made with {what}", [TENANT], create(network(resource=value)), refused, audit=audit)
        cases += everyone(f"changed to {what}", [TENANT], update("network", _resource(value)), refused, audit=audit)
    other = update("raw-network", _resource(A100))
    cases += everyone("changed from a GPU to another", [TENANT], other, _named(A100), audit={"asked-for": A100})
    made = create(network(resource=H200))
    cases += everyone("made with a GPU", EVERYBODY, made, _named(H200), audit={"asked-for": H200})
    for what, call in {
        "made without a resource": create(network()),
        "made with an empty one": create(network(resource="")),
        "made with another": create(network(resource="intel.com/sriov")),
        "made with a longer name": create(network(resource=f"{H200}-B")),
        "changed to another": update("network", _resource("intel.com/other")),
        "an older one with another label": update("raw-network", {"metadata": {"labels": {"a": "b"}}}),
        "an older one without finalizers": update("raw-network", {"metadata": {"finalizers": None}}),
        "an older one changed to another": update("raw-network", _resource("intel.com/sriov")),
        "an older one that drops it": update("raw-network", _resource(None)),
        "an older one deleted": delete("raw-network"),
        "a pod with that annotation": create(pod(annotations={NETWORK_RESOURCE: H200})),
    }.items():
        cases += everyone(what, [TENANT], call)
    cases += everyone("made with a GPU elsewhere", [TENANT], made, where=ELSEWHERE)
    return cases


NETWORKS: Final = _networks()
