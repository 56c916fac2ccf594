"""``gpu-webhooks serve``: its errors, its settings, and a real process from start to stop."""

import asyncio
import io
import json
import logging
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog
from click.testing import CliRunner, Result
from processes import Process, serve

from webhooks.cli import main
from webhooks.cli.serve import least_drain
from webhooks.testing import Reply, review

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
H200 = "nvidia.com/GH100_H200_SXM_141GB"
JSON = {"Content-Type": "application/json"}
SECRET = "hunter2-do-not-log"

AT_ANY_PORT = ("--port", "0", "--plain-port", "0", "--drain-quiet", "0.05")

OPTIONS = {
    "--catalog": ("GPU_WEBHOOKS_CATALOG", ""),
    "--kubeconfig": ("GPU_WEBHOOKS_KUBECONFIG", ""),
    "--context": ("GPU_WEBHOOKS_CONTEXT", ""),
    "--namespace": ("GPU_WEBHOOKS_NAMESPACE", ""),
    "--service": ("GPU_WEBHOOKS_SERVICE", "gpu-webhooks"),
    "--certificate-secret": ("GPU_WEBHOOKS_CERTIFICATE_SECRET", "gpu-webhooks-ca"),
    "--ca-lifetime": ("GPU_WEBHOOKS_CA_LIFETIME", "365d"),
    "--leaf-lifetime": ("GPU_WEBHOOKS_LEAF_LIFETIME", "7d"),
    "--settle-time": ("GPU_WEBHOOKS_SETTLE_TIME", "30s"),
    "--clock-skew": ("GPU_WEBHOOKS_CLOCK_SKEW", "1h"),
    "--tls-cert": ("GPU_WEBHOOKS_TLS_CERT", ""),
    "--tls-key": ("GPU_WEBHOOKS_TLS_KEY", ""),
    "--webhook-configuration": ("GPU_WEBHOOKS_WEBHOOK_CONFIGURATION", "gpu-webhooks"),
    "--host": ("GPU_WEBHOOKS_HOST", "127.0.0.1"),
    "--port": ("GPU_WEBHOOKS_PORT", "9443"),
    "--plain-port": ("GPU_WEBHOOKS_PLAIN_PORT", "8080"),
    "--tls-name": ("GPU_WEBHOOKS_TLS_NAMES", ""),
    "--ca-file": ("GPU_WEBHOOKS_CA_FILE", ""),
    "--client-ca-file": ("GPU_WEBHOOKS_CLIENT_CA_FILE", ""),
    "--client-name": ("GPU_WEBHOOKS_CLIENT_NAMES", ""),
    "--kubevirt-namespace": ("GPU_WEBHOOKS_KUBEVIRT_NAMESPACE", "kubevirt"),
    "--platform-group": ("GPU_WEBHOOKS_PLATFORM_GROUPS", "system:masters"),
    "--platform-user": ("GPU_WEBHOOKS_PLATFORM_USERS", "system:kube-controller-manager"),
    "--largest-body": ("GPU_WEBHOOKS_LARGEST_BODY", "8"),
    "--most-in-flight": ("GPU_WEBHOOKS_MOST_IN_FLIGHT", "512"),
    "--most-bodies": ("GPU_WEBHOOKS_MOST_BODIES", "64"),
    "--most-connections": ("GPU_WEBHOOKS_MOST_CONNECTIONS", "2048"),
    "--head-timeout": ("GPU_WEBHOOKS_HEAD_TIMEOUT", "10.0"),
    "--connection-age": ("GPU_WEBHOOKS_CONNECTION_AGE", "300.0"),
    "--drain-quiet": ("GPU_WEBHOOKS_DRAIN_QUIET", "0.5"),
    "--drain-least": ("GPU_WEBHOOKS_DRAIN_LEAST", ""),
    "--drain-timeout": ("GPU_WEBHOOKS_DRAIN_TIMEOUT", "20.0"),
    "--log-format": ("GPU_WEBHOOKS_LOG_FORMAT", "json"),
    "--log-level": ("GPU_WEBHOOKS_LOG_LEVEL", "info"),
}


def vmi(*gpus: str, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    entries = [{"name": f"g{index}", "deviceName": name} for index, name in enumerate(gpus)]
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "vm", "namespace": "tenant-a", "labels": dict(labels or {})},
        "spec": {"domain": {"devices": {"gpus": entries}}, "volumes": [{"cloudInitNoCloud": {"userData": SECRET}}]},
    }


@pytest.fixture
def restored_logs() -> Iterator[None]:
    """Leaves logging as it was: ``serve`` sets it up for its process."""
    handlers = logging.getLogger().handlers[:]
    yield
    structlog.reset_defaults()
    logging.getLogger().handlers = handlers


def run(*arguments: str, **env: str) -> Result:
    return CliRunner().invoke(main, ["serve", *arguments], env=env, terminal_width=200)


def assert_told(result: Result, code: int, *telling: str) -> None:
    """It ended with this code and an error of one line, without a traceback."""
    assert result.exit_code == code
    assert isinstance(result.exception, SystemExit)
    last = result.output.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    assert all(text in last for text in telling), last


@pytest.mark.usefixtures("restored_logs")
class TestErrors:
    def test_without_a_catalog_the_release_has_to_be_named(self) -> None:
        result = run()

        assert_told(result, 2, "--namespace", "--catalog")

    def test_a_kubeconfig_that_is_not_there_is_told(self, tmp_path: Path) -> None:
        result = run("--namespace", "gpu-system", "--kubeconfig", str(tmp_path / "none"))

        assert_told(result, 1, "there is no kubeconfig at", str(tmp_path / "none"))

    def test_a_missing_directory_is_told(self, tmp_path: Path) -> None:
        result = run("--catalog", str(tmp_path / "none"))

        assert_told(result, 1, str(tmp_path / "none"), "no such file or directory")

    def test_a_name_that_no_directory_can_have_is_told(self) -> None:
        result = run("--catalog", "x" * 5000)

        assert_told(result, 1, "File name too long")

    def test_a_broken_catalog_is_told_with_file_object_and_field(self, tmp_path: Path) -> None:
        (tmp_path / "h200.yaml").write_text("kind: GPUClass\nmetadata: {name: h200}\nspec: {mode: Half}\n")

        result = run("--catalog", str(tmp_path))

        assert_told(result, 1, str(tmp_path / "h200.yaml"), "GPUClass 'h200'", "spec.mode")

    def test_broken_yaml_is_told_with_its_line(self, tmp_path: Path) -> None:
        (tmp_path / "a.yaml").write_text("kind: GPUClass\nmetadata: {name: h200\n")

        result = run("--catalog", str(tmp_path))

        assert_told(result, 1, str(tmp_path / "a.yaml"), "line 2")

    @pytest.mark.parametrize(
        ("option", "value", "telling"),
        [
            ("--port", "65536", "65536 is not in the range 0<=x<=65535"),
            ("--port", "https", "'https' is not a valid integer"),
            ("--plain-port", "-1", "-1 is not in the range"),
            ("--most-in-flight", "0", "0 is not in the range x>=1"),
            ("--largest-body", "0", "0 is not in the range x>=1"),
            ("--most-bodies", "0", "0 is not in the range x>=1"),
            ("--most-connections", "0", "0 is not in the range x>=1"),
            ("--head-timeout", "0", "0.0 is not in the range x>0"),
            ("--connection-age", "-1", "-1.0 is not in the range x>=0"),
            ("--drain-timeout", "-1", "-1.0 is not in the range x>=0"),
            ("--log-format", "xml", "'xml' is not one of 'json', 'console'"),
            ("--log-level", "loud", "'loud' is not one of"),
        ],
    )
    def test_a_value_that_an_option_cannot_have_is_told(self, option: str, value: str, telling: str) -> None:
        result = run("--catalog", str(EXAMPLES / "catalog"), option, value)

        assert_told(result, 2, f"Invalid value for '{option}'", telling)

    def test_a_body_larger_than_all_that_are_held_together_is_told(self) -> None:
        result = run("--catalog", str(EXAMPLES / "catalog"), "--most-bodies", "4", "--largest-body", "5")

        assert_told(result, 2, "--most-bodies 4 is less than --largest-body 5", "could never be read")

    def test_names_of_callers_that_nobody_verifies_are_told(self) -> None:
        result = run("--catalog", str(EXAMPLES / "catalog"), "--client-name", "kube-apiserver")

        assert_told(result, 2, "--client-name says nothing without --client-ca-file")

    def test_a_variable_that_an_option_cannot_have_is_told(self) -> None:
        result = run("--catalog", str(EXAMPLES / "catalog"), GPU_WEBHOOKS_PORT="65536")

        assert_told(result, 2, "Invalid value for '--port'", "65536")


class TestErrorsOfTheStart:
    """In a process of its own, with an end: what is not refused would serve for ever."""

    def refused(self, *arguments: str) -> str:
        """The one line of the error that it ended with."""
        command = [sys.executable, "-m", "webhooks", "serve", "--catalog", str(EXAMPLES / "catalog"), *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        assert ended.returncode == 1
        (line,) = ended.stderr.splitlines()
        assert line.startswith("Error: ")
        return line

    def test_a_port_in_use_is_told(self) -> None:
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()

            error = self.refused("--port", str(holder.getsockname()[1]), "--plain-port", "0")

        assert "address already in use" in error

    def test_an_address_that_is_not_there_is_told(self) -> None:
        error = self.refused("--host", "192.0.2.1", "--port", "0")

        assert "192.0.2.1" in error

    def test_a_name_that_no_certificate_can_have_is_told(self) -> None:
        error = self.refused("--tls-name", "not a name", *AT_ANY_PORT)

        assert "'not a name' is neither a DNS name nor an IP address" in error

    def test_a_ca_file_that_cannot_be_written_is_told(self, tmp_path: Path) -> None:
        error = self.refused("--ca-file", str(tmp_path / "none" / "ca.crt"), *AT_ANY_PORT)

        assert "No such file or directory" in error
        assert str(tmp_path / "none" / "ca.crt") in error

    def test_authorities_of_callers_that_cannot_be_read_are_told(self, tmp_path: Path) -> None:
        error = self.refused("--client-ca-file", str(tmp_path / "none"), *AT_ANY_PORT)

        assert f"The clients' CA in {tmp_path / 'none'} can't be read: no such file or directory." in error


def test_help_shows_each_option_with_its_variable_and_default() -> None:
    result = run("--help")

    options = dict(re.findall(r"^  (--[a-z-]+) (.*?)(?=^  -|\Z)", result.output, re.MULTILINE | re.DOTALL))
    texts = {option: " ".join(text.split()) for option, text in options.items()}
    assert texts.keys() == OPTIONS.keys()
    for option, (variable, default) in OPTIONS.items():
        assert f"env var: {variable}" in texts[option]
        assert default in texts[option]
        assert bool(default) == ("default:" in texts[option])


async def post(process: Process, path: str, manifest: dict[str, Any], ca_file: Path) -> Reply:
    tls = ssl.create_default_context(cafile=str(ca_file))
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{process.started['url']}{path}", json=review(manifest, uid="u-1"), ssl=tls) as response,
    ):
        return Reply.of(await response.read(), uid="u-1")


async def test_a_process_serves_over_verified_tls_until_it_is_told_to_stop(tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.crt"
    catalog = str(EXAMPLES / "catalog")

    async with serve("--catalog", catalog, *AT_ANY_PORT, "--ca-file", str(ca_file)) as process:
        patched = await post(process, "/mutate", vmi(labels={"gpu.cozystack.io/device-reference": "my-gpu"}), ca_file)
        refused = await post(process, "/validate", vmi(H200), ca_file)
        async with aiohttp.ClientSession() as session, session.get(f"{process.started['plain']}/metrics") as response:
            metrics = await response.text()
        code, lines = await process.stop()

    assert process.started["event"] == "serving"
    assert process.started["classes"] == ["h200", "l40s-24q"]
    assert process.started["ca_file"] == str(ca_file)
    assert patched.allowed
    assert patched.patch
    assert refused.code == 403
    assert 'verdict="refused"} 1.0' in metrics
    assert code == 0
    assert [line["event"] for line in lines] == ["refused", "draining", "stopped"]
    assert SECRET not in json.dumps(lines)


async def test_an_interrupt_stops_it_as_well(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    async with serve("--catalog", str(tmp_path / "empty"), *AT_ANY_PORT) as process:
        code, lines = await process.stop(signal.SIGINT)

    assert process.started["classes"] == []
    assert code == 0
    assert lines[-1]["event"] == "stopped"


async def test_variables_set_what_flags_set(tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.crt"
    variables = {
        "GPU_WEBHOOKS_CATALOG": str(EXAMPLES / "catalog"),
        "GPU_WEBHOOKS_PORT": "0",
        "GPU_WEBHOOKS_PLAIN_PORT": "0",
        "GPU_WEBHOOKS_CA_FILE": str(ca_file),
        "GPU_WEBHOOKS_HOST": "127.0.0.2",
        "GPU_WEBHOOKS_TLS_NAMES": "127.0.0.2 gpu-webhooks.gpu-system.svc",
        "GPU_WEBHOOKS_LARGEST_BODY": "1",
        "GPU_WEBHOOKS_DRAIN_QUIET": "0.05",
        "GPU_WEBHOOKS_LOG_LEVEL": "info",
    }

    async with serve(**variables) as process:
        reply = await post(process, "/validate", vmi(H200), ca_file)
        tls = ssl.create_default_context(cafile=str(ca_file))
        url, body = f"{process.started['url']}/mutate", io.BytesIO(b" " * (1024 * 1024 + 1))
        options: dict[str, Any] = {"ssl": tls, "server_hostname": "gpu-webhooks.gpu-system.svc", "headers": JSON}
        async with aiohttp.ClientSession() as session, session.post(url, data=body, **options) as response:
            too_large = response.status
        code, _ = await process.stop()

    assert process.started["url"].startswith("https://127.0.0.2:")
    assert (reply.code, too_large, code) == (403, 413, 0)


@pytest.mark.parametrize(
    ("soft", "hard", "connections", "allowed"),
    [(256, 8192, 2048, 3264), (256, 8192, 100, 1316), (4096, 8192, 2048, 4096), (1024, 2000, 2048, 2000)],
    ids=["raised to what is needed", "raised for few", "enough already", "as far as the system lets it"],
)
async def test_it_may_open_as_many_files_as_its_connections_need(
    tmp_path: Path, soft: int, hard: int, connections: int, allowed: int
) -> None:
    (tmp_path / "empty").mkdir()
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))"
    launch = [sys.executable, "-c", f"{limit}; import os; os.execv(sys.argv[3], sys.argv[3:])", str(soft), str(hard)]
    arguments = ("--catalog", str(tmp_path / "empty"), *AT_ANY_PORT, "--most-connections", str(connections))

    async with serve(*arguments, launch=launch) as process:
        limits = resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE)
        code, _ = await process.stop()

    assert code == 0
    assert limits == (allowed, hard)
    warned = [(line["event"], line["allowed"], line["needed"]) for line in process.warned]
    assert warned == ([("few open files", 2000, 3264)] if allowed == hard else [])


async def test_what_peers_get_wrong_on_the_wire_is_one_line_each_without_a_traceback(tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.crt"
    head = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    over_tls = [
        b"\x00\x01garbage\r\n\r\n",
        head + b"Content-Length: -5\r\n\r\n{}",
        head + b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}",
        b"POST /mutate HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        head + b"Content-Length: 100\r\n\r\n{",
        head + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nxyz",
    ]
    in_the_clear = [b"\x00" * 100, head, b"\x16\x03\x01\x00\x05hello"]

    async with serve(
        "--catalog", str(EXAMPLES / "catalog"), *AT_ANY_PORT, "--drain-timeout", "1", "--ca-file", str(ca_file)
    ) as process:
        tls = ssl.create_default_context(cafile=str(ca_file))
        for data, context in [*((data, tls) for data in over_tls), *((data, None) for data in in_the_clear)]:
            reader, writer = await asyncio.open_connection("127.0.0.1", process.port, ssl=context)
            writer.write(data)
            await asyncio.sleep(0.05)
            writer.transport.abort()
            await asyncio.gather(reader.read(), return_exceptions=True)
        reply = await post(process, "/validate", vmi(H200), ca_file)
        code, lines = await process.stop()

    assert (reply.code, code) == (403, 0)
    assert {line["event"] for line in lines} == {"not HTTP", "no verdict", "refused", "draining", "stopped"}
    assert not [line for line in lines if "exception" in line]
    assert all(len(line["why"]) <= 253 for line in lines if line["event"] == "not HTTP")


def test_a_stop_takes_its_time_in_a_cluster_alone_unless_told_otherwise() -> None:
    assert least_drain(None, None) == 5.0
    assert least_drain(EXAMPLES, None) == 0.0
    assert least_drain(None, 0.0) == 0.0
    assert least_drain(EXAMPLES, 2.0) == 2.0
