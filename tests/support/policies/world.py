"""A control plane on which tables are run: the kinds, what is stored, and requests as anybody."""

import asyncio
import copy
import itertools
import json
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from actors import HOST_LABEL, KUBEVIRT
from controlplane.client import Client, Object, ref
from controlplane.errors import APIError
from controlplane.plane import ControlPlane
from policies.callers import RIGHTS
from policies.cases import ELSEWHERE, TENANTS, Case
from policies.stored import (
    FIRST,
    LEAVING,
    LEAVING_OF_THE_CLUSTER,
    OF_THE_CLUSTER,
    OWNER_UID,
    PHASES,
    SETTINGS,
    THEN,
    THING,
    settings,
)
from release import NAMESPACE, rendered
from waiting import eventually

BETAS: Final = "--runtime-config=resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true"
"""Flag of the API server: every version of claims is served."""
PART: Final = "tests.example.org/part"
"""Label of the namespaces of a part: its name."""
MANY: Final = 8
"""Requests at once."""
_REFUSAL: Final = re.compile(
    r"ValidatingAdmissionPolicy '([^']+)'(?: with binding '[^']+')? denied request: (.*)", re.DOTALL
)
_NAMESPACES: Final[Mapping[str, Mapping[str, str]]] = {
    TENANTS: {HOST_LABEL: "a"},
    ELSEWHERE: {},
    # The platform's own are out, whatever their labels say.
    NAMESPACE: {HOST_LABEL: "b"},
    KUBEVIRT: {HOST_LABEL: "c"},
    "kube-system": {HOST_LABEL: "d"},
}
_calls = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a request. ``policy`` is the one that refused it, empty where none did; ``problem`` is what else
    spoke against it.
    """

    policy: str = ""
    message: str = ""
    code: int = 0
    problem: str = ""
    call: str = field(default="", compare=False)
    """Where the audit log has it."""


class Heard:
    """What the audit log has of requests: annotations by call."""

    def __init__(self, annotations: Mapping[str, Mapping[str, str]]) -> None:
        self._annotations = annotations

    def told(self, policy: str, verdicts: Iterable[Verdict]) -> list[dict[str, str]]:
        """What a policy wrote of each, by the policy's keys."""
        mine = f"{policy}/"
        return [
            {
                key.removeprefix(mine): value
                for key, value in self._annotations[found.call].items()
                if key.startswith(mine)
            }
            for found in verdicts
        ]


class World:
    """The stored objects by namespace and name, and a client of the API server that has them."""

    def __init__(
        self, plane: ControlPlane, kube: Client, stored: dict[tuple[str, str], Object], *, part: str = ""
    ) -> None:
        self.plane = plane
        self.kube = kube
        self._stored = stored
        self._part = part

    def part(self, name: str) -> "World":
        """A part of it with a tenant's namespace and another of its own, which have the label ``PART``."""
        return World(self.plane, self.kube, self._stored, part=name)

    def place(self, where: str) -> str:
        """The namespace that a case means."""
        return f"{where}-{self._part}" if self._part and where in {TENANTS, ELSEWHERE} else where

    def manifest(self, obj: Object, namespace: str) -> dict[str, Any]:
        """The object as it is sent: in its namespace, if its kind has one, with the real uid of its owner."""
        namespace = self.place(namespace)
        sent: dict[str, Any] = copy.deepcopy(dict(obj))
        if sent["kind"] == "Event":
            sent["involvedObject"]["namespace"] = namespace
        if not is_of_cluster(sent):
            sent["metadata"].setdefault("namespace", namespace)
        for reference in sent["metadata"].get("ownerReferences") or ():
            if reference["uid"] == OWNER_UID:
                reference["uid"] = self._stored[namespace, "vmi"]["metadata"]["uid"]
        return sent

    def body(self, body: Mapping[str, Any], namespace: str) -> dict[str, Any]:
        """A change or what is posted, with the real uid of an owner."""
        uid = self.stored("vmi", namespace)["metadata"]["uid"]
        sent: dict[str, Any] = json.loads(json.dumps(body).replace(OWNER_UID, uid))
        return sent

    async def verdict(self, case: Case, headers: Mapping[str, str] | None = None) -> Verdict:
        """What comes of a case, which changes nothing."""
        call_id = f"call-{next(_calls)}"
        kube = self.kube.as_(case.who.user, case.who.headers_groups).with_headers(
            {"Audit-ID": call_id, **(headers or {})}
        )
        try:
            await self._ask(kube, case)
        except APIError as error:
            if refusal := _REFUSAL.search(error.message):
                return Verdict(refusal[1], refusal[2], error.code, call=call_id)
            return Verdict(problem=str(error), call=call_id)
        return Verdict(call=call_id)

    async def _ask(self, kube: Client, case: Case) -> None:
        call = case.call
        if isinstance(call.obj, Mapping):
            await kube.create(self.manifest(call.obj, case.where), dry_run=True)
            return
        obj = self.stored(call.obj, case.where)
        match call.operation:
            case "update":
                change = self.body(call.body, case.where)
                await kube.patch(obj, change, subresource=call.subresource, dry_run=True)
            case "delete":
                await kube.delete(obj, dry_run=True, **call.body)
            case "connect":
                metadata = obj["metadata"]
                path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/{call.subresource}"
                await kube.raw("POST", path, parameters={"command": "true", "stdout": "1"})
            case _:
                body = {"metadata": {"name": obj["metadata"]["name"]}, **self.body(call.body, case.where)}
                await kube.post(obj, call.subresource, body, dry_run=True)

    def stored(self, name: str, namespace: str) -> Object:
        """The stored object of this name, of the namespace or of the cluster."""
        return self._stored.get((self.place(namespace), name)) or self._stored["", name]

    async def verdicts(self, cases: Iterable[Case], headers: Mapping[str, str] | None = None) -> list[Verdict]:
        """What comes of each case, many at a time."""
        gate = asyncio.Semaphore(MANY)

        async def one(case: Case) -> Verdict:
            async with gate:
                return await self.verdict(case, headers)

        return list(await asyncio.gather(*map(one, cases)))

    async def heard(self, verdicts: Iterable[Verdict], *, since: int) -> "Heard":
        """What the audit log has of these requests; an event is written just after its answer, so it is waited for."""
        calls = {found.call for found in verdicts}
        deadline = time.monotonic() + 5
        while True:
            events = await asyncio.to_thread(self.plane.audit_events, since=since)
            found = {event["auditID"]: event.get("annotations") or {} for event in events if event["auditID"] in calls}
            if len(found) == len(calls) or time.monotonic() > deadline:
                return Heard(found)
            await asyncio.sleep(0.1)

    async def store(self) -> None:
        """Make all that the tables take for given."""
        await self.store_for_the_cluster()
        await self.fill({*FIRST, *THEN})

    async def store_for_the_cluster(self) -> None:
        """Make what has no namespace, the settings, and the rights of the callers."""
        await self.make_namespaces()
        await self.publish(SETTINGS)
        await self.grant()
        await asyncio.gather(*(self._keep("", name, obj) for name, obj in OF_THE_CLUSTER.items()))
        await asyncio.gather(*(self.kube.delete(self._stored["", name]) for name in LEAVING_OF_THE_CLUSTER))

    async def fill(self, needed: Collection[str]) -> None:
        """Make what is needed of the namespaced objects, in this part's namespaces."""
        await self.make_namespaces()
        await asyncio.gather(*(self._fill(self.place(where), {"vmi", *needed}) for where in (TENANTS, ELSEWHERE)))

    async def publish(self, data: Mapping[str, str] | None) -> None:
        """Put the settings in place of those that are there."""
        await self.unpublish()
        await self.kube.create(settings(NAMESPACE, data))

    async def unpublish(self) -> None:
        try:
            await self.kube.delete(settings(NAMESPACE, None))
        except APIError as error:
            if error.code != 404:
                raise

    async def make_namespaces(self) -> None:
        """Make the namespaces that are not there."""
        own = {PART: self._part} if self._part else {}
        places = {
            self.place(name): {**marks, **own}
            for name, marks in _NAMESPACES.items()
            if self.place(name) != name or not own
        }
        await asyncio.gather(*(self._namespace(name, marks) for name, marks in places.items()))

    async def _namespace(self, name: str, marks: Mapping[str, str]) -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(marks)}}
        await self.kube.apply(namespace)
        await eventually(lambda: self.kube.get(ref("v1", "ServiceAccount", "default", name)))

    async def _fill(self, namespace: str, needed: Collection[str]) -> None:
        for objects in (FIRST, THEN):
            await asyncio.gather(*(self._keep(namespace, name, objects[name]) for name in objects if name in needed))
        for name, phase in PHASES.items():
            if name in needed:
                status = {"status": {"phase": phase}}
                await self.kube.patch(self._stored[namespace, name], status, subresource="status")
        await asyncio.gather(*(self.kube.delete(self._stored[namespace, name]) for name in LEAVING if name in needed))

    async def _keep(self, namespace: str, name: str, obj: Object) -> None:
        made = World(self.plane, self.kube, self._stored).manifest(obj, namespace)
        self._stored[namespace, name] = await self.kube.create(made)

    async def grant(self) -> None:
        """Let every caller do everything, as far as rights go."""
        group = "rbac.authorization.k8s.io"
        subject = {"kind": "Group", "name": RIGHTS, "apiGroup": group}
        role = {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"}
        metadata = {"name": RIGHTS}
        binding = {"apiVersion": f"{group}/v1", "kind": "ClusterRoleBinding", "metadata": metadata}
        await self.kube.apply({**binding, "roleRef": role, "subjects": [subject]})


def is_of_cluster(obj: Object) -> bool:
    """Whether objects of this kind have no namespace."""
    return obj["kind"] in {
        *("GPUClass", "Namespace", "ClusterRole", "PriorityClass", "RuntimeClass", "Node", "PersistentVolume")
    }


def policies_of(plane: ControlPlane, values: Mapping[str, Any] | None = None) -> dict[str, tuple[Object, Object]]:
    """The policies that the chart renders, each with its binding, by name."""
    found: dict[str, dict[str, Object]] = {}
    for obj in rendered(plane, values or {}):
        if obj["kind"] == "ValidatingAdmissionPolicy":
            found.setdefault(obj["metadata"]["name"], {})["policy"] = obj
        elif obj["kind"] == "ValidatingAdmissionPolicyBinding":
            found.setdefault(obj["spec"]["policyName"], {})["binding"] = obj
    return {name: (pair["policy"], pair["binding"]) for name, pair in found.items()}


def crds_of(plane: ControlPlane) -> list[dict[str, Any]]:
    """The chart's kinds; a class may have a second kind of source, as a later version's."""
    crds = [copy.deepcopy(obj) for obj in rendered(plane, {}) if obj["kind"] == "CustomResourceDefinition"]
    for crd in crds:
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        if source := schema["properties"]["spec"]["properties"].get("source"):
            source["properties"]["dra"] = {"type": "object", "properties": {"deviceClassName": {"type": "string"}}}
            rules = source["x-kubernetes-validations"]
            rules[0]["rule"] = "[has(self.devicePlugin), has(self.dra)].exists_one(kind, kind)"
    return crds


def install_crds(plane: ControlPlane) -> None:
    """Have the chart's kinds served, and known to the controllers; also where they are already."""
    for crd in [*crds_of(plane), THING]:
        try:
            plane.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
        except APIError as error:
            if error.code != HTTPStatus.CONFLICT:
                raise
    plane.wait_for_crds()
    plane.restart_controller_manager()


async def create_all(kube: Client, objects: Sequence[Object]) -> None:
    """Create objects, many at a time."""
    gate = asyncio.Semaphore(MANY)

    async def one(obj: Object) -> None:
        async with gate:
            await kube.create(obj)

    await asyncio.gather(*map(one, objects))
