"""What is posted: recorded AdmissionReviews of three sizes, by reference and by template."""

import json
import shutil
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent.parent

REVIEWS: Final = ROOT / "tests" / "reviews"
_LABEL: Final = "gpu.cozystack.io/device-reference"
_TEMPLATE: Final = "gpu.cozystack.io/device-template"


class Case(NamedTuple):
    """The ratios are what the pair has to reach of the throughput of a bare handler, and of a peer that answers it."""

    name: str
    path: str
    body: bytes
    bare_ratio: float
    peer_ratio: float | None = None


def cases() -> list[Case]:
    """The cases, the least first."""
    train = _load("train.mutate.create.virtualmachineinstances.kubevirt-controller.1.json")
    update = _load("train.validate.update.virtualmachineinstances.admin.2.json")
    big = _load("big.mutate.create.virtualmachineinstances.admin.1.json")
    return [
        Case("3 KB create, by reference", "/mutate", _by_reference(train, "bench-1"), 0.65, 2.5),
        Case("3 KB create, by template", "/mutate", _by_template(train, 1), 0.65, 2.5),
        Case("8 KB update", "/validate", _dumped(update), 0.65),
        Case("63 KB create, by reference", "/mutate", _by_reference(big, "bench-8"), 0.45, 8.0),
        Case("63 KB create, by template", "/mutate", _by_template(big, 8), 0.45, 8.0),
    ]


def make_catalog(folder: Path) -> Path:
    """The catalog of examples/, with the devices that are referred to."""
    catalog = folder / "catalog"
    shutil.copytree(ROOT / "examples" / "catalog", catalog)
    devices = [
        {
            "apiVersion": "gpu.cozystack.io/v1alpha1",
            "kind": "GPUDevice",
            "metadata": {"name": f"bench-{count}", "namespace": "tenant-a"},
            "spec": {"className": "h200", "count": count},
        }
        for count in (1, 8)
    ]
    (catalog / "bench.json").write_text(json.dumps({"kind": "List", "items": devices}))
    return catalog


def _load(name: str) -> dict[str, Any]:
    review: dict[str, Any] = json.loads((REVIEWS / name).read_text())
    return review


def _dumped(review: dict[str, Any]) -> bytes:
    return json.dumps(review, separators=(",", ":")).encode()


def _by_reference(review: dict[str, Any], device: str) -> bytes:
    changed = json.loads(json.dumps(review))
    metadata = changed["request"]["object"]["metadata"]
    metadata.setdefault("labels", {})[_LABEL] = device
    metadata["annotations"].pop(_TEMPLATE, None)
    return _dumped(changed)


def _by_template(review: dict[str, Any], count: int) -> bytes:
    changed = json.loads(json.dumps(review))
    changed["request"]["dryRun"] = True
    order = json.dumps({"className": "h200", "count": count})
    changed["request"]["object"]["metadata"]["annotations"][_TEMPLATE] = order
    return _dumped(changed)
