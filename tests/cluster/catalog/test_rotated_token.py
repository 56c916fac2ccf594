"""A pod's token is replaced while the pod runs; the old one is refused at once where what it was bound to is gone."""

import os
from pathlib import Path
from urllib.parse import urlsplit

from actors import Tenant
from controlplane.client import Client
from controlplane.plane import ControlPlane
from gpukinds import vmi
from structlog.testing import capture_logs

from cluster.api import Api
from cluster.kinds import VMIS
from cluster.login import in_cluster


async def test_a_token_that_was_rotated_away_costs_no_call(
    plane: ControlPlane, kube: Client, tenant: Tenant, tmp_path: Path
) -> None:
    namespace = tenant.namespace
    await kube.create(vmi(namespace, "train"))

    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"}
    await kube.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"namespace": namespace, "name": "default-admin"},
            "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": "default"}],
        }
    )

    async def token(bound_to: str) -> str:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": namespace, "name": bound_to}}
        await kube.create(secret)
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}}
        bound = {"apiVersion": "v1", "kind": "Secret", "name": bound_to}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token"
        given = await kube.raw("POST", path, {**asked, "spec": {"boundObjectRef": bound}})
        return str(given["status"]["token"])

    file, ca = tmp_path / "token", tmp_path / "ca.crt"
    ca.write_text(plane.ca_pem)
    file.write_text(await token("old"))
    where = urlsplit(plane.url)
    environ = {"KUBERNETES_SERVICE_HOST": where.hostname or "", "KUBERNETES_SERVICE_PORT": str(where.port)}
    api = await Api.of(in_cluster(token_file=file, ca_file=ca, environ={**os.environ, **environ}))
    file.write_text(await token("new"))
    await kube.delete({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": namespace, "name": "old"}})
    with capture_logs() as logs:
        found = await api.get(VMIS, "train", namespace=namespace)
    await api.close()

    assert found["metadata"]["name"] == "train"
    assert logs == []
