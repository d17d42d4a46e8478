import re
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.common.unknown import Unknown
from helpers.machine.nvml import (
    Gpu,
    GpuDetails,
    GpuSettings,
    GpuState,
    Nvml,
    open_pynvml,
)
from helpers.trainers.contract.errors import DeviceError

LIBRARY_NOT_FOUND, NOT_SUPPORTED, GPU_IS_LOST, DRIVER_NOT_LOADED = 12, 3, 15, 9
NOT_FOUND, NO_PERMISSION, FUNCTION_NOT_FOUND = 6, 4, 13
GPU = Gpu(0, "GPU-aaaa", "Tesla V100-SXM2-16GB", 16 * 1024**3, (7, 0))


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


def link_state(handle: str, number: int) -> int:
    """Six links, the last one down; then NVML has no more."""
    if number >= 6:
        raise NVMLError(2)
    return int(number < 5)


def library(**replaced: Any) -> SimpleNamespace:
    """A stand-in for the module pynvml: one V100 without MIG."""
    functions: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"525.60.13",
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 12040,
        "nvmlSystemGetCudaDriverVersion": lambda: 12000,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: f"handle{index}",
        "nvmlDeviceGetUUID": lambda handle: "GPU-aaaa",
        "nvmlDeviceGetName": lambda handle: "Tesla V100-SXM2-16GB",
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=16 * 1024**3, used=7),
        "nvmlDeviceGetCudaComputeCapability": lambda handle: (7, 0),
        "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 300_000,
        "nvmlDeviceGetMigMode": fails(NOT_SUPPORTED),
        "nvmlDeviceGetComputeMode": lambda handle: 0,
        "nvmlDeviceGetClockInfo": lambda handle, kind: {1: 1530, 2: 877}[kind],
        "nvmlDeviceGetTemperature": lambda handle, kind: 61,
        "nvmlDeviceGetPowerUsage": lambda handle: 250_500,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 0x04,
        "nvmlDeviceGetTotalEccErrors": lambda handle, kind, counter: 0,
        "nvmlDeviceGetComputeRunningProcesses_v3": lambda handle: [SimpleNamespace(pid=9), SimpleNamespace(pid=4)],
        "nvmlDeviceGetMPSComputeRunningProcesses_v3": lambda handle: [SimpleNamespace(pid=9), SimpleNamespace(pid=5)],
        "nvmlDeviceGetGraphicsRunningProcesses_v3": lambda handle: [SimpleNamespace(pid=7), SimpleNamespace(pid=8)],
        "nvmlDeviceGetProcessUtilization": lambda handle, since: [
            SimpleNamespace(pid=7, smUtil=30, timeStamp=since + 5),
            SimpleNamespace(pid=8, smUtil=0, timeStamp=since + 9),
        ],
        "nvmlDeviceGetPowerManagementDefaultLimit": lambda handle: 300_000,
        "nvmlDeviceGetApplicationsClock": lambda handle, kind: 1290,
        "nvmlDeviceGetDefaultApplicationsClock": lambda handle, kind: 1312,
        "nvmlDeviceGetTemperatureThreshold": lambda handle, kind: 87,
        "nvmlDeviceGetCurrPcieLinkGeneration": lambda handle: 3,
        "nvmlDeviceGetCurrPcieLinkWidth": lambda handle: 16,
        "nvmlDeviceGetNvLinkState": link_state,
        "nvmlDeviceGetPersistenceMode": lambda handle: 1,
        "nvmlDeviceGetEccMode": lambda handle: [1, 0],
        "nvmlDeviceGetMaxClockInfo": lambda handle, kind: 1530,
        "nvmlDeviceGetMaxPcieLinkWidth": lambda handle: 16,
        "nvmlDeviceGetMaxPcieLinkGeneration": lambda handle: 3,
        "nvmlDeviceGetCpuAffinity": lambda handle, words: [0b1011, 1],
        "nvmlDeviceGetRemappedRows": fails(NOT_SUPPORTED),
        "nvmlDeviceGetRetiredPagesPendingStatus": lambda handle: 0,
    }
    constants = {
        "NVMLError": NVMLError,
        "NVML_ERROR_LIBRARY_NOT_FOUND": LIBRARY_NOT_FOUND,
        "NVML_ERROR_NOT_SUPPORTED": NOT_SUPPORTED,
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1,
        "NVML_VOLATILE_ECC": 0,
        "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_MEM": 2,
        "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN": 1,
        "NVML_ERROR_NOT_FOUND": NOT_FOUND,
        "NVML_ERROR_NO_PERMISSION": NO_PERMISSION,
        "NVML_ERROR_FUNCTION_NOT_FOUND": FUNCTION_NOT_FOUND,
        "NVML_ERROR_INVALID_ARGUMENT": 2,
        "NVML_TEMPERATURE_GPU": 0,
        "NVML_NVLINK_MAX_LINKS": 18,
        "NVML_COMPUTEMODE_PROHIBITED": 2,
    }
    for name, function in functions.items():
        function.__name__ = name
    return SimpleNamespace(**{**functions, **constants, **replaced})


def fails(value: int) -> Any:
    def function(*arguments: object) -> None:
        raise NVMLError(value)

    return function


def opened(**replaced: Any) -> Nvml:
    nvml = open_pynvml(library(**replaced))
    assert not isinstance(nvml, str)
    return nvml


def test_the_adapter_reads_a_card_with_its_units() -> None:
    nvml = opened()
    (gpu,) = nvml.gpus()
    assert gpu == Gpu(0, "GPU-aaaa", "Tesla V100-SXM2-16GB", 16 * 1024**3, (7, 0), 300)
    assert nvml.state(gpu) == GpuState(1530, 61, 250.5, 0x04, 0, 877)
    assert nvml.settings(gpu) == GpuSettings(300, 300, 1290, 1312, 87, False, 3, 16, (True,) * 5 + (False,))
    # Those under MPS among them.
    assert nvml.compute_processes(gpu) == (4, 5, 9)
    assert (nvml.driver(), nvml.cuda_driver()) == ("525.60.13", "12.4")


def test_what_a_card_or_driver_does_not_tell_is_unknown() -> None:
    names = [name for name in vars(library()) if re.match("nvmlDeviceGet(?!Handle)", name)]
    for value in (NO_PERMISSION, FUNCTION_NOT_FOUND, GPU_IS_LOST):
        silent = opened(**dict.fromkeys(names, fails(value)))
        assert all(isinstance(found, Unknown) for found in vars(silent.settings(GPU)).values())
    # This answer to a question about a link means that the card has none.
    assert opened(nvmlDeviceGetNvLinkState=fails(NOT_SUPPORTED)).settings(GPU).nvlinks == ()
    with pytest.raises(DeviceError, match="NVML"):
        opened(nvmlDeviceGetTemperature=fails(GPU_IS_LOST)).state(GPU)


@pytest.mark.parametrize(
    ("rows", "pending"), [((0, 0, 0, 0), False), ((0, 1, 1, 0), True), ((0, 9, 0, 1), True), ((4, 2, 0, 0), False)]
)
def test_rows_that_wait_to_be_remapped_or_could_not_be_are_pending(rows: tuple[int, ...], pending: bool) -> None:
    assert opened(nvmlDeviceGetRemappedRows=lambda handle: rows).settings(GPU).pages_pending is pending


def test_pages_that_wait_to_be_retired_are_pending() -> None:
    assert opened(nvmlDeviceGetRetiredPagesPendingStatus=lambda handle: 1).settings(GPU).pages_pending is True


def test_a_display_that_idles_does_not_draw_and_a_program_that_renders_does() -> None:
    nvml = opened()
    # What the first answer tells was before anybody asked.
    assert nvml.drawing_processes(GPU) == ()
    assert nvml.drawing_processes(GPU) == (7,)
    assert opened(nvmlDeviceGetProcessUtilization=fails(NOT_FOUND)).drawing_processes(GPU) == ()
    assert opened(nvmlDeviceGetProcessUtilization=fails(NOT_SUPPORTED)).drawing_processes(GPU) == (7, 8)
    assert opened(nvmlDeviceGetGraphicsRunningProcesses_v3=fails(NOT_SUPPORTED)).drawing_processes(GPU) == ()


def test_every_name_the_adapter_uses_exists_in_the_installed_nvidia_ml_py() -> None:
    pynvml = pytest.importorskip("pynvml")
    assert [name for name in vars(library()) if not hasattr(pynvml, name)] == []
    assert pynvml.NVML_ERROR_LIBRARY_NOT_FOUND == LIBRARY_NOT_FOUND
    assert pynvml.NVML_ERROR_NOT_SUPPORTED == NOT_SUPPORTED
    assert (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_NO_PERMISSION) == (NOT_FOUND, NO_PERMISSION)


def test_no_library_is_no_gpu_with_a_reason() -> None:
    assert open_pynvml(library(nvmlInit=fails(LIBRARY_NOT_FOUND))) == "no libnvidia-ml.so.1"


def test_a_library_that_fails_is_an_error_and_not_a_machine_without_gpus() -> None:
    with pytest.raises(DeviceError, match=r"NVML error 9.*driver"):
        open_pynvml(library(nvmlInit=fails(DRIVER_NOT_LOADED)))
    with pytest.raises(DeviceError, match="NVML"):
        opened(nvmlDeviceGetCount=fails(DRIVER_NOT_LOADED)).gpus()


@pytest.mark.parametrize(
    ("function", "uuid"),
    [("nvmlDeviceGetHandleByIndex", ""), ("nvmlDeviceGetUUID", ""), ("nvmlDeviceGetMigMode", "GPU-aaaa")],
)
def test_a_card_that_does_not_answer_has_a_fault_and_what_it_told_before(function: str, uuid: str) -> None:
    (gpu,) = opened(**{function: fails(GPU_IS_LOST)}).gpus()
    assert gpu.uuid == uuid
    assert gpu.fault.endswith(f": NVML error {GPU_IS_LOST}")


def test_a_card_on_which_nobody_may_compute_has_a_fault() -> None:
    (gpu,) = opened(nvmlDeviceGetComputeMode=lambda handle: 2).gpus()
    assert (gpu.fault, gpu.remedy) == ("its compute mode is PROHIBITED", "sudo nvidia-smi -i 0 -c 0")


@pytest.mark.parametrize(
    ("name", "family", "matches"),
    [
        ("NVIDIA A100-SXM4-40GB", "a100", True),
        ("NVIDIA A100 80GB PCIe", "a100", True),
        ("NVIDIA RTX A1000 Laptop GPU", "a100", False),
        ("Tesla V100-SXM2-16GB", "v100", True),
        ("NVIDIA H200", "v100", False),
    ],
)
def test_a_family_is_matched_as_a_word(name: str, family: str, matches: bool) -> None:
    assert Gpu(0, "GPU-1", name, 0, (8, 0)).is_model(family) is matches


def details(**replaced: Any) -> GpuDetails:
    return opened(**replaced).details(GPU)


def test_a_card_is_read_with_its_units() -> None:
    found = details()
    assert (found.power_limit_watts, found.default_power_limit_watts) == (300, 300)
    assert (found.ecc, found.state) == (True, GpuState(1530, 61, 250.5, 0x04, 0, 877))
    assert found.persistence is True
    assert (found.cpus, found.processes) == (frozenset({0, 1, 3, 64}), (4, 5, 9))


def test_a_card_that_is_lost_is_unknown_in_everything() -> None:
    found = details(nvmlDeviceGetHandleByIndex=fails(15))
    assert all(isinstance(value, Unknown) for value in vars(found).values())
