"""Who asks: users and groups as the API server sees them."""

from typing import Final, NamedTuple

from actors import VIRT_CONTROLLER, VIRT_HANDLER
from release import NAME, NAMESPACE

RIGHTS: Final = "tests-may-do-everything"
"""Group of every caller: its rights are not what is tested."""


class Who(NamedTuple):
    """A caller, and the groups that are told to the policies."""

    user: str
    groups: tuple[str, ...] = ()

    @property
    def headers_groups(self) -> list[str]:
        return [*self.groups, RIGHTS]


def account(namespace: str, name: str) -> Who:
    """A service account."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return Who(f"system:serviceaccount:{namespace}:{name}", groups)


def person(name: str, *groups: str) -> Who:
    return Who(name, (*groups, "system:authenticated"))


TENANT: Final = person("jane")
TENANT_ACCOUNT: Final = account("tenant-a", "default")
SUPER_ADMIN: Final = person("root@tenant-a", "tenant-a-super-admin")
NODE: Final = Who("system:node:node-1", ("system:nodes", "system:authenticated"))
SCHEDULER: Final = person("system:kube-scheduler")
FLUX: Final = account("cozy-fluxcd", "flux")
VELERO: Final = account("cozy-velero", "velero")
CAPI: Final = account("cozy-cluster-api", "capk-controller-manager")
CONTROLLER_OF_KUBEVIRT: Final = Who(VIRT_CONTROLLER, account("kubevirt", "kubevirt-controller").groups)
HANDLER_OF_KUBEVIRT: Final = Who(VIRT_HANDLER, account("kubevirt", "kubevirt-handler").groups)

MASTERS: Final = person("admin", "system:masters")
CLUSTER_ADMIN: Final = person("olga", "cozystack-cluster-admin")
COZY_SYSTEM: Final = account("cozy-system", "cozystack")
GARBAGE_COLLECTOR: Final = account("kube-system", "generic-garbage-collector")
CONTROLLER_MANAGER: Final = person("system:kube-controller-manager")
ADMISSION: Final = account(NAMESPACE, NAME)
CONTROLLER: Final = account(NAMESPACE, f"{NAME}-controller")
OTHER_ADMISSION: Final = account("another", NAME)
"""An account of the same name elsewhere, which is nobody's."""

OUTSIDERS: Final = (TENANT, TENANT_ACCOUNT, SUPER_ADMIN, FLUX, VELERO)
PLATFORM: Final = (
    *(MASTERS, CLUSTER_ADMIN, COZY_SYSTEM, GARBAGE_COLLECTOR),
    *(CONTROLLER_MANAGER, ADMISSION, CONTROLLER),
)
"""One of each group and user that is the platform's."""
EVERYBODY: Final = (*OUTSIDERS, *PLATFORM, CONTROLLER_OF_KUBEVIRT, CAPI)
