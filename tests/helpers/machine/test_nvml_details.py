"""The report's questions to nvidia-ml-py, asked of a stand-in for that module."""

from __future__ import annotations

import inspect
import re
from types import SimpleNamespace
from typing import Any

import pytest

import helpers.machine.nvml_details
from helpers.machine.nvml import Gpu
from helpers.machine.nvml_details import (
    TO_GPU,
    TO_OTHER,
    TO_SWITCH,
    TO_UNKNOWN,
    GpuDetails,
    Link,
    PyNvmlDetails,
    open_details,
    sysfs_address,
)
from helpers.machine.unknown import Unknown

NOT_SUPPORTED, INVALID_ARGUMENT, NO_PERMISSION, FUNCTION_NOT_FOUND = 3, 2, 4, 13
GPU = Gpu(0, "GPU-0", "Tesla V100-SXM2-32GB", 0, (7, 0))
OTHER = Gpu(1, "GPU-1", "Tesla V100-SXM2-32GB", 0, (7, 0))


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


def fails(value: int) -> Any:
    def function(*arguments: object) -> None:
        raise NVMLError(value)

    return function


def link_state(handle: str, number: int) -> int:
    """Six links, the last one down; then NVML has no more."""
    if number >= 6:
        raise NVMLError(INVALID_ARGUMENT)
    return int(number < 5)


def library(**replaced: Any) -> SimpleNamespace:
    functions: dict[str, Any] = {
        "nvmlDeviceGetHandleByIndex": lambda index: f"handle{index}",
        "nvmlDeviceGetPciInfo": lambda handle: SimpleNamespace(busId=b"00000000:3A:00.0"),
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=32, used=7),
        "nvmlDeviceGetPersistenceMode": lambda handle: 1,
        "nvmlDeviceGetEccMode": lambda handle: [1, 0],
        "nvmlDeviceGetTotalEccErrors": lambda handle, kind, counter: 0,
        "nvmlDeviceGetRemappedRows": fails(NOT_SUPPORTED),
        "nvmlDeviceGetRetiredPagesPendingStatus": lambda handle: 0,
        "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 250_000,
        "nvmlDeviceGetPowerManagementDefaultLimit": lambda handle: 300_000,
        "nvmlDeviceGetClockInfo": lambda handle, kind: 1290,
        "nvmlDeviceGetMaxClockInfo": lambda handle, kind: 1530,
        "nvmlDeviceGetApplicationsClock": lambda handle, kind: 1290,
        "nvmlDeviceGetDefaultApplicationsClock": lambda handle, kind: 1290,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 1,
        "nvmlDeviceGetTemperature": lambda handle, kind: 35,
        "nvmlDeviceGetComputeMode": lambda handle: 0,
        "nvmlDeviceGetCurrPcieLinkWidth": lambda handle: 16,
        "nvmlDeviceGetMaxPcieLinkWidth": lambda handle: 16,
        "nvmlDeviceGetMaxPcieLinkGeneration": lambda handle: 3,
        "nvmlDeviceGetCpuAffinity": lambda handle, words: [0b1011, 1],
        "nvmlDeviceGetComputeRunningProcesses_v3": lambda handle: [SimpleNamespace(pid=9), SimpleNamespace(pid=4)],
        "nvmlDeviceGetTopologyCommonAncestor": lambda one, other: 40,
        "nvmlDeviceGetNvLinkState": link_state,
        "nvmlDeviceGetNvLinkRemotePciInfo": lambda handle, link: SimpleNamespace(busId=f"00000000:4{link}:00.0"),
        "nvmlDeviceGetNvLinkRemoteDeviceType": lambda handle, link: [0, 0, 2, 1, 255][link],
    }
    constants = {
        "NVMLError": NVMLError,
        "NVML_ERROR_NOT_SUPPORTED": NOT_SUPPORTED,
        "NVML_ERROR_INVALID_ARGUMENT": INVALID_ARGUMENT,
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1,
        "NVML_VOLATILE_ECC": 0,
        "NVML_CLOCK_SM": 1,
        "NVML_TEMPERATURE_GPU": 0,
        "NVML_COMPUTEMODE_EXCLUSIVE_THREAD": 1,
        "NVML_COMPUTEMODE_EXCLUSIVE_PROCESS": 3,
        "NVML_NVLINK_MAX_LINKS": 36,
    }
    for name, function in functions.items():
        function.__name__ = name
    return SimpleNamespace(**{**functions, **constants, **replaced})


def details(**replaced: Any) -> GpuDetails:
    return PyNvmlDetails(library(**replaced)).details(GPU)


def test_a_card_is_read_with_its_units() -> None:
    found = details()
    assert found.bus_id == "0000:3a:00.0"
    assert (found.power_limit_watts, found.default_power_limit_watts) == (250, 300)
    assert (found.ecc, found.pending_ecc, found.uncorrected_ecc) == (True, False, 0)
    assert (found.persistence, found.exclusive) == (True, False)
    assert (found.cpus, found.processes) == (frozenset({0, 1, 3, 64}), (4, 9))


def test_memory_that_waits_to_be_taken_out_of_use_is_seen_on_old_cards_and_new_ones() -> None:
    assert details().pages_pending is False
    assert details(nvmlDeviceGetRetiredPagesPendingStatus=lambda handle: 1).pages_pending is True
    assert details(nvmlDeviceGetRemappedRows=lambda handle: (0, 1, 1, 0)).pages_pending is True
    silent = details(nvmlDeviceGetRetiredPagesPendingStatus=fails(NO_PERMISSION))
    assert isinstance(silent.pages_pending, Unknown)


def test_active_links_are_told_by_what_they_end_at() -> None:
    assert details().links == (
        Link(TO_GPU, "0000:40:00.0"),
        Link(TO_GPU, "0000:41:00.0"),
        Link(TO_SWITCH, "0000:42:00.0"),
        Link(TO_OTHER, "0000:43:00.0"),
        Link(TO_OTHER, "0000:44:00.0"),
    )


def test_a_card_without_nvlink_has_none_and_one_that_hides_it_is_unknown() -> None:
    assert details(nvmlDeviceGetNvLinkState=fails(NOT_SUPPORTED)).links == ()
    assert isinstance(details(nvmlDeviceGetNvLinkState=fails(NO_PERMISSION)).links, Unknown)


def test_a_driver_that_does_not_know_what_links_end_at_leaves_it_unknown() -> None:
    links = details(nvmlDeviceGetNvLinkRemoteDeviceType=fails(FUNCTION_NOT_FOUND)).links
    assert isinstance(links, tuple)
    assert {link.remote for link in links} == {TO_UNKNOWN}


def test_one_answer_that_fails_is_unknown_and_the_rest_is_told() -> None:
    found = details(nvmlDeviceGetPersistenceMode=fails(NO_PERMISSION), nvmlDeviceGetEccMode=fails(NOT_SUPPORTED))
    assert isinstance(found.persistence, Unknown) and "NVML error 4" in str(found.persistence)
    assert isinstance(found.ecc, Unknown)
    assert found.power_limit_watts == 250


def test_a_card_that_is_lost_is_unknown_in_everything() -> None:
    found = details(nvmlDeviceGetHandleByIndex=fails(15))
    assert all(isinstance(value, Unknown) for value in vars(found).values())


def test_the_common_ancestor_is_nvmls_level_or_unknown() -> None:
    assert PyNvmlDetails(library()).common_ancestor(GPU, OTHER) == 40
    refused = PyNvmlDetails(library(nvmlDeviceGetTopologyCommonAncestor=fails(NOT_SUPPORTED)))
    assert isinstance(refused.common_ancestor(GPU, OTHER), Unknown)
    lost = PyNvmlDetails(library(nvmlDeviceGetHandleByIndex=fails(15)))
    assert isinstance(lost.common_ancestor(GPU, OTHER), Unknown)


def test_every_name_that_is_asked_exists_in_the_installed_nvidia_ml_py() -> None:
    pynvml = pytest.importorskip("pynvml")
    source = inspect.getsource(helpers.machine.nvml_details)
    asked = set(re.findall(r"\bnvml[A-Z]\w+|\bNVML_\w+", source)) - {
        "nvmlGpuTopologyLevel",
        "nvmlIntNvLinkDeviceType_t",
    }
    assert len(asked) > 25
    assert sorted(name for name in asked if not hasattr(pynvml, name)) == []


def test_no_library_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helpers.machine.nvml_details, "open_nvml", lambda: "no libnvidia-ml.so.1")
    assert open_details() == "no libnvidia-ml.so.1"


@pytest.mark.parametrize("text", ["00000000:3A:00.0", b"00000000:3A:00.0", "0000:3a:00.0"])
def test_a_bus_id_is_written_as_sysfs_does(text: str | bytes) -> None:
    assert sysfs_address(text) == "0000:3a:00.0"
