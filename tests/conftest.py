"""What all tests stand on: the examples' catalog, the pair served on it, and the event loops that they run on."""

import asyncio
import gc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import sharing
import uvloop

from webhooks.testing import InMemoryCatalog

pytest_plugins = ["webhooks.testing.fixtures"]

EXAMPLES = Path(__file__).parent.parent / "examples"
ON_UVLOOP = {"test_server.py", "test_limits.py", "test_broken_connections.py", "test_client_certificates.py"}


def pytest_asyncio_loop_factories(
    config: pytest.Config,  # noqa: ARG001 - the hook's
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """A server's tests run on what ``serve`` runs on: its transports and timers differ in ways that count."""
    if item.path.name in ON_UVLOOP:
        return {"uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}


def pytest_collection_finish() -> None:
    """Nearly five thousand tests and all that they import stay to the end: the collector need not look through them."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def gpu_catalog() -> InMemoryCatalog:
    """The catalog of examples/, in which memory can be made to lag."""
    return InMemoryCatalog.from_directory(EXAMPLES / "catalog")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> sharing.Sharing:
    """Tests that share something expensive stay together; see ``sharing``."""
    return sharing.Sharing(config, log)
