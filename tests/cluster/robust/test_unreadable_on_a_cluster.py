"""A pod that the API server takes and the controller can't read: its GPU is given to nobody."""

from controlplane.client import Client, ref
from controlplane.plane import ControlPlane
from corner import controlled, cornered, new_corner
from gpukinds import API_VERSION
from machines import plain_pod
from stage import RESOURCE, Stage
from waiting import eventually

ODD = "notkubernetes.io/thing"
"""The API server takes names that hold "kubernetes.io/" for its own, of which there may be halves
(k8s.io/kubernetes/pkg/apis/core/helper, IsNativeResource)."""


async def test_no_gpu_is_held_where_a_pod_that_cant_be_read_has_one(plane: ControlPlane, kube: Client) -> None:
    stage = Stage(kube, new_corner())
    await stage.namespace()
    await stage.gpu_class("only", guarded=False)
    await stage.node("n", "only", 2)
    pod = plain_pod(stage.corner, "odd", limits={RESOURCE: "1", ODD: "500m"}, nodeName=f"{stage.corner}-n")
    pod = await kube.create(pod)
    async with cornered(plane, stage.corner) as api, controlled(api):
        order = await stage.order("next", "only", 1)

        async def waits() -> bool:
            conditions = (await kube.get(order)).get("status", {}).get("conditions", ())
            assert [one["reason"] for one in conditions] == ["NoCapacity"]
            return True

        await eventually(waits, every=0.2)

        async def told() -> str:
            events = await kube.list("events.k8s.io/v1", "Event", stage.corner)
            return "".join(event["note"] for event in events if event["regarding"]["name"] == "odd")

        assert f"limits[{ODD}]: must be a whole number" in await eventually(told)

        await kube.delete(pod, grace=0)

        async def held() -> bool:
            found = await kube.get(ref(API_VERSION, "GPUDevice", "next", stage.corner))
            return bool(found["status"].get("nodeName"))

        await eventually(held, every=0.2)
