"""What an installation can set."""

from dataclasses import dataclass
from typing import Final

from webhooks.review import Request

MEBIBYTE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Who is who on this platform, and the service's limits.

    A body has at most ``largest_body`` bytes, all that are held at once ``most_body_bytes``; the line and headers of a
    call may take ``head_seconds``.
    """

    kubevirt_namespace: str = "kubevirt"
    platform_groups: frozenset[str] = frozenset(
        {
            "system:masters",
            "cozystack-cluster-admin",
            "system:serviceaccounts:cozy-system",
            "system:serviceaccounts:kube-system",
        }
    )
    platform_users: frozenset[str] = frozenset({"system:kube-controller-manager"})
    largest_body: int = 8 * MEBIBYTE
    most_body_bytes: int = 64 * MEBIBYTE
    most_in_flight: int = 512
    most_connections: int = 2048
    head_seconds: float = 10.0

    @property
    def virt_controller(self) -> str:
        """The user that creates the VMIs of VMs, and every virt-launcher pod."""
        return f"system:serviceaccount:{self.kubevirt_namespace}:kubevirt-controller"

    def is_platform(self, request: Request) -> bool:
        """Whether the platform itself asks, by group or by user."""
        return request.username in self.platform_users or not self.platform_groups.isdisjoint(request.groups)
