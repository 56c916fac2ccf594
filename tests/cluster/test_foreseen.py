"""Whose refusal an answer of the API server is."""

import pytest
from controlplane.errors import APIError
from foreseen import Refused, compared

_NO_ROLES = (
    'virtualmachineinstances.kubevirt.io is forbidden: User "jane" cannot create resource "virtualmachineinstances" in '
    'API group "kubevirt.io" in the namespace "a": RBAC: [clusterrole.rbac.authorization.k8s.io "{role}" not found]'
)


@pytest.mark.parametrize("role", ["system:discovery", "gpu-webhooks-view"])
def test_who_is_refused_while_the_api_server_has_no_roles_did_not_ask_the_webhooks(role: str) -> None:
    refusal = APIError({"code": 403, "reason": "Forbidden", "message": _NO_ROLES.format(role=role)})

    assert compared(Refused(403, "by its raw name"), refusal, changed=False) == "not asked"


def test_that_a_webhook_could_not_be_called_is_the_wrong_answer() -> None:
    message = 'Internal error occurred: failed calling webhook "a.gpu.cozystack.io": context deadline exceeded'
    refusal = APIError({"code": 500, "reason": "InternalError", "message": message})

    assert compared(Refused(403, "by its raw name"), refusal, changed=False) == "wrong"
