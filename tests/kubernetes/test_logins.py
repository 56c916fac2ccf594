"""Where the API server is and who we are there: read from a pod's files or a kubeconfig, and again when they change."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from scripted import Script, raw, serving, status
from structlog.testing import capture_logs

from certs import SelfSigned
from cluster import connection
from cluster.api import Api
from cluster.connect import source
from cluster.errors import ApiError, NotConfigured, Unreachable
from cluster.kinds import PODS
from cluster.login import Source, from_kubeconfig, in_cluster

OK = raw(200, b'{"kind":"Pod"}')


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_AT_MOST_EVERY", 0.0)


def kubeconfig(path: Path, *, server: str = "http://127.0.0.1:1", **user: Any) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u"}},
            {"name": "two", "context": {"cluster": "c", "user": "nobody"}},
        ],
    }
    path.write_text(yaml.safe_dump(config))
    return path


async def sent(script: Script, login: Source) -> Mapping[str, Any]:
    """The headers of a call."""
    api = await Api.of(login)
    await api.get(PODS, "a", namespace="b")
    await api.close()
    return script.headers[-1]


@asynccontextmanager
async def listening(*answers: Any) -> AsyncIterator[tuple[Script, str]]:
    script = Script(*answers)
    async with serving(script) as api:
        yield script, str(api._connection._login.configuration.host)


async def test_a_user_of_a_kubeconfig_may_be_somebody_else_in_groups(tmp_path: Path) -> None:
    user = {"token": "t", "as": "jane", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"why": ["x", "y"]}}
    async with listening(OK) as (script, url):
        path = kubeconfig(tmp_path / "config", server=url, **user)
        headers = await sent(script, from_kubeconfig(str(path), context=None))

    assert headers["Authorization"] == "Bearer t"
    assert headers["Impersonate-User"] == "jane"
    assert headers["Impersonate-Uid"] == "7"
    assert headers.getall("Impersonate-Group") == ["a", "b"]  # type: ignore[attr-defined]
    assert headers.getall("Impersonate-Extra-why") == ["x", "y"]  # type: ignore[attr-defined]


async def test_another_context_has_another_user(tmp_path: Path) -> None:
    async with listening(OK) as (script, url):
        path = kubeconfig(tmp_path / "config", server=url, token="t")
        headers = await sent(script, from_kubeconfig(str(path), context="two"))

    assert "Authorization" not in headers


async def test_a_token_that_is_not_taken_is_read_again_and_the_call_sent_once_more(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    async with listening(OK, status(401), OK) as (script, url):
        path = kubeconfig(tmp_path / "config", server=url, tokenFile=str(token))
        api = await Api.of(from_kubeconfig(str(path), context=None))
        await api.get(PODS, "a", namespace="b")
        token.write_text("new\n")
        await api.get(PODS, "a", namespace="b")
        await api.close()

    assert [headers["Authorization"] for headers in script.headers] == ["Bearer old", "Bearer old", "Bearer new"]


async def test_a_token_that_is_not_taken_and_the_same_again_is_not_sent_twice(tmp_path: Path) -> None:
    async with listening(status(401), OK) as (script, url):
        path = kubeconfig(tmp_path / "config", server=url, token="t")
        api = await Api.of(from_kubeconfig(str(path), context=None))
        with pytest.raises(ApiError) as refused:
            await api.get(PODS, "a", namespace="b")
        await api.close()

    assert refused.value.code == 401
    assert len(script.asked) == 1


async def test_a_kubeconfig_with_another_token_is_read_again(tmp_path: Path) -> None:
    async with listening(status(401), OK) as (script, url):
        path = kubeconfig(tmp_path / "config", server=url, token="old")
        api = await Api.of(from_kubeconfig(str(path), context=None))
        kubeconfig(path, server=url, token="new")
        await api.get(PODS, "a", namespace="b")
        await api.close()

    assert [headers["Authorization"] for headers in script.headers] == ["Bearer old", "Bearer new"]


async def test_a_token_is_read_again_before_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    async with listening(OK, OK) as (script, url):
        path = kubeconfig(tmp_path / "config", server=url, tokenFile=str(token))
        api = await Api.of(from_kubeconfig(str(path), context=None))
        await api.get(PODS, "a", namespace="b")
        token.write_text("new")
        monkeypatch.setattr(connection, "LOOK_EVERY", 0.0)
        await api.get(PODS, "a", namespace="b")
        await api.close()

    assert [headers["Authorization"] for headers in script.headers] == ["Bearer old", "Bearer new"]


async def test_a_plugin_that_gives_tokens_is_asked_again_when_one_is_not_taken(tmp_path: Path) -> None:
    counter, plugin = tmp_path / "counter", tmp_path / "plugin"
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    text = json.dumps({**credential, "status": {"token": "TOKEN"}})
    plugin.write_text(f"#!/bin/sh\necho x >> {counter}\necho '{text}' | sed s/TOKEN/t$(wc -l < {counter})/\n")
    plugin.chmod(0o700)
    async with listening(status(401), OK) as (script, url):
        run = {"command": str(plugin), "apiVersion": credential["apiVersion"]}
        path = kubeconfig(tmp_path / "config", server=url, exec=run)
        await sent(script, from_kubeconfig(str(path), context=None))

    assert [headers["Authorization"] for headers in script.headers] == ["Bearer t1", "Bearer t2"]


async def test_calls_that_are_refused_at_the_same_time_all_have_the_new_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_AT_MOST_EVERY", 60.0)
    counter, plugin = tmp_path / "counter", tmp_path / "plugin"
    text = '{"apiVersion":"v","kind":"ExecCredential","status":{"token":"TOKEN"}}'
    plugin.write_text(
        f"#!/bin/sh\necho x >> {counter}\nsleep 0.3\necho '{text}' | sed s/TOKEN/t$(wc -l < {counter})/\n"
    )
    plugin.chmod(0o700)
    async with listening(*[status(401)] * 3, *[OK] * 3) as (script, url):
        run = {"command": str(plugin), "apiVersion": "v"}
        path = kubeconfig(tmp_path / "config", server=url, exec=run)
        api = await Api.of(from_kubeconfig(str(path), context=None))
        await asyncio.gather(*(api.get(PODS, "a", namespace="b") for _ in range(3)))
        await api.close()

    assert [headers["Authorization"] for headers in script.headers] == ["Bearer t1"] * 3 + ["Bearer t2"] * 3


async def test_while_a_token_can_not_be_read_the_last_one_is_used_and_that_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LOOK_EVERY", 0.0)
    token = tmp_path / "token"
    token.write_text("old")
    async with listening(OK, OK, OK) as (script, url):
        path = kubeconfig(tmp_path / "config", server=url, tokenFile=str(token))
        api = await Api.of(from_kubeconfig(str(path), context=None))
        token.unlink()
        with capture_logs() as logs:
            for _ in range(3):
                await api.get(PODS, "a", namespace="b")
        await api.close()

    assert {headers["Authorization"] for headers in script.headers} == {"Bearer old"}
    assert [line["event"] for line in logs] == ["login can't be read again, the last one is kept"]


@asynccontextmanager
async def tls(certificates: SelfSigned, *, port: int = 0) -> AsyncIterator[int]:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"kind": "Pod"})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=certificates.serving.context).start()
    yield runner.addresses[0][1]
    await runner.cleanup()


async def test_a_pod_s_files_are_used_and_a_new_ca_gives_new_connections(tmp_path: Path) -> None:
    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("t")
    first, second = SelfSigned(names=["127.0.0.1"]), SelfSigned(names=["127.0.0.1"])
    ca.write_bytes(first.ca_pem)
    async with tls(first) as port:
        environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
        api = await Api.of(in_cluster(token_file=token, ca_file=ca, environ=environ))
        await api.get(PODS, "a", namespace="b")
    async with tls(second, port=port):
        with pytest.raises(Unreachable):
            await api.get(PODS, "a", namespace="b")
        ca.write_bytes(b"half of a f")
        with pytest.raises(Unreachable):
            await api.get(PODS, "a", namespace="b")
        ca.write_bytes(second.ca_pem)
        await api.get(PODS, "a", namespace="b")
        assert len(api._connection._users) == 1
    await api.close()


async def test_a_server_that_the_ca_does_not_vouch_for_is_not_spoken_to(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_bytes(SelfSigned(names=["127.0.0.1"]).ca_pem)
    async with tls(SelfSigned(names=["127.0.0.1"])) as port:
        environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
        login = in_cluster(token_file=tmp_path / "token", ca_file=tmp_path / "ca.crt", environ=environ)
        api = await Api.of(login)
        with pytest.raises(Unreachable, match="certificate verify failed"):
            await api.get(PODS, "a", namespace="b")
        await api.close()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not YAML"),
        ("", "is no kubeconfig|can't be used"),
        ("just text", "can't be used|is no kubeconfig"),
        ("apiVersion: v1\nkind: Config\n", "Expected key current-context"),
        (yaml.safe_dump({"current-context": "x", "contexts": [], "clusters": [], "users": []}), "name x in"),
        (yaml.safe_dump({"current-context": "x", "contexts": 3, "clusters": [], "users": []}), "can't be used"),
    ],
)
async def test_a_broken_kubeconfig_is_told_with_its_name(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)

    with pytest.raises(NotConfigured, match=problem) as told:
        await from_kubeconfig(str(path), context=None)(anew=True)
    assert str(path) in str(told.value)
    assert "\n" not in str(told.value)


async def test_broken_keys_and_files_that_are_not_there_are_told(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", server="https://127.0.0.1:1", tokenFile=str(tmp_path / "none"))
    with pytest.raises(NotConfigured, match="none"):
        await from_kubeconfig(str(path), context=None)(anew=True)

    broken = base64.b64encode(b"no certificate").decode()
    data = {"client-certificate-data": broken, "client-key-data": broken}
    path = kubeconfig(tmp_path / "config", server="https://127.0.0.1:1", **data)
    with pytest.raises(NotConfigured, match="client certificate"):
        await Api.of(from_kubeconfig(str(path), context=None))


def test_where_nothing_says_where_the_api_server_is_that_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotConfigured, match="no kubeconfig is named, this is no pod"):
        source(kubeconfig=None, context=None, environ={"HOME": str(tmp_path)}, token_file=tmp_path / "none")


async def test_a_kubeconfig_that_is_named_and_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotConfigured, match=r"there is no kubeconfig at .*nowhere"):
        await source(kubeconfig=tmp_path / "nowhere", context=None)(anew=True)
    environ = {"KUBECONFIG": str(tmp_path / "nowhere-either")}
    with pytest.raises(NotConfigured, match="nowhere-either"):
        await source(kubeconfig=None, context=None, environ=environ)(anew=True)


async def test_the_order_in_which_places_are_looked_at(tmp_path: Path) -> None:
    named, variable, home = tmp_path / "named", tmp_path / "variable", tmp_path / ".kube" / "config"
    home.parent.mkdir()
    for number, path in enumerate((named, variable, home), 1):
        kubeconfig(path, server=f"http://127.0.0.1:{number}")
    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("t")
    ca.write_bytes(SelfSigned(names=["x"]).ca_pem)
    pod = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "4"}
    environ = {"HOME": str(tmp_path), **pod}

    async def host(environ: Mapping[str, str], *, given: Path | None = None, context: str | None = None) -> str:
        found = source(kubeconfig=given, context=context, environ=environ, token_file=token, ca_file=ca)
        return str((await found(anew=True)).configuration.host)

    assert await host({**environ, "KUBECONFIG": str(variable)}, given=named) == "http://127.0.0.1:1"
    assert await host({**environ, "KUBECONFIG": str(variable)}) == "http://127.0.0.1:2"
    assert await host(environ) == "https://127.0.0.1:4"
    assert await host(environ, context="one") == "http://127.0.0.1:3"
    assert await host({"HOME": str(tmp_path)}) == "http://127.0.0.1:3"
