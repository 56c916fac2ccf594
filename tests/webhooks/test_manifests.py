"""Manifests from files, as kubectl would read them."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from webhooks.documents import LARGEST
from webhooks.manifests import ManifestError, read_all, read_manifests

UNREADABLE = Path("/proc/self/mem")
NO_KIND = "not a Kubernetes object: it has no kind"


def write(directory: Path, **files: str) -> Path:
    """Files by name, with ``__`` for a dot and ``___`` for a slash."""
    for name, text in files.items():
        path = directory / name.replace("___", "/").replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory


def names(path: Path) -> list[str]:
    return [manifest.obj["metadata"]["name"] for manifest in read_manifests(path)]


def read_one(directory: Path, text: str) -> dict[str, Any]:
    (manifest,) = read_manifests(write(directory, a__yaml=text))
    return manifest.obj


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

    found = [(m.obj["metadata"]["name"], str(m.file.relative_to(tmp_path))) for m in read_manifests(tmp_path)]

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


def test_what_yaml_takes_for_a_number_by_sixties_stays_a_string(tmp_path: Path) -> None:
    obj = read_one(tmp_path, "kind: Pod\nmac: 52:54:00:12:34:56\ntime: 1:30\nfloat: 1:30.5\nwhole: 0x1F\nten: 1e3\n")

    assert obj == {
        "kind": "Pod", "mac": "52:54:00:12:34:56", "time": "1:30", "float": "1:30.5", "whole": 31, "ten": 1000.0
    }  # fmt: skip


def test_json_is_read_as_json(tmp_path: Path) -> None:
    text = '{\n\t"kind":"Pod",\n\t"a":"\\ud83d\\ude00","b":"\\\\ud83d\\\\ude00","c":"\\/","d":1.5E+2,"e":-0\n}'

    obj = read_one(tmp_path, text)

    assert obj == json.loads(text)
    assert obj["a"] == "\U0001f600"


def test_aliases_are_values_of_their_own(tmp_path: Path) -> None:
    obj = read_one(tmp_path, "kind: Pod\na: &a {x: 1}\nb: *a\nc: {<<: *a, y: 2}\n")

    obj["a"]["x"] = 7

    assert (obj["b"], obj["c"]) == ({"x": 1}, {"x": 1, "y": 2})


def test_keys_of_a_merged_mapping_are_strings_too(tmp_path: Path) -> None:
    obj = read_one(tmp_path, "kind: Pod\nc: {<<: {8080: x, 1: z}, 8080: y}\n")

    assert obj["c"] == {"8080": "y", "1": "z"}


@pytest.mark.parametrize("layer", ["&{name} [{aliases}]", "&{name} {{{{<<: [{aliases}]}}}}"], ids=["lists", "merges"])
def test_aliases_that_would_fill_memory_are_an_error_at_once(tmp_path: Path, layer: str) -> None:
    lines = ["kind: Pod", "a0: &a0 {x: aaaaaaaaaaaaaaaa}"]
    for level in range(1, 60):
        aliases = ", ".join([f"*a{level - 1}"] * 4)
        lines.append(
            f"a{level}: " + layer.format(name=f"a{level}", aliases=aliases).replace("{{", "{").replace("}}", "}")
        )

    with pytest.raises(ManifestError, match="line 1: is larger than 16 MiB without its aliases"):
        read_one(tmp_path, "\n".join(lines))


def test_values_keep_their_types(tmp_path: Path) -> None:
    obj = read_one(tmp_path, 'kind: Pod\na: 1\nb: "1"\nc: true\nd: null\ne: 1.5\nf: "yes"\n')

    assert obj == {"kind": "Pod", "a": 1, "b": "1", "c": True, "d": None, "e": 1.5, "f": "yes"}


@pytest.mark.parametrize(
    ("text", "telling"),
    [
        pytest.param("kind: Pod\nmetadata: {name: a\n", ", line 2: ", id="unclosed brace"),
        pytest.param("kind: Pod\n\tx: 1\n", ", line 2: ", id="tab"),
        pytest.param("kind: Pod\n---\nkind: [\n", ", line 3: ", id="second document"),
        pytest.param("kind: Pod\nx: *nowhere\n", ", line 2: ", id="unknown alias"),
        pytest.param("kind: Pod\nx: !!python/object:os.system {}\n", ", line 2: ", id="python object"),
        pytest.param("kind: Pod\n? [a]\n: 1\n", ", line 2: ", id="list as key"),
        pytest.param("kind: Pod\nx: !!int abc\n", "not YAML: ", id="no number"),
        pytest.param("kind: Pod\nx: !!int \n", "not YAML: ", id="a number of nothing"),
        pytest.param("kind: Pod\nx: !!float \n", "not YAML: ", id="a fraction of nothing"),
        pytest.param("kind: Pod\nx: !!bool maybe\n", "not YAML: ", id="neither true nor false"),
        pytest.param("kind: Pod\nx: " + "1" * 5000 + "\n", "not YAML: ", id="endless number"),
        pytest.param("[" * 5000, ", line 1: ", id="nested too deep"),
        pytest.param("just a text\n", NO_KIND, id="text"),
        pytest.param("- kind: Pod\n", NO_KIND, id="list"),
        pytest.param("metadata: {name: a}\n", NO_KIND, id="no kind"),
        pytest.param("kind: 7\n", NO_KIND, id="kind is a number"),
        pytest.param("kind: List\nitems: [1]\n", NO_KIND, id="item is a number"),
        pytest.param("{", ", line 1: ", id="truncated JSON"),
        pytest.param("kind: Pod\n---\nkind: ''\n", f", line 3: {NO_KIND}", id="empty kind"),
        pytest.param("kind: List\nitems: {a: b}\n", ", line 2: items of a List must be a list", id="items, an object"),
        pytest.param("kind: List\nitems:\n- kind: Pod\n- 1\n", f", line 4: {NO_KIND}", id="an item's line"),
        pytest.param("kind: Pod\na: 1\nb:\n  c: 1\n  c: 2\n", ", line 5: the key 'c' is there twice", id="key twice"),
        pytest.param('{"kind": "Pod",\n"kind": "Pod"}', ", line 2: the key 'kind' is there twice", id="in JSON"),
        pytest.param("kind: Pod\nx: &x\n  y: *x\n", ", line 2: contains itself", id="endless"),
        pytest.param("kind: Pod\nx: &x [*x]\n", ", line 2: contains itself", id="endless list"),
        pytest.param("---\nkind: Pod\nx: " + "[" * 150 + "]" * 150, ", line 2: is nested deeper", id="deep"),
        pytest.param("kind: Pod\nx: 99999999999999999999\n", ", line 1: can't be sent as JSON: ", id="large number"),
        pytest.param("kind: Pod\nx: !!binary aGk=\n", ", line 2: could not determine a constructor", id="binary"),
        pytest.param("kind: Pod\nx: !!set {a}\n", ", line 2: could not determine a constructor", id="set"),
        pytest.param("kind: Pod\nx: a\x00b\n", ", line 2: not YAML: control characters", id="NUL"),
        pytest.param("kind: Pod\nx: \x1b[31m\n", ", line 2: not YAML: control characters", id="escape"),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error_with_file_and_line(tmp_path: Path, text: str, telling: str) -> None:
    write(tmp_path, a__yaml=text)

    with pytest.raises(ManifestError) as error:
        list(read_manifests(tmp_path))

    assert str(error.value).startswith(f"{tmp_path / 'a.yaml'}")
    assert telling in str(error.value)
    assert "\n" not in str(error.value)


def test_a_typed_list_says_for_its_items_what_they_are(tmp_path: Path) -> None:
    obj = read_one(tmp_path, "kind: VirtualMachineList\napiVersion: kubevirt.io/v1\nitems:\n- metadata: {name: a}\n")

    assert obj == {"kind": "VirtualMachine", "apiVersion": "kubevirt.io/v1", "metadata": {"name": "a"}}


@pytest.mark.parametrize("text", ["kind: List\nitems: []\n", "kind: PodList\nitems:\n"])
def test_a_list_can_be_empty(tmp_path: Path, text: str) -> None:
    assert list(read_all([write(tmp_path, a__yaml=text) / "a.yaml"])) == []


def shown(paths: list[Path]) -> list[str]:
    """The names of what was read, and the errors, in their order."""
    return [
        str(found) if isinstance(found, ManifestError) else found.obj["metadata"]["name"] for found in read_all(paths)
    ]


def test_what_is_wrong_with_a_file_does_not_hide_the_others(tmp_path: Path) -> None:
    bad = f"{pod('b')}---\nx: 1\n---\nkind: 3\n---\n{pod('c')}---\nkind: [\n"
    write(tmp_path, a__yaml=pod("a"), b__yaml=bad, d__yaml=pod("d"))

    found = shown([tmp_path])

    file = tmp_path / "b.yaml"
    assert found[:2] + found[4:5] + found[6:] == ["a", "b", "c", "d"]
    assert found[2:4] == [f"{file}, line 4: {NO_KIND}", f"{file}, line 6: {NO_KIND}"]
    assert found[5].startswith(f"{file}, line 11: ")


def test_an_empty_file_is_an_error_where_it_is_named_or_alone(tmp_path: Path) -> None:
    write(tmp_path, a__yaml="# nothing\n", b___c__yaml="---\n", d___e__yaml="", d___f__yaml=pod("f"))

    found = shown([tmp_path / "a.yaml", tmp_path / "b", tmp_path / "d"])

    assert found == [f"{tmp_path / 'a.yaml'}: holds no manifest", f"{tmp_path / 'b'}: holds no manifest", "f"]


def test_symlinks_that_lead_nowhere_are_an_error_each_and_loops_of_folders_are_not_followed(tmp_path: Path) -> None:
    write(tmp_path, d___a__yaml=pod("a"))
    folder = tmp_path / "d"
    (folder / "loop.yaml").symlink_to("loop.yaml")
    (folder / "gone.yaml").symlink_to("nowhere.yaml")
    (folder / "again").symlink_to(folder)
    (tmp_path / "link").symlink_to(folder)

    found = shown([tmp_path / "link", folder / "loop.yaml"])

    assert found == [
        "a",
        f"{tmp_path}/link/gone.yaml: No such file or directory",
        f"{tmp_path}/link/loop.yaml: Too many levels of symbolic links",
        f"{folder}/loop.yaml: Too many levels of symbolic links",
    ]


def test_a_large_file_is_an_error_at_once(tmp_path: Path) -> None:
    write(tmp_path, a__yaml=pod("a"), b__yaml="# a comment that is not short\n" * (50 * 1024 * 1024 // 30))
    start = time.perf_counter()

    found = shown([tmp_path])

    assert found == ["a", f"{tmp_path}/b.yaml: is larger than {LARGEST >> 20} MiB: split it"]
    assert time.perf_counter() - start < 2


def test_a_pipe_is_read_where_it_is_named_and_one_that_nobody_writes_to_is_empty(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    reader, writer = os.pipe()
    os.write(writer, pod("a").encode())
    os.close(writer)

    found = shown([tmp_path / "pipe.yaml", tmp_path, Path(f"/dev/fd/{reader}"), Path("/dev/null"), Path("/dev/zero")])

    os.close(reader)
    assert found == [
        f"{tmp_path}/pipe.yaml: holds no manifest",
        f"{tmp_path}/pipe.yaml: is no regular file; name it itself to have it read",
        "a",
        "/dev/null: holds no manifest",
        "/dev/zero: is larger than 16 MiB: split it",
    ]


def test_an_error_shows_no_control_characters(tmp_path: Path) -> None:
    file = tmp_path / "\x1b[31m\n.yaml"
    file.write_text('kind: Pod\n"\\e[0m": 1\n"\\e[0m": 2\n')

    (error,) = read_all([file])

    assert str(error).isprintable()


LINES = """\
# a comment
kind: Pod

---
# before the document
kind: Pod
metadata:
  labels:
    gpu.cozystack.io/device-reference: x
    "8080": y
    folded: >
      one

      two
  annotations: {a.b/c: d,
                e: f}
spec:
  base: &base
    a: 1
    b: 2
  merged:
    <<: *base
    b: 3
  items:
  - name: one
    gpus: [{x: 1},
           {x: 2}]
  -
    name: two
  literal: |
    spec:
      last: no
  last: yes
"""


@pytest.mark.parametrize("ends", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("start", ["", "\ufeff"], ids=["", "BOM"])
def test_the_line_of_a_field_is_found_in_any_document(tmp_path: Path, ends: str, start: str) -> None:
    (tmp_path / "a.yaml").write_bytes((start + LINES).replace("\n", ends).encode())

    first, second = read_manifests(tmp_path)

    expected = {
        "": 6,
        "metadata.labels": 8,
        "metadata.labels[gpu.cozystack.io/device-reference]": 9,
        "metadata.labels[8080]": 10,
        "metadata.labels.none": 8,
        "metadata.annotations[a.b/c].className": 15,
        "metadata.annotations.e": 16,
        "spec.merged.a": 19,
        "spec.merged.b": 23,
        "spec.items[0].name": 25,
        "spec.items[0].gpus[1].x": 27,
        "spec.items[1].name": 29,
        "spec.items[2].name": 24,
        "spec.items[]": 24,
        "spec.last": 33,
        "none.at.all": 6,
    }
    assert first.line() == 2
    assert {path: second.line(path) for path in expected} == expected


def test_the_line_of_a_field_is_found_in_lists_and_json(tmp_path: Path) -> None:
    items = [{"kind": "Pod", "spec": {"a": [{"b": 1}, {"c": 2}]}}, {"kind": "Pod", "spec": {}}]
    write(tmp_path, a__json=json.dumps({"kind": "List", "items": items}, indent=1))

    first, second = read_manifests(tmp_path)

    assert (first.line(), first.line("spec.a[1].c"), second.line(), second.line("spec")) == (4, 12, 17, 19)


def test_a_file_that_is_no_text_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"kind: \xff\xfe\x00")

    with pytest.raises(ManifestError, match=r"a\.yaml, line 1: not YAML: invalid leading UTF-8 octet"):
        list(read_manifests(tmp_path))


def test_what_is_not_there_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="none: no such file or directory"):
        list(read_manifests(tmp_path / "none"))


@pytest.mark.skipif(not UNREADABLE.exists(), reason="there is no file that not even root can read")
def test_a_file_that_cannot_be_read_is_an_error_with_its_name() -> None:
    with pytest.raises(ManifestError, match=f"{UNREADABLE}: Input/output error"):
        list(read_manifests(UNREADABLE))
