"""Where promtool comes from. apt-get and dpkg-deb are scripts here: what is fetched does not matter."""

import io
from pathlib import Path

import pytest
from promtool import NoPromtoolError, cache_folder, promtool

APT = """#!/bin/sh
PATH=/usr/bin:/bin
echo "$*" >> {log}
case "$*" in
  *update*) touch {log}.updated ;;
  *) test {ready} || {{ echo '404 Not Found'; exit 100; }}; touch prometheus_1_amd64.deb ;;
esac
"""
DPKG = """#!/bin/sh
PATH=/usr/bin:/bin
mkdir -p usr/bin && echo fetched > usr/bin/promtool
"""


class Machine:
    """One with an empty cache, and no program on its PATH yet."""

    def __init__(self, folder: Path) -> None:
        (folder / "bin").mkdir()
        self._folder = folder
        self.log = folder / "calls"
        self.env = {"XDG_CACHE_HOME": str(folder / "cache"), "PATH": str(folder / "bin"), "HOME": str(folder)}

    def put(self, name: str, text: str = "#!/bin/sh\n") -> Path:
        path = self._folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def debian(self, ready: str = "1") -> None:
        self.put("apt-get", APT.format(log=self.log, ready=ready))
        self.put("dpkg-deb", DPKG)

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_one_on_path_is_taken(machine: Machine) -> None:
    program = machine.put("promtool")
    assert promtool(machine.env) == program


def test_debians_is_fetched_once_which_is_told(machine: Machine) -> None:
    machine.debian()
    told = io.StringIO()
    found = promtool(machine.env, progress=told)
    assert found == cache_folder(machine.env) / "promtool"
    assert found.read_text() == "fetched\n"
    assert told.getvalue().startswith("There is no promtool on PATH: Debian's package prometheus is fetched into ")
    # And later runs find it there, and nothing else is left
    assert promtool(machine.env, progress=told) == found
    assert machine.calls() == ["download prometheus"]
    assert sorted(path.name for path in found.parent.iterdir()) == ["lock", "promtool"]


def test_package_lists_that_are_old_are_fetched_anew_without_a_right_on_the_machines(machine: Machine) -> None:
    machine.debian(ready=f"-e {machine.log}.updated")
    found = promtool(machine.env, progress=io.StringIO())
    assert found.exists()
    first, update, second = machine.calls()
    assert first == "download prometheus"
    assert update.endswith("update")
    assert second.endswith("download prometheus")
    assert all(f"Dir::State::Lists={found.parent}" in call for call in (update, second))


def test_a_machine_that_has_no_way_to_it_is_told_what_to_install(machine: Machine) -> None:
    with pytest.raises(NoPromtoolError, match=r"no apt-get and no dpkg-deb to fetch it with: install promtool"):
        promtool(machine.env, progress=io.StringIO())


def test_a_fetch_that_fails_says_why_and_what_to_install(machine: Machine) -> None:
    machine.debian(ready="")
    with pytest.raises(
        NoPromtoolError, match=r"could not fetch Debian's package prometheus: install promtool"
    ) as error:
        promtool(machine.env, progress=io.StringIO())
    assert "404 Not Found" in str(error.value)
    assert not (cache_folder(machine.env) / "promtool").exists()
