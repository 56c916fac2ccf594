"""Deletes: of devices in use, of classes that are held, of VMIs whose pod runs on."""

from controlplane.client import Client, ref
from gpukinds import API_VERSION
from pooled import Pool
from refusals import refused
from waiting import eventually, exists, gone


async def test_a_device_that_is_deleted_while_used_stays_whole_until_vmi_and_pod_are_gone(
    kube: Client, pool: Pool
) -> None:
    await pool.order()
    machine = await pool.machine(refers_to="my-gpu")
    held = await pool.becomes(phase="InUse")
    pod = await pool.runs(machine)
    await kube.patch(machine, {"metadata": {"finalizers": ["kubevirt.io/foregroundDeleteVirtualMachine"]}})
    await pool.order("next")
    await pool.becomes("next", reason="NoCapacity")

    record = ref("cozystack.io/v1alpha1", "Workload", "gpu-my-gpu", pool.namespace)
    recorded = await eventually(lambda: kube.get(record))

    await pool.tenant.kube.delete(pool.device(), propagation="Foreground")
    await pool.becomes(phase="Releasing", binding=held["binding"], nodeName=held["nodeName"])
    await pool.tenant.kube.delete(machine, propagation="Background")
    # The tenant takes the VMI's finalizers off: it is gone at once, and its guest runs on.
    await pool.tenant.kube.patch(machine, {"metadata": {"finalizers": None}})
    await gone(kube, machine)
    # Something else happens, so that there is a plan that knows of it.
    await kube.patch(ref("v1", "Node", pool.node_name("a")), {"metadata": {"labels": {"something": "else"}}})
    await pool.becomes("next", reason="NoCapacity")
    assert (await pool.status())["binding"] == held["binding"]
    assert (await kube.get(record))["metadata"]["uid"] == recorded["metadata"]["uid"]

    await kube.delete(pod, grace=0)

    await gone(kube, pool.device(), seconds=10)
    await gone(kube, record, seconds=10)
    await pool.becomes("next", phase="Held")


async def test_a_class_that_is_deleted_while_held_stays_until_its_last_device_is_gone(kube: Client, pool: Pool) -> None:
    await pool.order("first")
    await pool.becomes("first", phase="Held")
    await pool.order("second")
    await pool.becomes("second", reason="NoCapacity")
    offer = ref(API_VERSION, "GPUClass", pool.name)

    await kube.delete(offer)

    await pool.becomes("second", phase="Pending", reason="ClassDeleting")
    await pool.becomes("first", phase="Held")
    assert await exists(kube, offer)
    refusal = await refused(pool.order("third"))
    assert "being deleted" in refusal.said
    await pool.tenant.kube.delete(pool.device("first"))
    await gone(kube, offer, seconds=10)
    await pool.becomes("second", phase="Pending", reason="ClassNotFound")

    async def published() -> bool:
        settings = await kube.get(ref("v1", "ConfigMap", "gpu-settings", "gpu-system"))
        return pool.resource in settings["data"]["resourceNames"].split(",")

    assert await eventually(published)


async def test_a_resource_name_that_changes_while_held_is_the_old_one_for_who_uses_it(kube: Client, pool: Pool) -> None:
    await pool.order("used")
    machine = await pool.machine(refers_to="used")
    await pool.becomes("used", phase="InUse", resourceName=pool.resource)
    other = f"{pool.resource}-new"
    offer = ref(API_VERSION, "GPUClass", pool.name)

    await kube.patch(offer, {"spec": {"source": {"devicePlugin": {"resourceName": other}}}})
    node = pool.node_name("a")
    amounts = {"allocatable": {pool.resource: "1", other: "1"}, "capacity": {pool.resource: "1", other: "1"}}
    await kube.patch(ref("v1", "Node", node), {"status": amounts}, subresource="status")
    await pool.order("new")

    await pool.becomes("new", phase="Held", resourceName=other)
    await pool.becomes("used", phase="InUse", resourceName=pool.resource)
    await pool.runs(machine)
