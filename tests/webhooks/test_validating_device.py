"""GPUDevice, CREATE: what may be ordered, and which parts of an order are the platform's."""

from typing import Any

import pytest

from webhooks.testing import ADMIN, TENANT, VIRT_CONTROLLER, InMemoryCatalog, Pair, Reply, User, review

TEMPLATE_DEVICE = "gpu.cozystack.io/template-device"
DEVICE_FINALIZER = "gpu.cozystack.io/device"
H200 = "nvidia.com/GH100_H200_SXM_141GB"
PLATFORM = [
    ADMIN,
    User("ops", ("cozystack-cluster-admin",)),
    User("system:serviceaccount:cozy-system:cozystack", ("system:serviceaccounts:cozy-system",)),
    User("system:serviceaccount:kube-system:job-controller", ("system:serviceaccounts:kube-system",)),
    User("system:kube-controller-manager"),
]
OTHERS = [
    TENANT,
    VIRT_CONTROLLER,
    User("system:serviceaccount:tenant-a:default", ("system:serviceaccounts", "system:serviceaccounts:tenant-a")),
    User("system:masters", ("system:authenticated",)),
    User("jane", ("system:kube-controller-manager", "system:serviceaccounts:cozy-system2")),
]


def an_order(class_name: Any = "h200", *, name: str = "new", **more: Any) -> dict[str, Any]:
    """An order in tenant-a; ``count``, ``status`` and what else goes into the metadata as given."""
    spec = {"className": class_name} | {key: more.pop(key) for key in ("count",) if key in more}
    status = {"status": more.pop("status")} if "status" in more else {}
    return {
        "apiVersion": "gpu.cozystack.io/v1alpha1",
        "kind": "GPUDevice",
        "metadata": {"name": name, "namespace": "tenant-a", **more},
        "spec": spec,
        **status,
    }


def a_class(name: str = "h200", *, deleting: bool = False, max_count: int = 8) -> dict[str, Any]:
    deletion = {"deletionTimestamp": "2026-11-01T10:00:00Z"} if deleting else {}
    return {
        "apiVersion": "gpu.cozystack.io/v1alpha1",
        "kind": "GPUClass",
        "metadata": {"name": name, **deletion},
        "spec": {
            "vendor": "NVIDIA",
            "model": "H200",
            "mode": "Passthrough",
            "memory": "141Gi",
            "maxCount": max_count,
            "source": {"devicePlugin": {"resourceName": H200, "nodeSelector": {}}},
        },
    }


def assert_refused(reply: Reply, code: int, *fields: str, telling: str) -> None:
    assert not reply.allowed
    assert (reply.code, reply.fields) == (code, fields), reply.message
    assert telling in reply.message


class TestClass:
    @pytest.mark.parametrize("user", [TENANT, ADMIN], ids=["tenant", "admin"])
    async def test_an_order_of_a_class_that_is_offered_is_let_in(self, gpu_pair: Pair, user: User) -> None:
        reply = await gpu_pair.validate(review(an_order("l40s-24q"), user=user))

        assert reply.allowed, reply.message

    @pytest.mark.parametrize("user", [TENANT, ADMIN], ids=["tenant", "admin"])
    async def test_a_class_that_does_not_exist_is_refused_with_those_that_do(self, gpu_pair: Pair, user: User) -> None:
        reply = await gpu_pair.validate(review(an_order("h300"), user=user))

        assert_refused(reply, 422, "spec.className", telling="there is no GPUClass 'h300'")
        assert "choose one of: h200, l40s-24q" in reply.message

    async def test_a_class_in_another_case_is_refused_with_a_hint(self, gpu_pair: Pair) -> None:
        reply = await gpu_pair.validate(review(an_order("H200")))

        assert_refused(reply, 422, "spec.className", telling="did you mean 'h200'?")

    async def test_a_class_being_deleted_is_refused(self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
        gpu_catalog.add(a_class(deleting=True))

        reply = await gpu_pair.validate(review(an_order()))

        assert_refused(reply, 403, "spec.className", telling="GPUClass 'h200' is being deleted and takes no new orders")
        assert "choose one of: l40s-24q" in reply.message

    async def test_where_no_class_is_offered_none_is_named(self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
        gpu_catalog.remove("GPUClass", "", "l40s-24q")
        gpu_catalog.add(a_class(deleting=True))

        reply = await gpu_pair.validate(review(an_order("h300")))

        assert_refused(reply, 422, "spec.className", telling="no class is offered at present")

    async def test_of_many_classes_some_are_named(self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
        for index in range(20):
            gpu_catalog.add(a_class(f"class-{index:02}"))

        reply = await gpu_pair.validate(review(an_order("h300")))

        assert_refused(reply, 422, "spec.className", telling="class-07 and 14 more (kubectl get gpuclasses)")

    async def test_a_class_being_deleted_in_memory_only_is_let_in(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog
    ) -> None:
        gpu_catalog.add(a_class(deleting=True))

        with gpu_catalog.stale():
            before = await gpu_pair.validate(review(an_order()))
            gpu_catalog.add(a_class())
            after = await gpu_pair.validate(review(an_order()))

        assert_refused(before, 403, "spec.className", telling="is being deleted")
        assert after.allowed

    async def test_a_class_that_memory_lacks_is_looked_for_afresh(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog
    ) -> None:
        with gpu_catalog.stale():
            gpu_catalog.add(a_class("new-class"))
            reply = await gpu_pair.validate(review(an_order("new-class")))

        assert reply.allowed


class TestCount:
    @pytest.mark.parametrize("count", [{}, {"count": None}, {"count": 1}, {"count": 8}], ids=str)
    async def test_a_count_up_to_the_class_maximum_is_let_in(self, gpu_pair: Pair, count: dict[str, Any]) -> None:
        reply = await gpu_pair.validate(review(an_order(**count)))

        assert reply.allowed, reply.message

    @pytest.mark.parametrize(
        ("count", "telling"),
        [
            (0, "must be from 1 to 16"),
            (-1, "must be from 1 to 16"),
            (17, "must be from 1 to 16"),
            (10**30, "spec.count: must be"),
            (9, "GPUClass 'h200' sells 1 to 8 GPUs a device, not 9"),
            (True, "must be a whole number, not true or false"),
            (1.5, "must be a whole number, not a number"),
            ("2", "must be a whole number, not a string"),
            ([2], "must be a whole number, not a list"),
        ],
        ids=str,
    )
    async def test_any_other_count_is_refused(self, gpu_pair: Pair, count: object, telling: str) -> None:
        reply = await gpu_pair.validate(review(an_order(count=count)))

        assert_refused(reply, 422, "spec.count", telling=telling)

    async def test_the_default_count_is_one(self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog) -> None:
        gpu_catalog.add(a_class("single", max_count=1))

        default = await gpu_pair.validate(review(an_order("single")))
        two = await gpu_pair.validate(review(an_order("single", count=2)))

        assert default.allowed
        assert_refused(two, 422, "spec.count", telling="sells 1 to 1 GPUs a device, not 2")

    async def test_a_maximum_that_was_raised_meanwhile_counts(
        self, gpu_pair: Pair, gpu_catalog: InMemoryCatalog
    ) -> None:
        with gpu_catalog.stale():
            gpu_catalog.add(a_class(max_count=16))
            reply = await gpu_pair.validate(review(an_order(count=16)))

        assert reply.allowed


class TestShape:
    @pytest.mark.parametrize("name", ["a", "7", "my-gpu-2", "x" * 63])
    async def test_a_dns_label_as_name_is_let_in(self, gpu_pair: Pair, name: str) -> None:
        reply = await gpu_pair.validate(review(an_order(name=name)))

        assert reply.allowed, reply.message

    @pytest.mark.parametrize("name", ["My-GPU", "my.gpu", "my_gpu", "-gpu", "gpu-", "gpu\n", "x" * 64, "gpü"])
    async def test_any_other_name_is_refused(self, gpu_pair: Pair, name: str) -> None:
        reply = await gpu_pair.validate(review(an_order(name=name)))

        assert_refused(reply, 422, "metadata.name", telling="must be a DNS label of at most 63 characters")

    @pytest.mark.parametrize(
        ("spec", "field", "telling"),
        [
            (None, "spec", "is required"),
            ("h200", "spec", "must be an object, not a string"),
            ([], "spec", "must be an object, not a list"),
            ({}, "spec.className", "is required"),
            ({"className": ""}, "spec.className", "must not be empty"),
            ({"className": None}, "spec.className", "is required"),
            ({"className": 200}, "spec.className", "must be a string, not a whole number"),
        ],
        ids=["missing", "text", "list", "empty", "empty class", "null class", "class of another type"],
    )
    async def test_a_malformed_spec_is_refused(self, gpu_pair: Pair, spec: object, field: str, telling: str) -> None:
        reply = await gpu_pair.validate(review({**an_order(), "spec": spec}))

        assert_refused(reply, 422, field, telling=telling)

    async def test_a_manifest_without_a_namespace_is_of_the_requests(self, gpu_pair: Pair) -> None:
        body = review(an_order())
        del body["request"]["object"]["metadata"]["namespace"]

        reply = await gpu_pair.validate(body)

        assert reply.allowed, reply.message


class TestPlatform:
    @pytest.mark.parametrize("user", PLATFORM, ids=lambda user: user.username)
    async def test_the_platform_may_set_finalizer_label_and_status(self, gpu_pair: Pair, user: User) -> None:
        order = an_order(finalizers=[DEVICE_FINALIZER], labels={TEMPLATE_DEVICE: "true"}, status={"phase": "Pending"})

        reply = await gpu_pair.validate(review(order, user=user))

        assert reply.allowed, reply.message

    @pytest.mark.parametrize("user", OTHERS, ids=lambda user: user.username)
    @pytest.mark.parametrize(
        ("more", "field", "telling"),
        [
            ({"finalizers": [DEVICE_FINALIZER]}, "metadata.finalizers", f"'{DEVICE_FINALIZER}' is set by the platform"),
            ({"finalizers": ["orphan", "acme.example/keep"]}, "metadata.finalizers", "'acme.example/keep' is set"),
            ({"labels": {TEMPLATE_DEVICE: "true"}}, f"metadata.labels[{TEMPLATE_DEVICE}]", "leave the label out"),
            ({"labels": {TEMPLATE_DEVICE: ""}}, f"metadata.labels[{TEMPLATE_DEVICE}]", "leave the label out"),
            ({"status": {"phase": "Held"}}, "status", "is written by the platform alone"),
        ],
        ids=["our finalizer", "another finalizer", "label", "empty label", "status"],
    )
    async def test_others_may_not(
        self, gpu_pair: Pair, user: User, more: dict[str, Any], field: str, telling: str
    ) -> None:
        reply = await gpu_pair.validate(review(an_order(**more), user=user))

        assert_refused(reply, 403, field, telling=telling)

    @pytest.mark.parametrize(
        "more",
        [
            {"finalizers": ["orphan", "foregroundDeletion"]},
            {"finalizers": ["orphan"]},
            {"finalizers": []},
            {"finalizers": None},
            {"labels": {"app": "notebook", "gpu.cozystack.io/other": "true"}},
            {"labels": None},
            {"annotations": {TEMPLATE_DEVICE: "true"}},
            {"status": {}},
            {"status": None},
        ],
        ids=str,
    )
    async def test_others_may_set_whatever_is_not_the_platforms(self, gpu_pair: Pair, more: dict[str, Any]) -> None:
        reply = await gpu_pair.validate(review(an_order(**more), user=TENANT))

        assert reply.allowed, reply.message

    async def test_everything_that_is_wrong_is_told_at_once(self, gpu_pair: Pair) -> None:
        order = an_order(
            "h300",
            finalizers=[DEVICE_FINALIZER],
            labels={TEMPLATE_DEVICE: "true"},
            status={"phase": "Held", "nodeName": "gpu-node-1"},
        )

        reply = await gpu_pair.validate(review(order))

        fields = ("metadata.finalizers", f"metadata.labels[{TEMPLATE_DEVICE}]", "status", "spec.className")
        assert_refused(reply, 403, *fields, telling="there is no GPUClass 'h300'")

    async def test_the_platform_too_orders_only_what_is_offered(self, gpu_pair: Pair) -> None:
        reply = await gpu_pair.validate(review(an_order(count=9, finalizers=[DEVICE_FINALIZER]), user=ADMIN))

        assert_refused(reply, 422, "spec.count", telling="sells 1 to 8")

    @pytest.mark.parametrize(
        "body",
        [
            review(an_order("h300", count=3), operation="UPDATE", old=an_order()),
            review(None, operation="DELETE", old=an_order("h300")),
            review(an_order(status={"phase": "Held"}), operation="UPDATE", old=an_order(), subresource="status"),
        ],
        ids=["update", "delete", "status"],
    )
    async def test_what_creates_no_device_is_let_in(self, gpu_pair: Pair, body: dict[str, Any]) -> None:
        reply = await gpu_pair.validate(body)

        assert reply.allowed
