"""Damaged reviews by the hundred thousand, over TLS, to one process that serves as it is installed.

Half of the connections send heads that are new each time, so that both ways through the server are taken; now and then
one sends a damaged head, or hangs up in the middle. Every answer has to be well-formed and none a failure of the
service's own; in the end its log has to be without one, its memory bounded, and it has to serve and stop as ever.
Exits with 1 where anything of that is not so, and says how to see the same review again: ``--seed S --only N``.
"""

import argparse
import asyncio
import json
import random
import ssl
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import aiohttp
import uvloop
from damage import checked, harmed, sources
from wire import Caller, call

CATALOG: Final = Path(__file__).parents[2] / "examples" / "catalog"
CONNECTIONS: Final = 16
_MOST_MIB: Final = 80 + 64
"""What a quiet process takes at most, and all that it holds of bodies."""
_ON_THE_WIRE: Final = 0.01
_STUCK: Final = "the event loop is stuck"
_FAILED: Final = {"failed", "Unhandled exception"}


@dataclass(slots=True)
class Tally:
    """What was sent, and what came of it."""

    outcomes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    paths: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)


class Fuzz:
    """A run, by its seed: review N is the same in every run of that seed."""

    def __init__(self, seed: int, process: asyncio.subprocess.Process, port: int, tls: ssl.SSLContext) -> None:
        self.tally = Tally()
        self._seed = seed
        self._process = process
        self._port = port
        self._tls = tls
        self._pool = sources()

    async def send(self, numbers: Iterator[int], *, long_way: bool, aloud: bool = False) -> None:
        """Send reviews one after another, on a connection for as long as it is kept."""
        caller: Caller | None = None
        for number in numbers:
            chance = random.Random(f"{self._seed}/{number}")  # noqa: S311 - the same each time
            kind, body = harmed(chance.choice(self._pool), chance)
            path = chance.choice(("/mutate", "/validate"))
            if aloud:
                print(f"{kind}, {path}: {body!r}")
            if number % 500 == 0:
                self.tally.memory.append(resident(self._process.pid))
            try:
                if chance.random() < _ON_THE_WIRE:
                    await self._damage_the_wire(call(body, path=path), chance)
                    continue
                caller = caller or await self._connected()
                headers = f"X-Trace: {number}\r\n" if long_way else ""
                answer = await caller.post(body, path=f"{path}?timeout=5s", headers=headers)
                if aloud:
                    print(answer)
                self.tally.outcomes[kind][str(checked(body, answer.code, answer.body))] += 1
                self.tally.paths[path] += 1
                if answer.closes:
                    caller = self._hung_up(caller)
            except (AssertionError, ValueError, LookupError, TypeError, OSError, EOFError) as error:
                self.tally.failures.append(
                    f"--only {number}: {kind}, {path}: {type(error).__name__}: {str(error)[:500]}"
                )
                caller = self._hung_up(caller)
        self._hung_up(caller)

    async def _connected(self) -> Caller:
        return Caller(*await asyncio.open_connection("127.0.0.1", self._port, ssl=self._tls))

    @staticmethod
    def _hung_up(caller: Caller | None) -> None:
        if caller is not None:
            caller.abort()

    async def _damage_the_wire(self, data: bytes, chance: random.Random) -> None:
        """A call whose head is damaged, or that ends too soon: refused, cut off, or answered if it says something."""
        caller = await self._connected()
        head = bytearray(data)
        for _ in range(chance.randrange(5)):
            head[chance.randrange(min(120, len(head)))] = chance.randrange(256)
        caller.send(bytes(head[: chance.choice((len(head), chance.randrange(1, len(head))))]))
        outcome = "hung up"
        try:
            async with asyncio.timeout(0.05):
                code = (await caller.answer()).code
                assert code < 500, f"{code} for {bytes(head[:400])!r}"
                outcome = str(code)
        except (TimeoutError, OSError, EOFError):
            pass
        finally:
            self._hung_up(caller)
        self.tally.outcomes["on the wire"][outcome] += 1


def resident(pid: int) -> float:
    """MiB of a process that are in memory."""
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, dict[str, Any], Path]]:
    """``gpu-webhooks serve`` on the examples; the process, its first line, and its log."""
    log = folder / "log"
    command = (*(sys.executable, "-m", "webhooks", "serve", "--catalog", str(CATALOG), "--port", "0"),)
    options = ("--plain-port", "0", "--ca-file", str(folder / "ca.crt"))
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(*command, *options, stderr=stderr)
    try:
        async with asyncio.timeout(20):
            while not (first := log.read_bytes()).endswith(b"\n") or b'"serving"' not in first:  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.05)
        yield process, json.loads(first.splitlines()[-1]), log
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def failures_in(log: Path) -> Iterator[str]:
    """The lines of a log that tell of a failure of the service's own."""
    with log.open("rb") as lines:
        for line in lines:
            said = json.loads(line)
            # A machine that has no processor left for it sticks the loop as well.
            starved = said["event"] == _STUCK and said["cpu"] < said["seconds"] / 2
            if not starved and (
                "exception" in said or said["level"] in {"error", "critical"} or said["event"] in _FAILED
            ):
                yield line.decode()[:1000].strip()


async def run(options: argparse.Namespace) -> int:
    """Send everything, print what came of it, and give the exit code."""
    numbers: Sequence[int] = range(options.reviews) if options.only is None else [options.only]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with serving(folder) as (process, told, log):
            tls = ssl.create_default_context(cafile=folder / "ca.crt")
            fuzz = Fuzz(options.seed, process, int(told["url"].rpartition(":")[2]), tls)
            todo, start = iter(numbers), perf_counter()
            print(f"{len(numbers)} reviews, seed {options.seed}, {CONNECTIONS} connections", flush=True)
            await asyncio.gather(
                *(
                    fuzz.send(todo, long_way=each % 2 == 0, aloud=options.only is not None)
                    for each in range(CONNECTIONS)
                )
            )
            seconds = perf_counter() - start
            fuzz.tally.memory.append(resident(process.pid))
            async with aiohttp.ClientSession() as session, session.get(f"{told['plain']}/metrics") as answer:
                metrics = await answer.text()
            process.terminate()
            code = await asyncio.wait_for(process.wait(), 30)
        return show(fuzz.tally, metrics, failures=[*failures_in(log)], code=code, seconds=seconds)


def show(tally: Tally, metrics: str, *, failures: Sequence[str], code: int, seconds: float) -> int:
    """Print what was done and what came of it; the exit code."""
    columns = sorted({outcome for outcomes in tally.outcomes.values() for outcome in outcomes})
    print(f"{'damage':<12}{'sent':>8}" + "".join(f"{column:>9}" for column in columns))
    for kind, outcomes in sorted(tally.outcomes.items()):
        print(f"{kind:<12}{outcomes.total():>8}" + "".join(f"{outcomes[column] or '-':>9}" for column in columns))
    sent = sum(outcomes.total() for outcomes in tally.outcomes.values())
    most = max(tally.memory)
    by_path = ", ".join(f"{number} to {path}" for path, number in sorted(tally.paths.items()))
    print(f"{sent} in {seconds:.0f} s ({by_path}); {tally.memory[0]:.0f} MiB at first, {most:.0f} at most")
    wrong = [*tally.failures[:20], *(f"log: {line}" for line in failures[:20])]
    if len(tally.failures) > 20:
        wrong.append(f"and {len(tally.failures) - 20} more")
    wrong += [f"metrics: {line}" for line in metrics.splitlines() if 'cause="code"' in line]
    if most > _MOST_MIB:
        wrong.append(f"{most:.0f} MiB of memory, and {_MOST_MIB} are the most")
    if "gpu_webhooks_in_flight 0.0" not in metrics:
        wrong.append("reviews are in flight still")
    if code:
        wrong.append(f"the process ended with {code}")
    print("".join(f"WRONG: {line}\n" for line in wrong) or "nothing was wrong", flush=True)
    return 1 if wrong else 0


def main() -> None:
    """Read the arguments, and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reviews", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--only", type=int, metavar="N", help="send review N of the seed alone, and print all of it")
    raise SystemExit(uvloop.run(run(parser.parse_args())))


if __name__ == "__main__":
    main()
