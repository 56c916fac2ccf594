"""What can't be read reaches the plans, as what can be told of it, and is counted."""

from functools import partial
from typing import Any

from structlog.testing import capture_logs

from cluster import kinds
from controller.keeper import Noticed
from controller.unread import Unread, salvage
from gpu.gpudevice import GPUDevice


class Kept:
    """A table of devices as the controller has it."""

    def __init__(self) -> None:
        self.noticed = 0
        self.table: Noticed[Any] = Noticed(
            "GPUDevice", GPUDevice.from_dict, self.notice, salvage=partial(salvage, kinds.GPU_DEVICES)
        )

    def notice(self) -> None:
        self.noticed += 1

    def put(self, version: int, count: object) -> None:
        metadata = {"namespace": "a", "name": "d", "uid": "u", "resourceVersion": str(version)}
        status = {"phase": "Held", "nodeName": "n1", "resourceName": "nvidia.com/H200"}
        self.table.put({"metadata": metadata, "spec": {"className": "h200", "count": count}, "status": status})


def test_it_is_in_the_table_and_a_plan_is_made_on_it() -> None:
    kept = Kept()
    with capture_logs() as logs:
        kept.put(1, "two")
        kept.put(2, "two")

    [found] = kept.table.every()
    assert isinstance(found, Unread)
    assert found.has("n1", "nvidia.com/H200")
    assert not found.has("n2", "nvidia.com/H200")
    assert kept.noticed == 1
    assert list(kept.table.unreadable) == [("a", "d")]
    assert [line["event"] for line in logs] == ["object left out: it can't be read"]


def test_what_was_read_before_is_not_believed_any_more() -> None:
    kept = Kept()
    kept.put(1, 2)
    kept.put(2, "two")

    [found] = kept.table.every()
    assert isinstance(found, Unread)
    assert kept.noticed == 2


def test_it_is_forgotten_when_it_can_be_read_again_or_is_gone() -> None:
    kept = Kept()
    kept.put(1, "two")
    kept.put(2, 2)
    [found] = kept.table.every()
    assert isinstance(found, GPUDevice)
    assert not kept.table.unreadable

    kept.put(3, "two")
    kept.table.begin("4")
    kept.table.end()
    assert not list(kept.table.every())
    assert not kept.table.unreadable
