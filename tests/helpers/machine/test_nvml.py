import ctypes
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from helpers.common.unknown import Unknown
from helpers.machine.nvml import Gpu, GpuSettings, GpuState, Nvml, open_nvml
from helpers.trainers.contract.errors import DeviceError

NOT_SUPPORTED, GPU_IS_LOST, DRIVER_NOT_LOADED = pynvml.NVML_ERROR_NOT_SUPPORTED, 15, 9
NOT_FOUND, NO_PERMISSION, FUNCTION_NOT_FOUND = pynvml.NVML_ERROR_NOT_FOUND, 4, 13
GPU = Gpu(0, "GPU-aaaa", "Tesla V100-SXM2-16GB", 16 * 1024**3, (7, 0))


def link_state(handle: str, number: int) -> int:
    """Six links, the last one down; then NVML has no more."""
    if number >= 6:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    return int(number < 5)


def library(**replaced: Any) -> SimpleNamespace:
    """A stand-in for the module pynvml, with the real one's constants and errors: one V100 without MIG."""
    functions: dict[str, Any] = {
        "nvmlSystemGetDriverVersion": lambda: "525.60.13",
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
    for name, function in functions.items():
        assert hasattr(pynvml, name)
        function.__name__ = name
    older = {f"{name[:-1]}2": function for name, function in functions.items() if name.endswith("_v3")}
    constants = {name: value for name, value in vars(pynvml).items() if name.startswith(("NVML_", "NVMLError"))}
    return SimpleNamespace(**{**constants, **functions, **older, **replaced})


def fails(value: int) -> Any:
    def function(*arguments: object) -> None:
        raise pynvml.NVMLError(value)

    return function


def opened(**replaced: Any) -> Nvml:
    return Nvml(library(**replaced))


def test_the_adapter_reads_a_card_with_its_units() -> None:
    nvml = opened()
    (gpu,) = nvml.gpus()
    assert gpu == Gpu(0, "GPU-aaaa", "Tesla V100-SXM2-16GB", 16 * 1024**3, (7, 0), 300)
    assert nvml.state(gpu) == GpuState(1530, 61, 250.5, 0x04, 0, 877)
    assert nvml.settings(gpu) == GpuSettings(300, 300, 1290, 1312, 87, False, 3, 16, (True,) * 5 + (False,))
    # A driver from before MIG has no such function.
    assert opened(nvmlDeviceGetMigMode=fails(FUNCTION_NOT_FOUND)).gpus() == (gpu,)
    # Those under MPS among them.
    assert nvml.compute_processes(gpu) == (4, 5, 9)
    assert (nvml.driver(), nvml.cuda_driver()) == ("525.60.13", "12.4")


def test_what_a_card_or_driver_does_not_tell_is_unknown() -> None:
    names = [name for name in vars(library()) if name.startswith("nvmlDeviceGet") and "Handle" not in name]
    for value in (NO_PERMISSION, FUNCTION_NOT_FOUND, GPU_IS_LOST):
        silent = opened(**dict.fromkeys(names, fails(value)))
        assert all(isinstance(found, Unknown) for found in vars(silent.settings(GPU)).values())
    # This answer to a question about a link means that the card has none.
    assert opened(nvmlDeviceGetNvLinkState=fails(NOT_SUPPORTED)).settings(GPU).nvlinks == ()
    with pytest.raises(DeviceError, match="NVML"):
        opened(nvmlDeviceGetTemperature=fails(GPU_IS_LOST)).state(GPU)


def test_the_handle_of_a_card_is_not_asked_for_each_answer_and_retired_pages_only_without_remapped_rows() -> None:
    asked: list[str] = []
    replaced = {
        "nvmlDeviceGetHandleByIndex": lambda index: asked.append("handle"),
        "nvmlDeviceGetRetiredPagesPendingStatus": lambda handle: asked.append("pages"),
        "nvmlDeviceGetRemappedRows": lambda handle: (0, 0, 0, 0),
        "nvmlDeviceGetNvLinkState": fails(NOT_SUPPORTED),
    }
    opened(**replaced).settings(GPU)
    # The second time is for the links.
    assert asked == ["handle", "handle"]


@pytest.mark.parametrize(
    ("rows", "pending"), [((0, 0, 0, 0), False), ((0, 1, 1, 0), True), ((0, 9, 0, 1), True), ((4, 2, 0, 0), False)]
)
def test_rows_and_pages_that_wait_or_could_not_be_remapped_are_pending(rows: tuple[int, ...], pending: bool) -> None:
    assert opened(nvmlDeviceGetRemappedRows=lambda handle: rows).settings(GPU).pages_pending is pending
    assert opened(nvmlDeviceGetRetiredPagesPendingStatus=lambda handle: 1).settings(GPU).pages_pending is True


def first_list(*pids: int, code: int = pynvml.NVML_SUCCESS) -> Any:
    """A list of processes by the library's entry point of drivers before 450, which writes a structure of its own."""

    def answer(handle: object, count: Any, processes: Any) -> int:
        room, count._obj.value = count._obj.value, len(pids)
        if code or room < len(pids) or processes is None:
            return code or pynvml.NVML_ERROR_INSUFFICIENT_SIZE
        assert ctypes.sizeof(processes._type_) == 16
        for place, pid in enumerate(pids):
            processes[place].pid = pid
        return pynvml.NVML_SUCCESS

    return answer


def test_a_card_s_users_are_found_by_the_newest_list_that_the_driver_has() -> None:
    missing = fails(FUNCTION_NOT_FOUND)
    without_v3 = dict.fromkeys((name for name in vars(library()) if name.endswith("Processes_v3")), missing)
    assert opened(**without_v3).compute_processes(GPU) == (4, 5, 9)
    lists = {"nvmlDeviceGetComputeRunningProcesses": first_list(9, 4),
             "nvmlDeviceGetMPSComputeRunningProcesses": first_list(5)}  # fmt: skip
    old = {**without_v3, **{f"{name[:-1]}2": missing for name in without_v3}, "nvmlLib": SimpleNamespace(**lists)}
    driver_418 = opened(**old, nvmlSystemGetCudaDriverVersion_v2=missing)
    assert (driver_418.compute_processes(GPU), driver_418.drawing_processes(GPU)) == ((4, 5, 9), ())
    assert driver_418.cuda_driver() == "12.0"
    # A lost card is an error, and no older list is asked; a driver without any list has no empty cards.
    lost = {"nvmlDeviceGetComputeRunningProcesses": first_list(code=GPU_IS_LOST)}
    for broken in (
        {"nvmlDeviceGetComputeRunningProcesses_v3": fails(GPU_IS_LOST)},
        {**old, "nvmlLib": SimpleNamespace(**lost)},
        {**old, "nvmlLib": SimpleNamespace()},
    ):
        with pytest.raises(DeviceError, match=r"nvmlDeviceGetComputeRunningProcesses.*'nvidia-smi' must work"):
            opened(**broken).compute_processes(GPU)


def test_a_display_that_idles_does_not_draw_and_a_program_that_renders_does() -> None:
    nvml = opened()
    # What the first answer tells was before anybody asked.
    assert nvml.drawing_processes(GPU) == ()
    assert nvml.drawing_processes(GPU) == (7,)
    assert opened(nvmlDeviceGetProcessUtilization=fails(NOT_FOUND)).drawing_processes(GPU) == ()
    assert opened(nvmlDeviceGetProcessUtilization=fails(NOT_SUPPORTED)).drawing_processes(GPU) == (7, 8)
    assert opened(nvmlDeviceGetGraphicsRunningProcesses_v3=fails(NOT_SUPPORTED)).drawing_processes(GPU) == ()


def test_no_library_is_no_gpu_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlInit", fails(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND))
    assert open_nvml() == "no libnvidia-ml.so.1"


def test_a_library_that_fails_is_an_error_and_not_a_machine_without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlInit", fails(DRIVER_NOT_LOADED))
    with pytest.raises(DeviceError, match=r"Driver Not Loaded.*driver"):
        open_nvml()
    with pytest.raises(DeviceError, match="NVML"):
        opened(nvmlDeviceGetCount=fails(DRIVER_NOT_LOADED)).gpus()


@pytest.mark.parametrize(
    ("function", "uuid"),
    [("nvmlDeviceGetHandleByIndex", ""), ("nvmlDeviceGetUUID", ""), ("nvmlDeviceGetMigMode", "GPU-aaaa")],
)
def test_a_card_that_does_not_answer_has_a_fault_and_what_it_told_before(function: str, uuid: str) -> None:
    (gpu,) = opened(**{function: fails(GPU_IS_LOST)}).gpus()
    assert gpu.uuid == uuid
    assert gpu.fault.endswith(": GPU is lost")


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


def test_a_card_is_read_with_its_units() -> None:
    found = opened().details(GPU)
    assert (found.power_limit_watts, found.default_power_limit_watts) == (300, 300)
    assert (found.ecc, found.state) == (True, GpuState(1530, 61, 250.5, 0x04, 0, 877))
    assert found.persistence is True
    assert (found.cpus, found.processes) == (frozenset({0, 1, 3, 64}), (4, 5, 9))


def test_a_card_that_is_lost_is_unknown_in_everything() -> None:
    found = opened(nvmlDeviceGetHandleByIndex=fails(GPU_IS_LOST)).details(GPU)
    assert all(isinstance(value, Unknown) for value in vars(found).values())
