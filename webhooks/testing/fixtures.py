"""Pytest fixtures; load them with ``pytest_plugins = ["webhooks.testing.fixtures"]``.

They stand on ``aiohttp_client`` of pytest-aiohttp. Override ``gpu_catalog`` to fill the catalog, ``gpu_settings`` to
change the settings.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from aiohttp.web import Application

from webhooks.app import make_app
from webhooks.settings import Settings
from webhooks.testing.catalog import InMemoryCatalog
from webhooks.testing.pair import Pair


@pytest.fixture
def gpu_catalog() -> InMemoryCatalog:
    """An empty catalog."""
    return InMemoryCatalog()


@pytest.fixture
def gpu_settings() -> Settings:
    """The default settings."""
    return Settings()


@pytest.fixture
async def gpu_pair(
    aiohttp_client: Callable[[Application], Awaitable[TestClient[Any, Any]]],
    gpu_catalog: InMemoryCatalog,
    gpu_settings: Settings,
) -> Pair:
    """The pair, served on ``gpu_catalog``."""
    return Pair(await aiohttp_client(make_app(catalog=gpu_catalog, settings=gpu_settings)))
