"""The image: what the Dockerfile says, done without a container engine, and its program started from what that made.

The Dockerfile itself is read, so it and these tests can't drift apart. What is done differently from an engine:

- a stage is an empty folder, and every absolute path of the Dockerfile stands for one inside it;
- the base images are stood in by the Python that runs the tests, whatever its release: a new virtual environment with
  pip and nothing else for the build stage, a copy of the interpreter and its standard library for the final one. Their
  C library and the rest of this machine are there too;
- the steps of the build run as whoever runs the tests;
- pip takes wheels from a folder that was filled from the package registry once for all runs: to look through all that a
  registry has takes it half a minute. What is not as the lock says is still found, by its hash;
- root, who is bound by no permissions, starts the program as the image's user in a mount namespace that is read-only
  as a whole. Anybody else, and root where a namespace can't be made, has a tree without write permissions alone.
"""

import asyncio
import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from wheels import wheels

from webhooks.testing import Reply

REPOSITORY: Final = Path(__file__).parent.parent.parent
REFUSED: Final = "raw-gpu.validate.create.pods.admin.1"
JSON: Final = {"Content-Type": "application/json"}
ROOMS: Final = ("gpu", "cluster", "certs", "controller", "webhooks")
INSTALLED: Final = ("requirements.txt", "requirements-build.txt")
LOCKS: Final = (*INSTALLED, "requirements-dev.txt")

IS_ROOT: Final = os.getuid() == 0
SHUT: Final = (
    "mount -o remount,bind,ro / && "
    'for at in /tmp /var/tmp /dev/shm; do mount --bind "$at" "$at" && mount -o remount,bind,ro "$at" || exit; done; '
    'exec "$@"'
)
"""Makes all that is writable for everybody read-only, in a mount namespace of its own."""

# Downloads: on a slow line they take longer than a test may by default.
pytestmark = pytest.mark.timeout(300)


@dataclass
class Stage:
    """From a FROM to the next: the instructions and what they say, with continued lines joined."""

    base: str
    name: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def said(self, instruction: str) -> list[str]:
        return [text for word, text in self.steps if word == instruction]

    def last_list(self, instruction: str) -> list[str]:
        """What an instruction in exec form says."""
        found: list[str] = json.loads(self.said(instruction)[-1])
        return found

    @property
    def env(self) -> dict[str, str]:
        pairs = (word.partition("=") for text in self.said("ENV") for word in shlex.split(text))
        return {name: value for name, _, value in pairs}

    @property
    def user(self) -> tuple[int, int]:
        uid, gid = self.said("USER")[-1].split(":")
        return int(uid), int(gid)


def stages(dockerfile: str) -> tuple[Stage, Stage]:
    """The build stage and the final one."""
    found: list[Stage] = []
    lines = (line for line in dockerfile.splitlines() if not line.startswith("#"))
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        word, _, text = line.strip().partition(" ")
        if word == "FROM":
            base, _, name = text.partition(" AS ")
            found.append(Stage(base, name))
        elif word:
            found[-1].steps.append((word, text.strip()))
    build, final = found
    return build, final


BUILD, FINAL = stages((REPOSITORY / "Dockerfile").read_text())


def within(root: Path, text: str) -> str:
    """The text with every absolute path moved into a stage's folder."""
    return re.sub(r"(?<![\w./~-])/(?=\w)", f"{root}/", text)


@dataclass(frozen=True)
class Base:
    """The base of the build stage: a Python with pip, and the folder that pip takes wheels from."""

    python: Path
    wheels: Path

    @property
    def env(self) -> dict[str, str]:
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
        }
        path = f"{self.python.parent}{os.pathsep}{os.defpath}"
        return {**inherited, "PATH": path, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels)}


def perform(stage: Stage, root: Path, *, context: Path, base: Base, others: Mapping[str, Path]) -> None:
    """Does what the stage's steps do to its files. Raises CalledProcessError where an engine would stop."""
    at = root
    for word, text in stage.steps:
        if word == "WORKDIR":
            at = Path(within(root, text))
            at.mkdir(parents=True)
        elif word == "COPY":
            *sources, to = text.split()
            source_root = context
            if sources[0].startswith("--from="):
                source_root = others[sources.pop(0).removeprefix("--from=")]
            target = at / within(root, to)
            for source in (source_root / source.lstrip("/") for source in sources):
                if source.is_dir():
                    shutil.copytree(source, target, dirs_exist_ok=True)
                else:
                    shutil.copy2(source, target)
        elif word == "RUN":
            command = ["sh", "-c", within(root, text)]
            variables = {**base.env, **{name: within(root, value) for name, value in stage.env.items()}}
            try:
                subprocess.run(command, cwd=at, env=variables, umask=0o022, check=True, capture_output=True, text=True)
            except subprocess.CalledProcessError as stopped:
                stopped.add_note(stopped.stderr)
                raise
        else:
            assert word in {"ENV", "LABEL", "USER", "EXPOSE", "ENTRYPOINT", "CMD"}, f"{word} is not known here"


class Ignore:
    """What a .dockerignore keeps out of the build context: the last pattern that fits a path or a parent of it says."""

    def __init__(self, text: str) -> None:
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        self._patterns = [(line.startswith("!"), self._compiled(line.removeprefix("!"))) for line in lines]

    @staticmethod
    def _compiled(pattern: str) -> re.Pattern[str]:
        literal = re.escape(pattern)
        return re.compile(literal.replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*"))

    def __call__(self, path: Path) -> bool:
        names = [str(each) for each in (path, *path.parents)]
        kept_out = False
        for lets_in, pattern in self._patterns:
            if any(pattern.fullmatch(name) for name in names):
                kept_out = not lets_in
        return kept_out


def context_of(checkout: Path, to: Path) -> Path:
    """What an engine would be sent as the build context."""
    ignore = Ignore((REPOSITORY / ".dockerignore").read_text())
    for folder, folders, files in os.walk(checkout):
        if Path(folder) == checkout:
            # Only for speed: a virtual environment and the like are large, and no pattern lets anything in from there.
            folders[:] = [name for name in folders if not name.startswith(".")]
        for file in files:
            path = Path(folder, file).relative_to(checkout)
            if not ignore(path):
                (to / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(checkout / path, to / path)
    return to


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def lay_bare_python(root: Path) -> dict[str, str]:
    """The base of the final stage: an interpreter and its standard library, without any package. And its variables."""
    library = Path(sysconfig.get_path("stdlib"))
    dropped = shutil.ignore_patterns("site-packages", "dist-packages", "test", "idlelib", "ensurepip", "config-*")
    to = root / "usr" / library.relative_to(sys.base_prefix)
    shutil.copytree(library, to, ignore=dropped, ignore_dangling_symlinks=True)
    (root / "usr/bin").mkdir()
    shutil.copy2(Path(sys._base_executable).resolve(), root / "usr/bin/python3")  # type: ignore[attr-defined]
    for shared in Path(sysconfig.get_config_var("LIBDIR")).glob("libpython3.*so*"):
        shutil.copy2(shared, root / "usr/lib")
    return {"LANG": "C.UTF-8", "LD_LIBRARY_PATH": str(root / "usr/lib")}


def shown(root: Path) -> dict[str, tuple[int, int, int]]:
    """Everything under a folder, with what a write would change."""
    states = {str(path): path.lstat() for path in (root, *root.rglob("*"))}
    return {path: (state.st_mode, state.st_size, state.st_mtime_ns) for path, state in states.items()}


def owner_of(pid: int) -> tuple[int, int]:
    """The user and the group that a process runs as."""
    state = Path(f"/proc/{pid}").stat()
    return state.st_uid, state.st_gid


def make_read_only(root: Path) -> None:
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o222)


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    """An empty folder that another user can get to, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="gpu-webhooks-image-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="module")
def python_with_pip(scratch: Path) -> Path:
    """The base of the build stage. Its pip is the one that is here: another would take five seconds to be installed."""
    base, made = sys._base_executable, scratch / "python"  # type: ignore[attr-defined]
    subprocess.run([base, "-m", "venv", "--without-pip", str(made)], check=True)
    pip = distribution("pip")
    for folder in {Path(file).parts[0] for file in pip.files or () if not str(file).startswith("..")}:
        shutil.copytree(
            str(pip.locate_file(folder)),
            made / "lib" / f"python{sysconfig.get_python_version()}/site-packages" / folder,
        )
    return made / "bin/python"


@pytest.fixture(scope="module")
def base(python_with_pip: Path) -> Base:
    return Base(python_with_pip, wheels(python_with_pip, [REPOSITORY / lock for lock in INSTALLED]))


@pytest.fixture(scope="module")
def context(scratch: Path) -> Path:
    return context_of(REPOSITORY, scratch / "context")


@dataclass
class Image:
    """The final stage's root folder, read-only."""

    root: Path
    base_env: Mapping[str, str]
    catalog: Path

    @property
    def app(self) -> Path:
        return self.root / "app"

    def command(self, *arguments: str) -> list[str]:
        program, *rest = [*FINAL.last_list("ENTRYPOINT"), *arguments]
        return [within(self.root, program), *rest]

    def env(self, **settings: str) -> dict[str, str]:
        """The variables of a container: the base's, the image's and those that it is run with. No others."""
        image = {name: within(self.root, value) for name, value in FINAL.env.items()}
        return {**self.base_env, **image, **settings}


@pytest.fixture(scope="module")
def image(scratch: Path, context: Path, base: Base) -> Image:
    build, final = scratch / "build", scratch / "final"
    for root in (build, final):
        root.mkdir()
    perform(BUILD, build, context=context, base=base, others={})
    base_env = lay_bare_python(final)
    perform(FINAL, final, context=context, base=base, others={BUILD.name: build})
    make_read_only(final)
    shutil.copytree(REPOSITORY / "examples/catalog", scratch / "catalog")
    return Image(final, base_env, catalog=scratch / "catalog")


def confinement() -> tuple[list[str], dict[str, Any]]:
    """How to start a program as the image's user, with nothing to write to: a prefix, and options for the process."""
    if not IS_ROOT:
        return [], {}
    uid, gid = FINAL.user
    tools = [shutil.which(name) for name in ("unshare", "setpriv", "sh")]
    if all(tools):
        unshare, setpriv, shell = map(str, tools)
        prefix = [unshare, "--mount", shell, "-c", SHUT, shell, setpriv]
        prefix += [f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs", "--"]
        if subprocess.run([*prefix, "/bin/true"], check=False, capture_output=True).returncode == 0:
            return prefix, {}
    return [], {"user": uid, "group": gid, "extra_groups": []}


@asynccontextmanager
async def running(image: Image) -> AsyncIterator[tuple[asyncio.subprocess.Process, dict[str, Any]]]:
    """ENTRYPOINT and CMD as a container of the image has them, and its first log line."""
    prefix, options = confinement()
    settings = {"CATALOG": str(image.catalog), "PORT": "0", "PLAIN_PORT": "0", "DRAIN_QUIET": "0.05"}
    process = await asyncio.create_subprocess_exec(
        *prefix,
        *image.command(*FINAL.last_list("CMD")),
        cwd=image.root,
        env=image.env(**{f"GPU_WEBHOOKS_{name}": value for name, value in settings.items()}),
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        **options,
    )
    assert process.stderr is not None
    try:
        line = await asyncio.wait_for(process.stderr.readline(), 30)
        assert line.startswith(b"{"), (line + await process.stderr.read()).decode()
        yield process, json.loads(line)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


def pins(lock: str) -> dict[str, str]:
    """Each requirement of a lock, with all that is said about it."""
    joined = (REPOSITORY / lock).read_text().replace("\\\n", " ")
    lines = (line for line in joined.splitlines() if line and not line.lstrip().startswith("#"))
    return {line.partition("==")[0]: line for line in lines}


def installed(app: Path) -> set[str]:
    names: Iterable[str] = (path.name.partition("-")[0] for path in app.glob("*.dist-info"))
    return {name.replace("_", "-").lower() for name in names}


async def test_it_serves_as_its_user_from_a_read_only_tree_until_it_is_told_to_stop(image: Image) -> None:
    before = shown(image.root)
    review = (REPOSITORY / f"tests/reviews/{REFUSED}.json").read_bytes()

    async with running(image) as (process, started), aiohttp.ClientSession() as session:
        port, plain_port = (started[name].rpartition(":")[2] for name in ("url", "plain"))
        owner = owner_of(process.pid) if IS_ROOT else FINAL.user
        async with session.get(f"http://127.0.0.1:{plain_port}/readyz") as ready:
            readiness = ready.status
        async with session.post(f"https://127.0.0.1:{port}/validate", data=review, headers=JSON, ssl=False) as answer:
            reply = Reply.of(await answer.read(), uid=json.loads(review)["request"]["uid"])
        process.send_signal(signal.SIGTERM)
        _, log = await asyncio.wait_for(process.communicate(), 20)

    assert started["event"] == "serving"
    assert started["url"].startswith("https://0.0.0.0:")
    assert started["classes"] == ["h200", "l40s-24q"]
    assert owner == FINAL.user
    assert readiness == 200
    assert reply.code == 403
    assert process.returncode == 0
    assert [json.loads(line)["event"] for line in log.splitlines()] == ["refused", "draining", "stopped"]
    assert shown(image.root) == before


def test_it_needs_nothing_but_what_is_in_it_and_takes_nothing_from_where_it_is_started(
    image: Image, scratch: Path
) -> None:
    (scratch / "elsewhere").mkdir()
    (scratch / "elsewhere/webhooks.py").write_text("raise SystemExit('not this one')")
    _, options = confinement()

    version = subprocess.run(
        image.command("--version"),
        cwd=scratch / "elsewhere",
        env=image.env(),
        capture_output=True,
        text=True,
        check=False,
        **options,
    )

    assert version.stderr == ""
    assert re.fullmatch(r"gpu-webhooks, version [\d.]+\n", version.stdout)


def test_what_is_installed_is_the_project_and_its_lock(image: Image) -> None:
    packages = installed(image.app)

    assert packages - {"gpu-webhooks"} <= pins("requirements.txt").keys()
    assert packages >= {"gpu-webhooks", "aiohttp", "cryptography", "uvloop"}
    assert not packages & {"pip", "setuptools", "wheel", "hatchling"}
    assert not (image.app / "bin").exists()
    for room in ROOMS:
        modules = {file for file in files_of(REPOSITORY / room) if file.endswith(".py")}
        assert modules == {file for file in files_of(image.app / room) if file.endswith(".py")}


def test_every_module_is_compiled_for_good(image: Image) -> None:
    sources = list(image.app.rglob("*.py"))
    compiled = [path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc" for path in sources]

    heads = {path.read_bytes()[4:8] for path in compiled}

    assert heads == {(0b01).to_bytes(4, "little")}  # by hash, which is not checked: PEP 552
    assert len(list(image.app.rglob("*.pyc"))) == len(compiled)


def test_the_final_stage_runs_nothing_and_takes_nothing_but_what_was_installed() -> None:
    assert FINAL.said("RUN") == FINAL.said("ADD") == []
    assert FINAL.said("COPY") == ["--from=build /app /app"]


def test_both_stages_have_the_same_python_on_the_same_debian() -> None:
    runtimes = {"gcr.io/distroless/python3-debian13:nonroot": "python:3.13-slim-trixie"}

    assert runtimes[FINAL.base.partition("@")[0]] == BUILD.base.partition("@")[0]


def test_the_user_is_a_number_that_kubernetes_can_tell_from_root() -> None:
    uid, gid = FINAL.user

    assert uid > 0
    assert gid > 0


def test_the_program_gets_signals_itself() -> None:
    assert FINAL.last_list("ENTRYPOINT") == ["/usr/bin/python3", "-m", "webhooks"]
    assert FINAL.last_list("CMD") == ["serve"]


@pytest.mark.parametrize("lock", LOCKS)
def test_every_requirement_is_one_version_with_hashes(lock: str) -> None:
    for line in pins(lock).values():
        assert re.match(r"[a-z0-9-]+==[\w.]+ ( ?; .+? )?( +--hash=sha256:[0-9a-f]{64})+ *$", line), line


def test_the_image_is_built_with_the_backend_that_the_tests_have() -> None:
    development, build = pins("requirements-dev.txt"), pins("requirements-build.txt")

    assert "hatchling" in build
    assert {name: development.get(name) for name in build} == build


@pytest.mark.parametrize("lock", INSTALLED)
@pytest.mark.parametrize(
    ("hashes", "telling"),
    [("--hash=sha256:" + "0" * 64, "DO NOT MATCH THE HASHES"), ("", "Hashes are required")],
    ids=["tampered", "without"],
)
def test_a_file_that_is_not_the_locked_one_stops_the_build(
    tmp_path: Path, context: Path, base: Base, *, lock: str, hashes: str, telling: str
) -> None:
    shutil.copytree(context, tmp_path / "context")
    locked = (context / lock).read_text()
    (tmp_path / "context" / lock).write_text(re.sub(r"--hash=\S+", hashes, locked).replace(" \\\n     \\\n", " \\\n"))
    steps = [(word, text) for word, text in BUILD.steps if word != "RUN" or f"-r {lock}" in text]

    with pytest.raises(subprocess.CalledProcessError) as stopped:
        perform(
            Stage(BUILD.base, BUILD.name, steps),
            tmp_path / "root",
            context=tmp_path / "context",
            base=base,
            others={},
        )

    assert telling in stopped.value.stderr


def test_nothing_is_sent_to_the_build_but_what_is_installed(tmp_path: Path) -> None:
    wanted = {"LICENSE", "README.md", "pyproject.toml", "requirements.txt", "requirements-build.txt"}
    wanted |= {"gpu/__init__.py", "gpu/py.typed", "certs/authority.py", "webhooks/cli/serve.py"}
    wanted |= {"cluster/api.py", "controller/plan/hold.py"}
    unwanted = {".env", ".git/config", "certs/ca.key", "certs/tls.crt", "webhooks/.env", "gpu/deep/secret.yaml"}
    unwanted |= {"tests/test_x.py", "docs/image.md", "requirements-dev.txt", "conftest.py", "tls.key", "Makefile"}
    unwanted |= {"webhooks/__pycache__/serve.cpython-313.pyc", "examples/catalog/x.yaml", "build/lib/gpu/__init__.py"}
    for file in wanted | unwanted:
        (tmp_path / "checkout" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "checkout" / file).touch()

    sent = context_of(tmp_path / "checkout", tmp_path / "context")

    assert files_of(sent) == wanted


def test_no_package_registry_is_named() -> None:
    texts: Sequence[str] = [(REPOSITORY / name).read_text() for name in ("Dockerfile", *LOCKS)]

    assert not [text for text in texts if re.search(r"(--(extra-)?index|find-links|trusted-host|://)", text)]
