"""Manifests from files, as kubectl would read them."""

import json
from pathlib import Path
from typing import Any

import pytest

from webhooks.manifests import ManifestError, read_manifests

UNREADABLE = Path("/proc/self/mem")


def write(directory: Path, **files: str) -> Path:
    """Files by name, with ``__`` for a dot and ``___`` for a slash."""
    for name, text in files.items():
        path = directory / name.replace("___", "/").replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory


def names(path: Path) -> list[str]:
    return [obj["metadata"]["name"] for obj, _ in read_manifests(path)]


def read_one(directory: Path, text: str) -> dict[str, Any]:
    (obj,) = (obj for obj, _ in read_manifests(write(directory, a__yaml=text)))
    return obj


def pod(name: str) -> str:
    return f"kind: Pod\nmetadata: {{name: {name}}}\n"


def test_every_yaml_and_json_file_below_a_directory_is_read_in_the_order_of_paths(tmp_path: Path) -> None:
    write(
        tmp_path,
        b__yaml=pod("b"),
        a___z__yml=pod("az"),
        c___deep___x__json=json.dumps({"kind": "Pod", "metadata": {"name": "cx"}}),
        d__txt="not read: [",
        README__md="# not read",
    )

    found = [(obj["metadata"]["name"], str(file.relative_to(tmp_path))) for obj, file in read_manifests(tmp_path)]

    assert found == [("az", "a/z.yml"), ("b", "b.yaml"), ("cx", "c/deep/x.json")]


def test_a_file_is_read_whatever_its_name(tmp_path: Path) -> None:
    write(tmp_path, manifest=pod("a"))

    assert names(tmp_path / "manifest") == ["a"]


def test_an_empty_directory_has_no_manifests(tmp_path: Path) -> None:
    assert names(tmp_path) == []


def test_several_documents_are_read_and_empty_ones_passed_over(tmp_path: Path) -> None:
    write(tmp_path, a__yaml=f"---\n# nothing\n---\n{pod('a')}---\n---\n{pod('b')}---\nnull\n")

    assert names(tmp_path) == ["a", "b"]


@pytest.mark.parametrize("kind", ["List", "PodList", "GPUDeviceList"])
def test_lists_are_taken_apart_lists_of_lists_too(tmp_path: Path, kind: str) -> None:
    inner = {"kind": "List", "items": [{"kind": "Pod", "metadata": {"name": "b"}}]}
    outer = {"apiVersion": "v1", "kind": kind, "items": [{"kind": "Pod", "metadata": {"name": "a"}}, inner]}
    write(tmp_path, a__json=json.dumps(outer))

    assert names(tmp_path) == ["a", "b"]


def test_a_date_stays_the_string_that_it_is(tmp_path: Path) -> None:
    obj = read_one(tmp_path, "kind: Pod\nmetadata:\n  deletionTimestamp: 2026-11-01T08:00:00Z\n  day: 2026-11-01\n")

    assert obj["metadata"] == {"deletionTimestamp": "2026-11-01T08:00:00Z", "day": "2026-11-01"}


def test_keys_are_strings_as_in_json(tmp_path: Path) -> None:
    obj = read_one(tmp_path, "kind: Pod\nlabels: {8080: web, true: x, 1.5: y, null: z, 2026-11-01: day, <<: {m: n}}\n")

    assert obj["labels"] == {"8080": "web", "true": "x", "1.5": "y", "null": "z", "2026-11-01": "day", "m": "n"}


def test_values_keep_their_types(tmp_path: Path) -> None:
    obj = read_one(tmp_path, 'kind: Pod\na: 1\nb: "1"\nc: true\nd: null\ne: 1.5\nf: "yes"\n')

    assert obj == {"kind": "Pod", "a": 1, "b": "1", "c": True, "d": None, "e": 1.5, "f": "yes"}


@pytest.mark.parametrize(
    ("text", "telling"),
    [
        pytest.param("kind: Pod\nmetadata: {name: a\n", ", line 3: ", id="unclosed brace"),
        pytest.param("kind: Pod\n\tx: 1\n", ", line 2: ", id="tab"),
        pytest.param("kind: Pod\n---\nkind: [\n", ", line 4: ", id="second document"),
        pytest.param("kind: Pod\nx: *nowhere\n", ", line 2: ", id="unknown alias"),
        pytest.param("kind: Pod\nx: !!python/object:os.system {}\n", ", line 2: ", id="python object"),
        pytest.param("kind: Pod\n? [a]\n: 1\n", ", line 2: ", id="list as key"),
        pytest.param("kind: Pod\nx: !!int abc\n", "not YAML: ", id="no number"),
        pytest.param("kind: Pod\nx: " + "1" * 5000 + "\n", "not YAML: ", id="endless number"),
        pytest.param("[" * 5000, ", line 1: ", id="nested too deep"),
        pytest.param("just a text\n", "not a Kubernetes object: it has no kind", id="text"),
        pytest.param("- kind: Pod\n", "not a Kubernetes object: it has no kind", id="list"),
        pytest.param("metadata: {name: a}\n", "not a Kubernetes object: it has no kind", id="no kind"),
        pytest.param("kind: 7\n", "not a Kubernetes object: it has no kind", id="kind is a number"),
        pytest.param("kind: List\nitems: [1]\n", "not a Kubernetes object: it has no kind", id="item is a number"),
        pytest.param("{", ", line 2: ", id="truncated JSON"),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error_with_file_and_line(tmp_path: Path, text: str, telling: str) -> None:
    write(tmp_path, a__yaml=text)

    with pytest.raises(ManifestError) as error:
        list(read_manifests(tmp_path))

    assert str(error.value).startswith(f"{tmp_path / 'a.yaml'}")
    assert telling in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_no_text_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"kind: \xff\xfe\x00")

    with pytest.raises(ManifestError, match=r"a\.yaml: not YAML"):
        list(read_manifests(tmp_path))


def test_what_is_not_there_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="none: no such file or directory"):
        list(read_manifests(tmp_path / "none"))


@pytest.mark.skipif(not UNREADABLE.exists(), reason="there is no file that not even root can read")
def test_a_file_that_cannot_be_read_is_an_error_with_its_name() -> None:
    with pytest.raises(ManifestError, match=f"{UNREADABLE}: Input/output error"):
        list(read_manifests(UNREADABLE))
