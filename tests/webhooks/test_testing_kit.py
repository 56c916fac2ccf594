"""The testing kit: what it asserts fails when it should, and its page's example runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from webhooks.answer import LET_IN, Answer, forbidden
from webhooks.review import encode
from webhooks.testing import ADMIN, TENANT, VIRT_CONTROLLER, Pair, Reply, assert_patched, persisted, review

PAGE = Path(__file__).parent.parent.parent / "docs" / "testing-kit.md"
H200 = "nvidia.com/GH100_H200_SXM_141GB"
OBJECT = {"metadata": {"name": "vm"}, "spec": {"a": 1}}
ADD_B = [{"op": "add", "path": "/spec/b", "value": 2}]


def reply_of(answer: Answer) -> Reply:
    return Reply.of(encode("u-1", answer), uid="u-1")


def vmi(*gpus: str, **metadata: Any) -> dict[str, Any]:
    entries = [{"name": f"g{index}", "deviceName": name} for index, name in enumerate(gpus)]
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "vm", "namespace": "tenant-a", **metadata},
        "spec": {"domain": {"devices": {"gpus": entries}}},
    }


class TestAssertPatched:
    def test_it_returns_the_object_that_the_patch_makes(self) -> None:
        patched = assert_patched(reply_of(Answer(patch=ADD_B)), OBJECT, {**OBJECT, "spec": {"a": 1, "b": 2}})

        assert patched["spec"] == {"a": 1, "b": 2}
        assert OBJECT["spec"] == {"a": 1}

    def test_it_fails_with_the_difference_when_the_patch_makes_something_else(self) -> None:
        with pytest.raises(AssertionError, match=r"another by .*/spec/b"):
            assert_patched(reply_of(Answer(patch=ADD_B)), OBJECT, {**OBJECT, "spec": {"a": 1, "b": 3}})

    def test_it_fails_when_nothing_is_patched_and_something_should_be(self) -> None:
        with pytest.raises(AssertionError, match="another by"):
            assert_patched(reply_of(LET_IN), OBJECT, {**OBJECT, "spec": {"a": 1, "b": 2}})

    def test_it_fails_with_the_message_when_the_reply_is_a_refusal(self) -> None:
        with pytest.raises(AssertionError, match=r"refused: spec\.a: is not allowed"):
            assert_patched(reply_of(Answer(forbidden("spec.a", "is not allowed"))), OBJECT, OBJECT)


class TestReply:
    @pytest.mark.parametrize(
        "changes",
        [
            pytest.param({"apiVersion": "admission.k8s.io/v1beta1"}, id="v1beta1"),
            pytest.param({"kind": "Status"}, id="another kind"),
            pytest.param({"response": {"uid": "u-2", "allowed": True}}, id="another uid"),
            pytest.param({"response": {"uid": "u-1", "allowed": True, "patch": "W10="}}, id="no patchType"),
            pytest.param({"response": {"uid": "u-1", "allowed": True, "patchType": "JSONPatch"}}, id="no patch"),
            pytest.param({"response": {"uid": "u-1", "allowed": False}}, id="a refusal without a code"),
        ],
    )
    def test_it_insists_on_what_the_api_server_insists_on(self, changes: dict[str, Any]) -> None:
        body = orjson.dumps({**orjson.loads(encode("u-1", LET_IN)), **changes})

        with pytest.raises(AssertionError):
            Reply.of(body, uid="u-1")

    def test_it_reads_all_that_an_answer_says(self) -> None:
        refused = reply_of(Answer(forbidden("spec.a", "is not allowed", "take it out"), warnings=["w"]))

        assert (refused.allowed, refused.code, refused.reason) == (False, 403, "Forbidden")
        assert refused.message == "spec.a: is not allowed; take it out"
        assert (refused.causes, refused.fields) == ((("spec.a", "is not allowed"),), ("spec.a",))
        assert (refused.warnings, refused.patch) == (("w",), ())


class TestReview:
    def test_it_is_what_the_api_server_sends(self) -> None:
        body = review(vmi(), user=ADMIN, uid="u-1")

        kind = {"group": "kubevirt.io", "version": "v1", "kind": "VirtualMachineInstance"}
        resource = {"group": "kubevirt.io", "version": "v1", "resource": "virtualmachineinstances"}
        assert (body["apiVersion"], body["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
        assert body["request"] == {
            "uid": "u-1",
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "name": "vm",
            "namespace": "tenant-a",
            "operation": "CREATE",
            "userInfo": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
            "object": vmi(),
            "oldObject": None,
            "dryRun": False,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
        }

    def test_each_has_a_uid_of_its_own_and_leaves_the_manifest_alone(self) -> None:
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"}}

        first, second = review(manifest)["request"], review(manifest)["request"]

        assert first["uid"] != second["uid"]
        assert first["kind"]["group"] == ""
        assert first["object"]["metadata"] == {"generateName": "p-", "namespace": "default"}
        assert "name" not in first
        assert manifest["metadata"] == {"generateName": "p-"}

    def test_a_delete_has_the_old_object_alone(self) -> None:
        request = review(None, operation="DELETE", old=vmi())["request"]

        assert (request["operation"], request["object"], request["oldObject"]) == ("DELETE", None, vmi())
        assert (request["kind"]["kind"], request["name"]) == ("VirtualMachineInstance", "vm")

    def test_a_subresource_is_named_twice(self) -> None:
        request = review(vmi(), subresource="status")["request"]

        assert request["subResource"] == request["requestSubResource"] == "status"

    def test_virt_controller_and_a_tenant_are_who_they_are_on_a_cluster(self) -> None:
        assert VIRT_CONTROLLER.username == "system:serviceaccount:kubevirt:kubevirt-controller"
        assert "system:masters" not in TENANT.groups


class TestPersisted:
    def test_it_has_a_name_from_generate_name_and_a_uid(self) -> None:
        obj = {"metadata": {"generateName": "farm"}}

        first, second = persisted(obj), persisted(obj)

        assert re.fullmatch(r"farm[0-9a-f]{5}", first["metadata"]["name"])
        assert first["metadata"]["uid"] != second["metadata"]["uid"]
        assert obj == {"metadata": {"generateName": "farm"}}

    def test_a_name_and_a_uid_that_are_there_stay(self) -> None:
        assert persisted({"metadata": {"name": "a", "uid": "u"}})["metadata"].items() >= {("name", "a"), ("uid", "u")}


class TestPair:
    async def test_what_both_paths_let_in_is_admitted_as_it_became(self, gpu_pair: Pair) -> None:
        admitted = await gpu_pair.admit(vmi(labels={"gpu.cozystack.io/device-reference": "my-gpu"}))

        assert admitted.allowed
        assert admitted.validated is not None
        assert admitted.obj["spec"]["domain"]["devices"]["gpus"] == [{"name": "gpu-0", "deviceName": H200}]
        with pytest.raises(AssertionError, match="it was let in"):
            _ = admitted.refusal

    async def test_what_the_mutating_path_refuses_is_not_validated(self, gpu_pair: Pair) -> None:
        admitted = await gpu_pair.admit(vmi(labels={"gpu.cozystack.io/device-reference": "none"}))

        assert (admitted.allowed, admitted.validated, admitted.refusal.code) == (False, None, 422)

    async def test_what_the_validating_path_refuses_is_refused(self, gpu_pair: Pair) -> None:
        admitted = await gpu_pair.admit(vmi(H200))

        assert (admitted.mutated.allowed, admitted.allowed, admitted.refusal.code) == (True, False, 403)

    async def test_an_answer_that_is_not_http_200_fails(self, gpu_pair: Pair) -> None:
        with pytest.raises(AssertionError, match='"reason":"BadRequest"'):
            await gpu_pair.mutate({"request": {"uid": ""}})


def example() -> str:
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return str(block)


def run_example(directory: Path, text: str) -> "subprocess.CompletedProcess[str]":
    (directory / "test_example.py").write_text(text)
    (directory / "examples").symlink_to(PAGE.parent.parent / "examples")
    options = ["asyncio_mode=auto", "asyncio_default_fixture_loop_scope=function"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"]
    command += [word for option in options for word in ("-o", option)]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=60)


def test_the_example_of_the_page_passes_in_a_suite_of_its_own(tmp_path: Path) -> None:
    result = run_example(tmp_path, example())

    assert result.returncode == 0, result.stdout + result.stderr
    assert "2 passed" in result.stdout


@pytest.mark.parametrize(
    ("truth", "lie"), [("gpus[0]", "gpus[1]"), ('{"name": "gpu-0"', '{"name": "gpu-1"')], ids=["field", "patch"]
)
def test_the_example_of_the_page_can_fail(tmp_path: Path, truth: str, lie: str) -> None:
    assert truth in example()

    result = run_example(tmp_path, example().replace(truth, lie))

    assert result.returncode == 1
    assert "1 failed, 1 passed" in result.stdout


def test_the_page_names_all_that_the_kit_offers() -> None:
    import webhooks.testing

    page = PAGE.read_text()

    assert [name for name in webhooks.testing.__all__ if name not in page] == []
