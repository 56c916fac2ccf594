"""The controller where things go wrong: on a control plane with the chart installed, on which no other one runs."""

from collections.abc import Callable

import pytest
from controlplane.plane import ControlPlane
from controlplane.versions import NEWEST
from installed import Installed


@pytest.fixture(scope="session", params=[NEWEST])
def plane(request: pytest.FixtureRequest, installations: Callable[[str], Installed]) -> ControlPlane:
    """The control plane of the installation of the newest version."""
    return installations(request.param).plane
