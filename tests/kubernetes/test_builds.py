"""What the API server answers to the creation of a device, as the pair takes it."""

import pytest
import scripted

from cluster.catalog import ClusterCatalog
from gpu.errors import BuildRefused, CatalogError
from gpu.template import DeviceTemplate

STARTING = (
    "gpudevices.gpu.cozystack.io \"d\" is forbidden: ValidatingAdmissionPolicy 'class-deletion.gpu.cozystack.io' "
    "denied request: failed to configure policy: failed to find resource referenced by paramKind"
)


async def test_a_policy_that_an_api_server_can_not_evaluate_yet_is_no_fault_of_the_order() -> None:
    async with scripted.serving(scripted.Script(scripted.status(422, STARTING))) as api:
        catalog = ClusterCatalog(api, namespace="gpu-system")

        with pytest.raises(CatalogError) as failed:
            await catalog.build_device("tenant-a", "d", DeviceTemplate("h200", 1))

    assert not isinstance(failed.value, BuildRefused)
    assert "failed to configure policy" in str(failed.value)


async def test_any_other_refusal_is_passed_on() -> None:
    async with scripted.serving(scripted.Script(scripted.status(422, "spec.count: too many"))) as api:
        catalog = ClusterCatalog(api, namespace="gpu-system")

        with pytest.raises(BuildRefused, match=r"spec\.count: too many"):
            await catalog.build_device("tenant-a", "d", DeviceTemplate("h200", 1))
