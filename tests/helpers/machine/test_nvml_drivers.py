"""The real nvidia-ml-py over stand-ins for libnvidia-ml.so.1 of several ages (before 510 without ``_v3`` lists)."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, cast

import pytest

from helpers.machine.nvml import Gpu, Nvml, open_nvml
from helpers.trainers.contract.errors import DeviceError

SUCCESS, INSUFFICIENT_SIZE, GPU_IS_LOST = 0, 7, 15
GPU = Gpu(0, "GPU-aaaa", "Tesla V100-SXM2-16GB", 16 * 1024**3, (7, 0))
V3, V2, FIRST = "_v3", "_v2", ""
# The sizes of the structure behind each entry point (nvml.h): the second has two instance ids more.
SIZES = {V3: 24, V2: 24, FIRST: 16}


class Driver:
    """A libnvidia-ml.so.1 that has the lists of ``versions`` alone; each list writes its own structure."""

    def __init__(self, *versions: str, users: dict[str, tuple[int, ...]], failing: int = 0) -> None:
        self.calls: list[str] = []
        self.failing = failing
        self._functions: dict[str, Callable[..., int]] = {
            "nvmlInitWithFlags": lambda flags: SUCCESS,
            "nvmlErrorString": lambda code: b"an error",
            "nvmlDeviceGetHandleByIndex_v2": lambda index, handle: SUCCESS,
            "nvmlSystemGetCudaDriverVersion": self._cuda(11000),
            **({"nvmlSystemGetCudaDriverVersion_v2": self._cuda(11040)} if V3 in versions else {}),
        }
        for kind, ids in users.items():
            for version in versions:
                self._functions[f"nvmlDeviceGet{kind}RunningProcesses{version}"] = self._list(ids, version)

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name not in self._functions:
            raise AttributeError(name)
        self.calls.append(name)
        return self._functions[name]

    def _list(self, ids: tuple[int, ...], version: str) -> Callable[..., int]:
        def answer(handle: object, count: Any, processes: Any) -> int:
            if self.failing:
                return self.failing
            room, count._obj.value = count._obj.value, len(ids)
            if room < len(ids) or processes is None:
                return INSUFFICIENT_SIZE if ids else SUCCESS
            assert ctypes.sizeof(processes._type_) == SIZES[version]
            for place, pid in enumerate(ids):
                processes[place].pid = pid
            return SUCCESS

        return answer

    @staticmethod
    def _cuda(version: int) -> Callable[..., int]:
        def answer(found: Any) -> int:
            found._obj.value = version
            return SUCCESS

        return answer


@pytest.fixture(autouse=True)
def _no_driver_afterwards() -> Iterator[None]:
    yield
    _load(None)


def _load(driver: Driver | None) -> ModuleType:
    module: Any = importlib.import_module("pynvml")
    module.nvmlLib = driver
    module._nvmlGetFunctionPointer_cache.clear()
    return cast(ModuleType, module)


def opened(driver: Driver) -> Nvml:
    nvml = open_nvml(_load(driver))
    assert not isinstance(nvml, str)
    return nvml


def users(**other: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    return {"Compute": (9, 4), "MPSCompute": (5,), "Graphics": (7,), **other}


@pytest.mark.parametrize(
    ("versions", "asked"), [((V3, V2, FIRST), V3), ((V2, FIRST), V2), ((FIRST,), FIRST)], ids=["510", "455", "418"]
)
def test_a_card_s_users_are_found_by_the_newest_list_that_the_driver_has(versions: tuple[str, ...], asked: str) -> None:
    driver = Driver(*versions, users=users())
    nvml = opened(driver)
    assert nvml.compute_processes(GPU) == (4, 5, 9)
    lists = {name for name in driver.calls if "ComputeRunning" in name}
    assert lists == {f"nvmlDeviceGet{kind}ComputeRunningProcesses{asked}" for kind in ("", "MPS")}


def test_a_driver_without_mps_s_and_the_screen_s_lists_tells_the_others() -> None:
    nvml = opened(Driver(FIRST, users={"Compute": (9,)}))
    assert (nvml.compute_processes(GPU), nvml.drawing_processes(GPU)) == ((9,), ())


@pytest.mark.parametrize("versions", [(V3,), (V2,), (FIRST,)])
def test_a_card_that_is_lost_is_an_error_and_no_older_list_is_asked(versions: tuple[str, ...]) -> None:
    driver = Driver(*versions, FIRST, users=users(), failing=GPU_IS_LOST)
    with pytest.raises(DeviceError, match=r"nvmlDeviceGetComputeRunningProcesses.*'nvidia-smi' must work"):
        opened(driver).compute_processes(GPU)
    assert [name for name in driver.calls if "ComputeRunning" in name][-1].endswith(f"Processes{versions[0]}")


def test_a_driver_without_any_list_is_a_device_error_and_no_empty_card() -> None:
    with pytest.raises(DeviceError, match="nvmlDeviceGetComputeRunningProcesses"):
        opened(Driver(users={})).compute_processes(GPU)


def test_the_cuda_that_a_driver_serves_is_told_by_old_ones_too() -> None:
    assert opened(Driver(V3, users={})).cuda_driver() == "11.4"
    assert opened(Driver(FIRST, users={})).cuda_driver() == "11.0"
