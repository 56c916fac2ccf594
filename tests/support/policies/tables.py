"""The table of each policy, by the policy's name."""

from collections.abc import Mapping, Sequence
from typing import Final

from policies.cases import Case
from policies.table_claims import CLAIMS, NETWORKS
from policies.table_devices import CLASS_DELETION, CLASS_PROTECTION, DEVICE_PROTECTION
from policies.table_grace_period import GRACE_PERIOD
from policies.table_raw_names import POD_RAW_NAMES, VMI_RAW_NAMES
from policies.table_reference import POD_FORCE_DELETION, POD_REFERENCE, VMI_ORPHAN, VMI_REFERENCE
from policies.table_usage_monitor import USAGE_MONITOR

TABLES: Final[Mapping[str, Sequence[Case]]] = {
    f"{name}.gpu.cozystack.io": table
    for name, table in {
        "vmi-raw-names": VMI_RAW_NAMES,
        "pod-raw-names": POD_RAW_NAMES,
        "vmi-reference": VMI_REFERENCE,
        "vmi-orphan": VMI_ORPHAN,
        "pod-reference": POD_REFERENCE,
        "pod-force-deletion": POD_FORCE_DELETION,
        "grace-period": GRACE_PERIOD,
        "usage-monitor": USAGE_MONITOR,
        "device-protection": DEVICE_PROTECTION,
        "class-protection": CLASS_PROTECTION,
        "class-deletion": CLASS_DELETION,
        "claims": CLAIMS,
        "networks": NETWORKS,
    }.items()
}
