"""The grace period that a VMI with a device and its pod are made with."""

from typing import Any, Final

from policies.callers import CONTROLLER_OF_KUBEVIRT, EVERYBODY, HANDLER_OF_KUBEVIRT, TENANT
from policies.cases import ELSEWHERE, Case, create, delete, everyone, update
from policies.stored import REFERENCE, owner, pod, thing, vmi

_HASTY_VMI: Final = (
    "spec.terminationGracePeriodSeconds: below 0, the pod of a VMI with a GPUDevice could vanish while its guest runs "
    "on; set at least 0, or leave it out"
)
_HASTY_POD: Final = (
    "spec.terminationGracePeriodSeconds: with 0, a pod with a GPUDevice vanishes while its guest runs on; set at least "
    "1, or leave it out"
)


def _launcher(period: int | None) -> dict[str, Any]:
    """What virt-controller makes of a VMI."""
    spec = {} if period is None else {"terminationGracePeriodSeconds": period}
    return pod(spec=spec, labels=REFERENCE, ownerReferences=[owner()])


def _grace_period() -> list[Case]:
    cases = []
    for below in (-30, -1):
        hasty = create(vmi(labels=REFERENCE, period=below))
        cases += everyone(f"a VMI with a period of {below}", EVERYBODY, hasty, _HASTY_VMI, audit={"tried": str(below)})
    for period in (None, 0, 1, 30, 3600):
        born = create(vmi(labels=REFERENCE, period=period))
        cases += everyone(f"a VMI with a period of {period}", [TENANT, CONTROLLER_OF_KUBEVIRT], born)
    cases += everyone(
        "a pod with a period of 0",
        [*EVERYBODY, HANDLER_OF_KUBEVIRT],
        create(_launcher(0)),
        _HASTY_POD,
        audit={"tried": "0"},
    )
    # KubeVirt adds 30 s to the VMI's own, which is 30 where it says nothing.
    for period in (None, 1, 30, 60):
        born = create(_launcher(period))
        cases += everyone(f"a pod with a period of {period}", [TENANT, CONTROLLER_OF_KUBEVIRT], born)
    for what, call in {
        "a VMI without a device": create(vmi(period=-30)),
        "a pod without a device": create(pod(spec={"terminationGracePeriodSeconds": 0})),
        "a label on an older VMI": update("hasty-vmi", {"metadata": {"labels": {"a": "b"}}}),
        "a label on an older pod": update("short-launcher", {"metadata": {"labels": {"a": "b"}}}),
        "the deletion of an older VMI": delete("hasty-vmi"),
        "another kind": create(thing(spec={"terminationGracePeriodSeconds": -30}, labels=REFERENCE)),
    }.items():
        cases += everyone(what, [TENANT], call)
    for what, obj in {"a VMI": vmi(labels=REFERENCE, period=-30), "a pod": _launcher(0)}.items():
        cases += everyone(f"{what} that is hasty, elsewhere", [TENANT], create(obj), where=ELSEWHERE)
    return cases


GRACE_PERIOD: Final = _grace_period()
