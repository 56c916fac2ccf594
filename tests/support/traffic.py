"""Tenants who order, use and give back GPUs without pause, and know what each of their VMIs must be answered."""

import asyncio
import itertools
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import gpukinds
from actors import VIRT_CONTROLLER
from controlplane.client import Client, Object, ref
from controlplane.errors import APIError
from foreseen import NO_ANSWER, Asked, LetIn, Refused, Verdict, ask, not_taken

T = TypeVar("T")

_PAUSE: Final = 0.03
_GIVE_UP: Final = 15.0
_FINALIZER: Final = "gpu.cozystack.io/class-protection"


class Traffic:
    """One tenant's stories, told over and over in a namespace of its own; ``asked`` is all that was answered.

    In each story something is there, changes and goes. What is judged by what has just appeared must be right at once.
    Where something has just gone, or means less than before, memory may let a VMI in for a moment: that question is
    put until the answer is right, and each answer is kept.
    """

    def __init__(self, kube: Client, namespace: str) -> None:
        self.asked: list[Asked] = []
        self.rounds = 0
        self._kube = kube
        self._virt_controller = kube.as_(VIRT_CONTROLLER)
        self._namespace = namespace
        self._numbers = itertools.count(1)

    async def run(self, stop: asyncio.Event) -> None:
        """Tell the stories until somebody stops it."""
        stories = (
            self._an_order_comes_and_goes,
            self._a_template,
            self._raw_names,
            self._a_device_of_another,
            self._a_class_comes_changes_and_goes,
        )
        for story in itertools.cycle(stories):
            if stop.is_set():
                return
            await story()
            self.rounds += story is stories[-1]

    async def _an_order_comes_and_goes(self) -> None:
        model = await self._new_class()
        device = await self._put(self._device(model))
        await self._ask("device just ordered", self._refers_to(device), LetIn([_resource(model)]))
        await self._take(device)
        missing = Refused(422, f"there is no GPUDevice {_name(device)!r}")
        await self._ask_until_right("device just deleted", lambda: self._refers_to(device), missing)
        again = await self._put(self._device(model, name=_name(device)))
        await self._ask("device ordered anew by its old name", self._refers_to(again), LetIn([_resource(model)]))
        await self._take(again)
        await self._take(model)

    async def _a_template(self) -> None:
        model = await self._new_class(maxCount=3)
        resource, name = _resource(model), self._new_name("vm")
        first = await self._ask("template", self._orders(model, 2, name=name), LetIn([resource] * 2), keep=True)
        above = Refused(422, "sells 1 to 3 GPUs")
        await self._ask("count above the maximum", self._orders(model, 4), above)
        await self._ask("class missing", self._orders(gpukinds.gpu_class("nowhere"), 1), Refused(422, "no GPUClass"))
        if first is not None:
            device = ref(gpukinds.API_VERSION, "GPUDevice", _reference(first), self._namespace)
            await self._bind(device, first)
            await self._take(first)
            # The old VMI may still be in memory, and the device is bound to it.
            again = await self._ask(
                "VM started again", self._orders(model, 2, name=name), LetIn([resource] * 2), keep=True
            )
            assert again is None or _reference(again) == _name(device)
            if again is not None:
                await self._take(again)
            await self._take(device)
        await self._take(model)

    async def _raw_names(self) -> None:
        model = await self._new_class()
        gpu = {"gpus": [{"name": "gpu", "deviceName": _resource(model)}]}
        await self._ask("raw name in gpus", self._vmi(devices=gpu), Refused(403, "by its raw name"))
        foreign = {"hostDevices": [{"name": "nic", "deviceName": "example.org/nic"}]}
        await self._ask("a device that is no GPU", self._vmi(devices=foreign), LetIn())
        host_device = {"hostDevices": [{"name": "gpu", "deviceName": _resource(model)}]}
        refused = Refused(403, "by its raw name")
        await self._ask_until_right(
            "raw name of a new class in hostDevices", lambda: self._vmi(devices=host_device), refused
        )
        await self._take(model)

    async def _a_device_of_another(self) -> None:
        model = await self._new_class()
        device = await self._put(self._device(model))
        user = await self._ask("device of its own", self._refers_to(device), LetIn([_resource(model)]), keep=True)
        if user is not None:
            await self._bind(device, user)
            taken = Refused(409, f"is in use by VirtualMachineInstance {_name(user)!r}")
            await self._ask_until_right("device of another VMI", lambda: self._refers_to(device), taken)
            await self._take(user)
            await self._ask("device of a VMI that is gone", self._refers_to(device), LetIn([_resource(model)]))
        await self._take(device)
        await self._take(model)

    async def _a_class_comes_changes_and_goes(self) -> None:
        model = gpukinds.gpu_class(self._new_name("class"), maxCount=2)
        model["metadata"]["finalizers"] = [_FINALIZER]
        missing = Refused(422, f"there is no GPUClass {_name(model)!r}")
        await self._ask("class not there yet", self._orders(model, 1), missing)
        await self._put(model)
        await self._ask("class just made", self._orders(model, 1), LetIn([_resource(model)]))
        await self._change(model, {"spec": {"maxCount": 4}})
        await self._ask("maximum just raised", self._orders(model, 3), LetIn([_resource(model)] * 3))
        await self._change(model, {"spec": {"maxCount": 2}})
        above = Refused(422, "sells 1 to 2 GPUs")
        await self._ask_until_right("maximum just lowered", lambda: self._orders(model, 3), above)
        await self._take(model)
        going = Refused(403, "is being deleted")
        await self._ask_until_right("class being deleted", lambda: self._orders(model, 1), going)
        await self._change(model, {"metadata": {"finalizers": None}})
        await self._ask_until_right("class gone", lambda: self._orders(model, 1), missing)

    # Asking

    async def _ask(
        self, case: str, vmi: Mapping[str, Any], wanted: Verdict, *, keep: bool = False
    ) -> dict[str, Any] | None:
        """Ask once; the VMI where it is there and to be kept."""
        return await self._answered(await ask(self._virt_controller, case, vmi, wanted, None), keep=keep)

    async def _ask_until_right(self, case: str, vmi: Callable[[], Mapping[str, Any]], wanted: Verdict) -> None:
        changed = time.monotonic()
        while True:
            asked = await ask(self._virt_controller, case, vmi(), wanted, changed)
            await self._answered(asked)
            if asked.outcome in ("right", "wrong") or time.monotonic() > changed + _GIVE_UP:
                return

    async def _answered(self, asked: Asked, *, keep: bool = False) -> dict[str, Any] | None:
        """Keep the answer, and take away what came of it."""
        self.asked.append(asked)
        vmi = asked.answer
        await asyncio.sleep(_PAUSE)
        if vmi is None or isinstance(vmi, APIError):
            return None
        if keep and asked.outcome == "right":
            return dict(vmi)
        await self._take(vmi)
        if "annotations" in vmi["metadata"]:
            await self._take(ref(gpukinds.API_VERSION, "GPUDevice", _reference(vmi), self._namespace))
        return None

    # What is asked for

    def _new_name(self, what: str) -> str:
        return f"{what}-{self._namespace}-{next(self._numbers)}"

    def _device(self, model: Object, *, name: str = "") -> dict[str, Any]:
        device = gpukinds.gpu_device(self._namespace, name or self._new_name("gpu"))
        return {**device, "spec": {"className": _name(model), "count": 1}}

    def _vmi(self, *, name: str = "", devices: Mapping[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
        vmi = gpukinds.vmi(self._namespace, name or self._new_name("vm"))
        vmi["metadata"].update(metadata)
        vmi["spec"]["domain"]["devices"] = dict(devices or {})
        return vmi

    def _refers_to(self, device: Object) -> dict[str, Any]:
        return self._vmi(labels={"gpu.cozystack.io/device-reference": _name(device)})

    def _orders(self, model: Object, count: int, *, name: str = "") -> dict[str, Any]:
        order = json.dumps({"className": _name(model), "count": count})
        return self._vmi(name=name, annotations={"gpu.cozystack.io/device-template": order})

    # Doing things, however often it takes

    async def _new_class(self, **spec: Any) -> Object:
        return await self._put(gpukinds.gpu_class(self._new_name("class"), **spec))

    async def _put(self, obj: Object) -> Object:
        return await self._surely(lambda: self._kube.create(obj), done=409) or await self._surely(
            lambda: self._kube.get(obj)
        )

    async def _take(self, obj: Object) -> None:
        await self._surely(lambda: self._kube.delete(obj), done=404)

    async def _change(self, obj: Object, change: Mapping[str, Any]) -> None:
        await self._surely(lambda: self._kube.patch(obj, change))

    async def _bind(self, device: Object, vmi: Object) -> None:
        metadata = vmi["metadata"]
        binding = {"name": metadata["name"], "uid": metadata["uid"]}
        await self._surely(lambda: self._kube.patch(device, {"status": {"binding": binding}}, subresource="status"))

    async def _surely(self, call: Callable[[], Awaitable[dict[str, Any]]], *, done: int = 0) -> dict[str, Any]:
        """Call until it works; empty where the refusal says that it is ``done``."""
        while True:
            try:
                return await call()
            except APIError as refusal:
                if refusal.code == done:
                    return {}
                # A webhook refuses an order for the moment when it can't judge: that is no answer that counts here.
                if refusal.code < 500 and not not_taken(refusal):
                    raise
            except NO_ANSWER:
                pass
            await asyncio.sleep(0.1)


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _reference(vmi: Object) -> str:
    return str(vmi["metadata"]["labels"]["gpu.cozystack.io/device-reference"])


def _resource(model: Object) -> str:
    return str(model["spec"]["source"]["devicePlugin"]["resourceName"])
