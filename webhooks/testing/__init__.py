"""A kit to test against the admission pair: in anyone's suite that has an aiohttp test client.

Load the fixtures with ``pytest_plugins = ["webhooks.testing.fixtures"]``; needs the extra ``testing``.
"""

from webhooks.testing.catalog import InMemoryCatalog
from webhooks.testing.pair import Admitted, Pair
from webhooks.testing.reply import Reply, assert_patched
from webhooks.testing.reviews import ADMIN, TENANT, VIRT_CONTROLLER, User, persisted, review

__all__ = [
    "ADMIN",
    "TENANT",
    "VIRT_CONTROLLER",
    "Admitted",
    "InMemoryCatalog",
    "Pair",
    "Reply",
    "User",
    "assert_patched",
    "persisted",
    "review",
]
