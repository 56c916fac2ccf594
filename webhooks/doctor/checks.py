"""The checks: each a function of the evidence, whose docstring says what has to be so."""

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from cryptography import x509

from cluster.errors import ApiError
from gpu import names
from gpu.errors import FieldError
from gpu.offer import GPUSettings
from gpu.vmi import VMISpec
from webhooks.doctor.evidence import Evidence, Obj
from webhooks.doctor.finding import Finding
from webhooks.doctor.platform import kubevirt, nodes, virt_controller
from webhooks.doctor.policies import policies

OLDEST: Final = (1, 34)
"""The oldest Kubernetes that the chart is for."""

_SOON: Final = timedelta(days=7)
_CONFIGURATIONS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_UNREACHED: Final = re.compile(
    rf'failed calling webhook "[^"]*{re.escape(names.GROUP)}".*'
    "(deadline exceeded|i/o timeout|dial timeout|timed out|no route|connection refused)"
)
_OPEN: Final = (
    "is a replica ready? Then something shuts the API server out: a network policy that misses it (the chart's "
    "networkPolicy.admissionCIDRs, or another one of that namespace), or a firewall before admission.port; else the "
    "service is stuck, see its log"
)
_INSTALL: Final = "install the chart, or look at what its release says: helm status"


def diagnose(found: Evidence, *, now: datetime) -> list[Finding]:
    """What every check says, in the order in which a platform would mend it."""
    checks: tuple[Callable[[], Iterable[Finding]], ...] = (
        lambda: _version(found.version),
        lambda: _kinds(found),
        lambda: _configurations(found),
        lambda: _bundles(found.webhooks, now),
        lambda: policies(found),
        lambda: _workload(found),
        lambda: _tenants(found),
        lambda: _classes(found),
        lambda: _settings(found),
        lambda: nodes(found),
        lambda: kubevirt(found),
        lambda: virt_controller(found),
        lambda: _rewritten(found),
        lambda: _raw(found),
        lambda: _unread(found.unread),
    )
    return [finding for check in checks for finding in check()]


def _version(version: Mapping[str, Any]) -> Iterator[Finding]:
    """The API server is one that the chart is for."""
    told = str(version.get("gitVersion"))
    parts = [int(found[0]) if (found := re.match(r"\d+", str(version.get(key)))) else 0 for key in ("major", "minor")]
    if tuple(parts) >= OLDEST:
        yield Finding.ok("Kubernetes", told)
    else:
        oldest = ".".join(map(str, OLDEST))
        yield Finding.failure("Kubernetes", f"{told}; the chart is for {oldest} and later", "upgrade Kubernetes first")


def _kinds(found: Evidence) -> Iterator[Finding]:
    """Our kinds and KubeVirt's are served."""
    if "missing" in found.unread:
        return
    if not found.missing:
        yield Finding.ok("kinds", "GPUClass, GPUDevice and KubeVirt's are served")
    for kind in found.missing:
        ours = kind.group == names.GROUP
        todo = "install the chart: it brings the CRD" if ours else "install KubeVirt"
        yield Finding.failure("kinds", f"{kind.resource} is not served", todo)


def _configurations(found: Evidence) -> Iterator[Finding]:
    """Both webhook configurations are there, and every webhook of both selects the same namespaces."""
    if "webhooks" in found.unread:
        return
    missing = [kind for kind in _CONFIGURATIONS if found.webhooks.get(kind) is None]
    for kind in missing:
        yield Finding.failure("webhooks", f"there is no {kind} {names.WEBHOOKS}: nothing is checked", _INSTALL)
    entries = _entries(found.webhooks)
    if len({repr(entry.get("namespaceSelector")) for entry in entries}) > 1:
        seen = "the webhooks do not all select the same namespaces: some rules hold where others do not"
        yield Finding.failure("webhooks", seen, "helm upgrade, which sets every selector to the chart's")
    elif entries and not missing:
        yield Finding.ok("webhooks", f"both configurations are there, with {len(entries)} webhooks")


def _entries(webhooks: Mapping[str, Obj | None]) -> list[Obj]:
    return [entry for found in webhooks.values() if found for entry in found.get("webhooks") or ()]


def _bundles(webhooks: Mapping[str, Obj | None], now: datetime) -> Iterator[Finding]:
    """Every webhook has a caBundle that can be read and is valid now."""
    ends = []
    for found in filter(None, webhooks.values()):
        for entry in found.get("webhooks") or ():
            try:
                ends.append((_end(entry, now), found))
            except ValueError as error:
                yield Finding.failure("caBundle", f"{entry['name']}: {error}", _filled_by(found))
    if not ends or len(ends) < len(_entries(webhooks)):
        return
    first, of = min(ends, key=lambda end: end[0])
    if first - now < _SOON:
        seen = f"the caBundle ends at {first.isoformat()}"
        yield Finding.warning("caBundle", seen, f"it should have been renewed by now: {_filled_by(of)}")
    else:
        yield Finding.ok("caBundle", f"injected into all {len(ends)} webhooks, valid until {first.date()}")


def _filled_by(configuration: Obj) -> str:
    """What to do about a caBundle: who fills it, and where to look."""
    annotations = (configuration.get("metadata") or {}).get("annotations") or {}
    if certificate := annotations.get(names.INJECT_CA_FROM):
        namespace, _, name = certificate.rpartition("/")
        return (
            "cert-manager's cainjector fills it: is that running, and is its Certificate ready? "
            f"kubectl -n {namespace} describe certificate {name}"
        )
    return (
        "is the service running? It injects the caBundle, see the log of its pods; with another certificates.mode see "
        "who else does"
    )


def _end(entry: Mapping[str, Any], now: datetime) -> datetime:
    """When the last certificate of a webhook's caBundle ends. Raises ValueError for one that can't verify anything."""
    bundle = entry["clientConfig"].get("caBundle")
    if not bundle:
        raise ValueError("the caBundle is not injected, so that every call fails")
    try:
        certificates = x509.load_pem_x509_certificates(base64.b64decode(bundle))
    except ValueError:
        raise ValueError("the caBundle can't be read") from None
    end = max(certificate.not_valid_after_utc for certificate in certificates)
    if end <= now:
        raise ValueError(f"the caBundle expired at {end.isoformat()}")
    return end


def _workload(found: Evidence) -> Iterator[Finding]:
    """Every replica is ready."""
    for deployment in found.deployments:
        name = f"Deployment {deployment['metadata']['name']}"
        wanted = deployment["spec"].get("replicas", 1)
        ready = (deployment.get("status") or {}).get("readyReplicas", 0)
        seen = f"{ready} of {wanted} replicas are ready"
        todo = f"kubectl describe and logs of the pods in {found.release}"
        if ready == 0 and wanted:
            yield Finding.failure(name, seen, todo)
        else:
            yield Finding.ok(name, seen) if ready >= wanted else Finding.warning(name, seen, todo)


def _tenants(found: Evidence) -> Iterator[Finding]:
    """A namespace is a tenant's."""
    if not _entries(found.webhooks) or "tenants" in found.unread:
        return
    if found.tenants:
        yield Finding.ok("tenants", f"{len(found.tenants)} namespaces match the tenants' selector")
    else:
        todo = "set the chart's tenantNamespaceSelector to a label that tenants' namespaces have, or label them"
        yield Finding.warning("tenants", "no namespace matches the tenants' selector, so that nothing is checked", todo)


def _classes(found: Evidence) -> Iterator[Finding]:
    """A class is offered, and every class can be read."""
    for name, problem in found.broken.items():
        yield Finding.failure(f"GPUClass {name}", problem, "mend the class; until then nothing of it can be ordered")
    if found.classes:
        yield Finding.ok("classes", ", ".join(sorted(gpu_class.name for gpu_class in found.classes)))
    elif not found.broken and "classes" not in found.unread:
        yield Finding.warning("classes", "no GPUClass is offered", "create one, see the README")


def _settings(found: Evidence) -> Iterator[Finding]:
    """The settings are published, with the resource name of every class."""
    if not found.release or "settings" in found.unread:
        return
    subject, todo = f"ConfigMap {names.SETTINGS}", "is the controller that publishes it running?"
    if found.settings is None:
        seen = (
            f"is not there in {found.release}: no device is held, and the policies refuse every new VMI, pod and claim "
            "of tenants, with GPUs or without ('no params found for policy binding')"
        )
        yield Finding.failure(subject, seen, todo)
        return
    try:
        settings = GPUSettings.from_dict(found.settings)
    except FieldError as error:
        yield Finding.failure(subject, str(error), "delete it: the controller makes it again whole")
        return
    sold = {name for gpu_class in found.classes for name in gpu_class.resource_names}
    if lacking := sorted(sold - settings.resource_names):
        yield Finding.failure(subject, f"lacks {', '.join(lacking)}, which a class sells", todo)
    else:
        yield Finding.ok(subject, f"{len(settings.resource_names)} resource names")


def _rewritten(found: Evidence) -> Iterator[Finding]:
    """A VMI with a device template goes through the pair, and comes out with what a device grants."""
    if found.rewritten is None or found.probed is None:
        return
    subject = f"dry run with a template in {found.probed_in}"
    if isinstance(found.rewritten, ApiError) and _not_allowed(found.rewritten):
        yield Finding.warning(subject, found.rewritten.message, "run as somebody who may create VMIs there")
    elif isinstance(found.rewritten, Exception):
        todo = _todo(found.rewritten, otherwise="do what it says; else see the service's log")
        yield Finding.failure(subject, f"was refused: {found.rewritten}", todo)
    else:
        spec = VMISpec.read(found.rewritten)
        granted = [entry.get("deviceName") for entry in spec.gpus] == [found.probed.resource_name]
        if spec.reference and granted:
            yield Finding.ok(subject, "went through the pair: it would have a device built")
        else:
            seen = "came back as it was sent: the pair was not asked"
            yield Finding.failure(
                subject, seen, "look at the webhooks above: their rules, selector and match conditions"
            )


def _raw(found: Evidence) -> Iterator[Finding]:
    """A VMI that names a GPU by its raw name is refused."""
    if found.raw is None or found.probed is None:
        return
    subject = f"dry run with a raw name in {found.probed_in}"
    if not isinstance(found.raw, Exception):
        seen = f"{found.probed.resource_name} in hostDevices was let in: a tenant can take a GPU without a device"
        todo = "look at the policies and webhooks above: their rules, selector and match conditions"
        yield Finding.failure(subject, seen, todo)
    elif isinstance(found.raw, ApiError) and _not_allowed(found.raw):
        yield Finding.warning(subject, found.raw.message, "run as somebody who may create VMIs there")
    elif str(found.probed.resource_name) not in str(found.raw):
        todo = _todo(found.raw, otherwise="see the service's log")
        yield Finding.failure(subject, f"was refused, but not as a raw name: {found.raw}", todo)
    else:
        yield Finding.ok(subject, f"was refused{_by(str(found.raw))}")


def _todo(error: Exception, *, otherwise: str) -> str:
    """What to do about a dry run that failed: the API server may not have reached the service at all."""
    return _OPEN if _UNREACHED.search(str(error)) else otherwise


def _by(message: str) -> str:
    """Who refused, as far as the API server's message tells (apiserver/pkg/admission/plugin)."""
    if policy := re.search(r"ValidatingAdmissionPolicy '([^']+)'", message):
        return f" by the policy {policy[1]}"
    webhook = re.search(r'admission webhook "([^"]+)" denied', message)
    return f" by the webhook {webhook[1]}" if webhook else ""


def _not_allowed(error: ApiError) -> bool:
    """Whether the account itself may not create VMIs; admission's refusals are 403 too, but say who refused."""
    return error.code == 403 and " cannot create resource " in error.message


def _unread(unread: Mapping[str, str]) -> Iterator[Finding]:
    """Everything could be read."""
    for name, problem in unread.items():
        yield Finding.warning(name.replace("_", "-"), f"could not be read: {problem}", "run as somebody who may")
