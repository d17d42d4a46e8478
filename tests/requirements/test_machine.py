"""The cards and the driver of a machine, as the installer finds them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.nvml_stub import (
    A100,
    DRIVER_NOT_LOADED,
    LOST,
    V100_16,
    StubMachine,
    machine_of,
    needs_compiler,
    nvml_library,
)
from tests.requirements.scripts import load

machine: Any = load("machine")


def _library(folder: Path, stub: StubMachine) -> Callable[[str], ctypes.CDLL]:
    path = str(nvml_library(folder, stub))
    return lambda name: ctypes.CDLL(path)


@needs_compiler
@pytest.mark.slow
def test_the_cards_that_answer_are_found_and_one_that_does_not_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    eight = _library(tmp_path / "eight", machine_of(V100_16, 8, {3: {"failures": LOST}}))
    assert machine.find_gpus(eight) == [machine.Gpu(V100_16.name, (7, 0))] * 7
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and "GPU3" in said
    one = _library(tmp_path / "one", machine_of(A100, 1))
    assert machine.find_gpus(one) == [machine.Gpu("A100-SXM4-40GB", (8, 0))]


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    "stub",
    [
        machine_of(V100_16, 1, {0: {"failures": LOST}}),
        StubMachine((V100_16,), init_code=DRIVER_NOT_LOADED),
        machine_of(V100_16, 1, {0: {"failures": {"nvmlDeviceGetCudaComputeCapability": 9}}}),
    ],
    ids=["lost", "no driver", "no capability"],
)
def test_a_machine_whose_cards_do_not_answer_is_an_error_and_never_a_cpu(tmp_path: Path, stub: StubMachine) -> None:
    with pytest.raises(machine.SetUpError, match="failed with error"):
        machine.find_gpus(_library(tmp_path, stub))


def test_without_nvml_there_is_no_gpu_unless_the_driver_lists_one(tmp_path: Path) -> None:
    def missing(name: str) -> ctypes.CDLL:
        raise OSError(f"{name}: cannot open shared object file: No such file or directory")

    def broken(name: str) -> ctypes.CDLL:
        raise OSError(f"{name}: file too short")

    assert machine.find_gpus(missing, tmp_path / "absent") == []
    (tmp_path / "0000:01:00.0").mkdir()
    for load_library, driver in ((missing, tmp_path), (broken, tmp_path / "absent")):
        with pytest.raises(machine.SetUpError, match="NVML cannot be loaded"):
            machine.find_gpus(load_library, driver)


def test_the_driver_is_the_kernel_module_s(tmp_path: Path) -> None:
    file = tmp_path / "version"
    file.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 2023\nGCC version: 9.4.0\n")
    assert machine.find_driver(file) == "535.104.05"
    file.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build\n")
    assert machine.find_driver(file) == "570.124.06"
    assert machine.find_driver(tmp_path / "none") == ""
