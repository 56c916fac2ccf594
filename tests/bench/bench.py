"""How fast the pair answers, beside a bare aiohttp handler and, where one is given, a peer.

Recorded reviews go over TLS with 25 keep-alive connections to one process that is pinned to a core, from another core,
in rounds that alternate between the contestants: machines drift, ratios of the same round don't. ``--peer`` names the
binary of another implementation that takes ``-addr``, ``-cert`` and ``-key`` and answers ``/mutate``. Then creates go
through a real API server (through.py), the service is started on a big cluster (size.py), and the controller plans and
holds (controlled_bench.py). Exits with 1 where a figure is worse than what the project promises.
"""

import argparse
import json
import os
import shutil
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from cases import Case, cases
from controlled_bench import controller_bench
from servers import CORES, Server, bare, make_certificate, pair, peer, pinned
from size import big_cluster
from through import through_apiserver

CONNECTIONS: Final = 25
_PARTS: Final = ("handlers", "apiserver", "size", "controller")
_HERE: Final = Path(__file__).parent
_WARM_UP: Final = 0.5
_MOST_MEMORY: Final = 80
"""MiB."""


class Load(NamedTuple):
    """What a contestant did in a round: calls a second, and latencies in seconds."""

    requests: int
    rate: float
    p50: float
    p99: float
    bad: int


def answer(server: Server, path: str, body: bytes) -> bytes:
    """What a server answers."""
    url = f"https://127.0.0.1:{server.port}{path}"
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=server.ca)) as response:  # noqa: S310
        content: bytes = response.read()
    return content


def load(server: Server, path: str, body: bytes, seconds: float) -> Load:
    """Post without pause from the last core: with wrk, or with a client of our own where that is not installed."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(body)
        file.flush()
        url = f"https://127.0.0.1:{server.port}{path}"
        if wrk := shutil.which("wrk"):
            options = ["-t1", f"-c{CONNECTIONS}", f"-d{max(1, round(seconds))}s", "--timeout", "10s"]
            command = [wrk, *options, "-s", str(_HERE / "load.lua"), url]
        else:
            command = [sys.executable, str(_HERE / "load.py"), url, str(server.ca), str(CONNECTIONS), str(seconds)]
        done = subprocess.run(
            [*pinned(CORES[-1]), *command],
            env={**os.environ, "BODY": file.name},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    come_to_rest(server.pid)
    result = Load(**json.loads(done.stdout.splitlines()[-1]))
    if result.bad:
        raise SystemExit(f"{result.bad} calls of {path} failed")
    return result


def come_to_rest(pid: int) -> None:
    """Wait until a process has worked off what it was sent, which would go on in the time of the next contestant."""
    before = -1.0
    while (now := cpu_seconds(pid)) != before:
        before = now
        time.sleep(0.1)


def cpu_seconds(pid: int) -> float:
    """What a process has used so far."""
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


def measure(servers: dict[str, Server], case: Case, size: int, *, rounds: int, seconds: float) -> dict[str, list[Load]]:
    """The rounds of each contestant."""
    paths = {"pair": f"{case.path}?timeout=10s", "bare": f"/const/{size}", "peer": "/mutate"}
    found: dict[str, list[Load]] = {name: [] for name in servers if case.peer_ratio or name != "peer"}
    for name in found:
        load(servers[name], paths[name], case.body, _WARM_UP)
    for _ in range(rounds):
        for name, results in found.items():
            results.append(load(servers[name], paths[name], case.body, seconds))
    return found


def ratio(found: dict[str, list[Load]], other: str) -> float | None:
    """The median of the rounds' ratios of throughput; None where the other did not take part."""
    if other not in found:
        return None
    return statistics.median(ours.rate / theirs.rate for ours, theirs in zip(found["pair"], found[other], strict=True))


def show(case: Case, found: dict[str, list[Load]]) -> list[str]:
    """Print a case, and tell what it is short of."""
    of_bare, of_peer = ratio(found, "bare"), ratio(found, "peer")
    p99 = {name: statistics.median(each.p99 for each in results) for name, results in found.items()}
    for name, results in found.items():
        rate, p50 = (statistics.median(getattr(each, key) for each in results) for key in ("rate", "p50"))
        first = f"{case.name if name == 'pair' else '':<28}{name:<6}"
        row = f"{first}{rate:>8.0f}{p50 * 1e3:>9.2f}{p99[name] * 1e3:>9.2f}"
        if name == "pair":
            row += "".join(f"{value:>9.2f}" if value else f"{'-':>9}" for value in (of_bare, of_peer))
        print(row, flush=True)
    short = []
    if of_bare is not None and of_bare < case.bare_ratio:
        short.append(f"{case.name}: {of_bare:.2f} of bare, and {case.bare_ratio} is promised")
    if of_peer is not None and case.peer_ratio and of_peer < case.peer_ratio:
        short.append(f"{case.name}: {of_peer:.2f} of the peer, and {case.peer_ratio} is promised")
    if "peer" in p99 and p99["pair"] >= p99["peer"]:
        short.append(f"{case.name}: p99 is above the peer's")
    return short


def resident(pid: int) -> float:
    """MiB of a process that are in memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def soak(server: Server, case: Case, requests: int) -> list[str]:
    """Post many times and watch the memory."""
    sizes = [resident(server.pid)]
    done = 0
    while done < requests:
        done += load(server, case.path, case.body, 2.0).requests
        sizes.append(resident(server.pid))
    half = sizes[len(sizes) // 2 :]
    print(f"\n{done} calls: {sizes[0]:.1f} MiB at first, {half[0]:.1f} halfway, {max(half):.1f} at most after that")
    short = [] if max(sizes) < _MOST_MEMORY else [f"{max(sizes):.0f} MiB of memory, and {_MOST_MEMORY} are promised"]
    return short + ([f"memory grew over the last half: {half}"] if half[-1] > half[0] + 1 else [])


def main() -> None:
    """Measure everything and print it as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each contestant in each round")
    parser.add_argument("--soak", type=int, default=0, metavar="CALLS", help="post that often and watch the memory")
    parser.add_argument("--peer", type=Path, help="binary to measure against")
    parser.add_argument("--creates", type=int, default=200, help="of each contestant through the API server")
    parser.add_argument("--part", choices=_PARTS, help="measure this alone; all but the first need a control plane")
    options = parser.parse_args()
    if len(CORES) < 2:
        print("only one core: client and server share it, the figures say little", file=sys.stderr)
    short = []
    if options.part in (None, "handlers"):
        short += _handlers(options)
    if options.part in (None, "apiserver"):
        short += through_apiserver(options.creates)
    if options.part in (None, "size"):
        short += big_cluster()
    if options.part in (None, "controller"):
        short += controller_bench()
    print("".join(f"\nMISSED: {line}" for line in short))
    raise SystemExit(bool(short))


def _handlers(options: argparse.Namespace) -> list[str]:
    print(f"{CONNECTIONS} connections over TLS, by {'wrk' if shutil.which('wrk') else 'the own client'}")
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        files = make_certificate(folder)
        servers = {"pair": stack.enter_context(pair(folder))}
        sizes = {case: _size(servers["pair"], case) for case in cases()}
        servers["bare"] = stack.enter_context(bare(files, sorted(set(sizes.values()))))
        if options.peer:
            servers["peer"] = stack.enter_context(peer(files, options.peer.resolve()))
        print(f"{'case':<28}{'':<6}{'calls/s':>8}{'p50 ms':>9}{'p99 ms':>9}{'of bare':>9}{'of peer':>9}")
        short = []
        for case, size in sizes.items():
            short += show(case, measure(servers, case, size, rounds=options.rounds, seconds=options.seconds))
        if options.soak:
            short += soak(servers["pair"], next(iter(sizes)), options.soak)
    return short


def _size(server: Server, case: Case) -> int:
    """The size of the answer, which has to let the VMI in."""
    reply = answer(server, case.path, case.body)
    if not json.loads(reply)["response"]["allowed"]:
        raise SystemExit(f"{case.name} is refused: {reply.decode()}")
    return len(reply)


if __name__ == "__main__":
    main()
