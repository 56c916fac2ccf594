"""What the environment has to say about calls: a proxy, and nothing else."""

import threading
from pathlib import Path

import pytest
from scripted import Script, serving, status

from cluster.connection import environment_proxy
from cluster.errors import ApiError, Unreachable
from cluster.kinds import PODS

NOBODY = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


async def call() -> Script:
    script = Script(status(403))
    async with serving(script) as api:
        with pytest.raises(ApiError):
            await api.get(PODS, "one", namespace="a")
    return script


async def test_calls_go_through_the_proxy_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", NOBODY)
    script = Script(status(403))
    async with serving(script) as api:
        with pytest.raises(Unreachable):
            await api.get(PODS, "one", namespace="a")
    assert script.asked == []


async def test_no_proxy_is_used_for_a_host_that_the_environment_excepts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", NOBODY)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert len((await call()).asked) == 1


@pytest.mark.parametrize(
    ("url", "proxy"),
    [("https://10.0.0.1:6443", "http://proxy:3128"), ("https://api.example.org", None), ("http://10.0.0.1", None)],
)
def test_the_proxy_is_that_of_the_scheme(url: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", "example.org")
    assert environment_proxy(url) == proxy


async def test_a_password_in_netrc_is_not_sent_to_the_api_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    assert "Authorization" not in (await call()).headers[0]


async def test_a_call_needs_no_thread() -> None:
    before = _workers()
    await call()
    assert _workers() == before


def _workers() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("asyncio_")}
