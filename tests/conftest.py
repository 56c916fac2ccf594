"""What all tests stand on: the examples' catalog, and the pair served on it."""

from pathlib import Path

import pytest

from webhooks.testing import InMemoryCatalog

pytest_plugins = ["webhooks.testing.fixtures"]

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def gpu_catalog() -> InMemoryCatalog:
    """The catalog of examples/, in which memory can be made to lag."""
    return InMemoryCatalog.from_directory(EXAMPLES / "catalog")
