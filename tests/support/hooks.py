"""helm's hooks without a kubelet: what the pods of their Jobs would run runs here, under the account that they name."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import warm
from controlplane.client import Client, Object, ref
from controlplane.plane import ControlPlane


@asynccontextmanager
async def jobs_run(kube: Client, plane: ControlPlane, namespace: str) -> AsyncIterator[list[str]]:
    """Within, pods of Jobs in a namespace run as they appear, and end; gives what each printed."""
    said: list[str] = []
    task = asyncio.create_task(_run(kube, plane, namespace, said))
    try:
        yield said
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _run(kube: Client, plane: ControlPlane, namespace: str, said: list[str]) -> None:
    done: set[str] = set()
    while True:
        for pod in await kube.list("v1", "Pod", namespace, labelSelector="batch.kubernetes.io/job-name"):
            if pod["metadata"]["uid"] not in done:
                done.add(pod["metadata"]["uid"])
                await _act(kube, plane, namespace, pod, said)
        await asyncio.sleep(0.1)


async def _act(kube: Client, plane: ControlPlane, namespace: str, pod: Object, said: list[str]) -> None:
    [container] = pod["spec"]["containers"]
    user = f"system:serviceaccount:{namespace}:{pod['spec']['serviceAccountName']}"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    kubeconfig = str(plane.kubeconfig(user, groups))
    code, printed = await run_command(*container["args"], "--kubeconfig", kubeconfig)
    said.append(printed)
    phase = "Succeeded" if code == 0 else "Failed"
    named = ref("v1", "Pod", pod["metadata"]["name"], namespace)
    await kube.patch(named, {"status": {"phase": phase}}, subresource="status")


async def run_command(*arguments: str) -> tuple[int, str]:
    """Run ``gpu-webhooks``; how it ended and what it printed, its log too where it failed."""
    process = await warm.piped(*arguments)
    try:
        printed, logged = await asyncio.wait_for(process.communicate(), 90)
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode or 0, (printed + logged if process.returncode else printed).decode()
