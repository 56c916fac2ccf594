"""What the checks rest on, read from a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from cluster import kinds
from cluster.discovery import served
from cluster.errors import NotFound
from cluster.release import release_namespace
from cluster.selectors import selector_text
from gpu import names
from gpu.errors import CatalogError, FieldError
from gpu.gpuclass import GPUClass

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from cluster.api import Api
    from cluster.kinds import Kind

Obj = dict[str, Any]
T = TypeVar("T")

NEEDED: Final = (kinds.GPU_CLASSES, kinds.GPU_DEVICES, kinds.VMS, kinds.VMIS, kinds.MIGRATIONS)
"""The kinds without which no VM gets a GPU."""

_PROBE: Final = "gpu-webhooks-doctor"
_WORKLOADS: Final = "app.kubernetes.io/component in (admission, controller)"


@dataclass(slots=True, kw_only=True)
class Evidence:
    """What was found; what could not be read is in ``unread``, by the name of its field, with the reason.

    ``webhooks`` are the two configurations by kind, None for one that is not there; ``policies`` and ``bindings`` those
    of the cluster by name; ``broken`` the classes that can't be read, with the reason. ``rewritten`` is the answer to a
    dry-run VMI with a template, ``raw`` that to one with a raw name; an error where it was refused.
    """

    version: Obj = field(default_factory=dict)
    missing: list[Kind] = field(default_factory=list)
    release: str = ""
    webhooks: dict[str, Obj | None] = field(default_factory=dict)
    policies: dict[str, Obj] = field(default_factory=dict)
    bindings: dict[str, Obj] = field(default_factory=dict)
    deployments: list[Obj] = field(default_factory=list)
    settings: Obj | None = None
    classes: list[GPUClass] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)
    tenants: list[str] = field(default_factory=list)
    nodes: list[Obj] = field(default_factory=list)
    kubevirts: list[Obj] = field(default_factory=list)
    virt_controller: Obj | None = None
    probed: GPUClass | None = None
    probed_in: str = ""
    rewritten: Obj | CatalogError | None = None
    raw: Obj | CatalogError | None = None
    unread: dict[str, str] = field(default_factory=dict)

    async def read(self, name: str, call: Awaitable[T], default: T) -> T:
        """What a call gives; ``default`` where it fails, which is noted."""
        try:
            return await call
        except CatalogError as error:
            self.unread[name] = str(error)
            return default


async def gather(
    api: Api, *, release: str | None, configuration: str, kubevirt_namespace: str, probed_in: str | None
) -> Evidence:
    """Read a cluster; nothing is written: what is created is a dry run, in ``probed_in`` or a tenant's namespace.

    Raises CatalogError where the API server does not answer at all.
    """
    found = Evidence(version=await api.document("/version"))
    found.missing = await found.read("missing", _missing(api), [])
    found.release = release or await found.read("release", release_namespace(api, configuration), None) or ""
    for kind in (kinds.MUTATING_WEBHOOKS, kinds.VALIDATING_WEBHOOKS):
        found.webhooks[kind.name] = await found.read("webhooks", api.find(kind, configuration), None)
    found.policies = await found.read("policies", _by_name(api, kinds.POLICIES), {})
    found.bindings = await found.read("bindings", _by_name(api, kinds.POLICY_BINDINGS), {})
    if found.release:
        deployments = api.items(kinds.DEPLOYMENTS, namespace=found.release, labels=_WORKLOADS)
        found.deployments = await found.read("deployments", deployments, [])
        settings = api.find(kinds.CONFIG_MAPS, names.SETTINGS, namespace=found.release)
        found.settings = await found.read("settings", settings, None)
    await _gather_offer(api, found)
    found.kubevirts = await found.read("kubevirts", _served_items(api, kinds.KUBEVIRTS), [])
    account = api.find(kinds.SERVICE_ACCOUNTS, "kubevirt-controller", namespace=kubevirt_namespace)
    found.virt_controller = await found.read("virt_controller", account, None)
    found.tenants = await found.read("tenants", _tenants(api, found.webhooks), [])
    found.probed_in = probed_in or next(iter(found.tenants), "")
    await _probe(api, found)
    return found


async def _missing(api: Api) -> list[Kind]:
    return [kind for kind in NEEDED if await served(api, kind) is None]


async def _by_name(api: Api, kind: Kind) -> dict[str, Obj]:
    return {obj["metadata"]["name"]: obj for obj in await api.items(kind)}


async def _served_items(api: Api, kind: Kind) -> list[Obj]:
    try:
        return await api.items(kind)
    except NotFound:
        return []


async def _gather_offer(api: Api, found: Evidence) -> None:
    for obj in await found.read("classes", _served_items(api, kinds.GPU_CLASSES), []):
        try:
            found.classes.append(GPUClass.from_dict(obj))
        except FieldError as error:
            found.broken[str(obj["metadata"]["name"])] = str(error)
    found.nodes = await found.read("nodes", api.items(kinds.NODES), [])


async def _tenants(api: Api, webhooks: Mapping[str, Obj | None]) -> list[str]:
    """The namespaces that the first webhook selects."""
    entries = [entry for found in webhooks.values() if found for entry in found.get("webhooks") or ()]
    if not entries:
        return []
    selector = selector_text(entries[0].get("namespaceSelector") or {})
    spaces = await api.items(kinds.NAMESPACES, labels=selector)
    return [space["metadata"]["name"] for space in spaces if not space["metadata"].get("deletionTimestamp")]


async def _probe(api: Api, found: Evidence) -> None:
    """Ask for a VMI with a template, and for one with a raw name, as dry runs in a tenant's namespace."""
    sold = [gpu_class for gpu_class in found.classes if gpu_class.resource_name and not gpu_class.deleting]
    if not (sold and found.probed_in and any(found.webhooks.values())) or kinds.VMIS in found.missing:
        return
    found.probed = sold[0]
    template = f'{{"className":"{found.probed.name}"}}'
    found.rewritten = await _tried(api, found.probed_in, _vmi({names.DEVICE_TEMPLATE: template}, {}))
    entry = {"name": "raw", "deviceName": found.probed.resource_name}
    found.raw = await _tried(api, found.probed_in, _vmi({}, {"hostDevices": [entry]}))


def _vmi(annotations: Mapping[str, str], devices: Mapping[str, Any]) -> Obj:
    return {
        "apiVersion": kinds.VMIS.api_version,
        "kind": names.VMI,
        "metadata": {"name": _PROBE, "annotations": annotations},
        "spec": {"domain": {"devices": devices, "memory": {"guest": "64Mi"}}},
    }


async def _tried(api: Api, namespace: str, vmi: Obj) -> Obj | CatalogError:
    try:
        return await api.create(kinds.VMIS, vmi, namespace=namespace, dry_run=True)
    except CatalogError as error:
        return error
