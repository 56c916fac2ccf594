"""The settings and the classes together say which names are GPUs."""

from typing import Any

import pytest

from gpu.errors import FieldError
from gpu.gpuclass import GPUClass
from gpu.offer import GPUSettings, Offer


def gpu_class(name: str, resource_name: str, *sold: str) -> GPUClass:
    source = {"devicePlugin": {"resourceName": resource_name}}
    spec = {"vendor": "v", "model": "m", "mode": "Passthrough", "memory": "1Gi", "maxCount": 8, "source": source}
    return GPUClass.from_dict({"metadata": {"name": name}, "spec": spec, "status": {"resourceNames": list(sold)}})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("nvidia.com/A,nvidia.com/B", {"nvidia.com/A", "nvidia.com/B"}),
        ("nvidia.com/A", {"nvidia.com/A"}),
        (" nvidia.com/A , nvidia.com/B\n", {"nvidia.com/A", "nvidia.com/B"}),
        ("nvidia.com/A,,nvidia.com/A,", {"nvidia.com/A"}),
        ("", set()),
        (None, set()),
    ],
)
def test_the_settings_hold_names_between_commas(text: str | None, names: set[str]) -> None:
    found = GPUSettings.from_dict({"data": {"resourceNames": text, "deviceClassNames": text}})

    assert found.resource_names == names
    assert found.device_class_names == names


@pytest.mark.parametrize("obj", [{}, {"data": None}, {"data": {}}])
def test_settings_without_data_name_nothing(obj: dict[str, Any]) -> None:
    assert GPUSettings.from_dict(obj) == GPUSettings(resource_names=frozenset(), device_class_names=frozenset())


@pytest.mark.parametrize(
    ("data", "path"),
    [([], "data"), ({"resourceNames": []}, "data.resourceNames"), ({"deviceClassNames": 1}, "data.deviceClassNames")],
)
def test_a_wrong_type_is_told_with_its_field_path(data: object, path: str) -> None:
    with pytest.raises(FieldError) as error:
        GPUSettings.from_dict({"data": data})

    assert error.value.path == path


def test_a_gpu_resource_name_is_one_of_the_settings_or_of_a_class() -> None:
    settings = GPUSettings.from_dict({"data": {"resourceNames": "nvidia.com/RETIRED", "deviceClassNames": "gpu.x"}})

    offer = Offer({"h200": gpu_class("h200", "nvidia.com/H200", "nvidia.com/OLD")}, settings)

    assert offer.names == {
        "nvidia.com/RETIRED",
        "nvidia.com/H200",
        "nvidia.com/OLD",
        "deviceclass.resource.kubernetes.io/gpu.x",
    }
    assert offer.device_class_names == {"gpu.x"}


def test_without_settings_the_names_of_the_classes_remain() -> None:
    offer = Offer({"h200": gpu_class("h200", "nvidia.com/H200")}, None)

    assert offer.names == {"nvidia.com/H200"}
    assert offer.device_class_names == frozenset()


def test_a_controller_publishes_every_name_of_every_class() -> None:
    published = GPUSettings.of_classes([gpu_class("a", "x.io/A", "x.io/OLD"), gpu_class("b", "x.io/B")])

    assert published.resource_names == {"x.io/A", "x.io/OLD", "x.io/B"}
    assert published.device_class_names == frozenset()
