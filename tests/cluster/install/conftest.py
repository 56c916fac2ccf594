"""Control planes that the chart is installed on and taken from, again and again."""

from collections.abc import Callable

import pytest
from controlplane.plane import ControlPlane
from controlplane.versions import NEWEST, OLDEST
from sharing import ByVersion


@pytest.fixture(scope="session")
def install_planes(new_plane: Callable[..., ControlPlane]) -> Callable[[str], ControlPlane]:
    return ByVersion(lambda version: new_plane(version=version), stop=ControlPlane.stop)


@pytest.fixture(scope="session", params=[NEWEST, OLDEST])
def plane(request: pytest.FixtureRequest, install_planes: Callable[[str], ControlPlane]) -> ControlPlane:
    return install_planes(request.param)
