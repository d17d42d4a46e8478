"""The GPUs of this machine and their driver, read with the standard library alone. helpers/machine/drivers.py uses
it."""

import ctypes
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

# For each major version of CUDA the least driver.
DRIVERS = Path(__file__).absolute().parent / "drivers.json"


class SetUpError(Exception):
    """What is missing, and what to install; the whole text is for the reader."""


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU as its driver describes it."""

    name: str
    capability: tuple[int, int]


def least_driver(cuda: int | str) -> str:
    """The least driver for a major version of CUDA."""
    return str(json.loads(DRIVERS.read_text(encoding="utf-8"))["least"][str(cuda)])


def find_driver(path: Path = Path("/proc/driver/nvidia/version")) -> str:
    """The version of the NVIDIA driver's kernel module, also inside a container; empty where there is none."""
    try:
        first = path.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    except OSError:
        return ""
    # "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023"
    found = re.search(r"\b\d{3,}\.\d+(\.\d+)*\b", first)
    return found.group() if found else ""


def find_gpus(
    load: Callable[[str], ctypes.CDLL] = ctypes.CDLL, driver: Path = Path("/proc/driver/nvidia/gpus")
) -> list[Gpu]:
    """The NVIDIA GPUs that answer NVML; none without NVML's library and without a driver.

    Raises SetUpError where the library or the driver is there and no card answers, because such a machine has a GPU
    that a CPU measurement would silently leave out.
    """
    try:
        nvml = load("libnvidia-ml.so.1")
    except OSError as error:
        if "No such file" in str(error) and not (driver.is_dir() and os.listdir(driver)):
            return []
        raise SetUpError(f"NVML cannot be loaded: {error}. Install the driver's libnvidia-ml.so.1") from None
    gpus, bad = [], []
    count = ctypes.c_uint()
    _ask(nvml, "nvmlInit_v2")
    _ask(nvml, "nvmlDeviceGetCount_v2", ctypes.byref(count))
    for index in range(count.value):
        try:
            gpus.append(_gpu(nvml, index))
        except SetUpError as error:
            bad.append(f"GPU{index}: {error}")
    if bad and not gpus:
        raise SetUpError("no GPU answers: " + "; ".join(bad))
    for each in bad:
        print(f"bootstrap: choosing by the other GPUs, as one does not answer ({each})")
    return gpus


def _ask(nvml: ctypes.CDLL, name: str, *arguments: object) -> None:
    if code := getattr(nvml, name)(*arguments):
        raise SetUpError(f"NVML's {name} failed with error {code}. Check 'nvidia-smi' and the driver")


def _gpu(nvml: ctypes.CDLL, index: int) -> Gpu:
    handle, name = ctypes.c_void_p(), ctypes.create_string_buffer(96)
    major, minor = ctypes.c_int(), ctypes.c_int()
    _ask(nvml, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
    _ask(nvml, "nvmlDeviceGetName", handle, name, ctypes.c_uint(len(name)))
    _ask(nvml, "nvmlDeviceGetCudaComputeCapability", handle, ctypes.byref(major), ctypes.byref(minor))
    return Gpu(name.value.decode(errors="replace").removeprefix("NVIDIA "), (major.value, minor.value))


def dotted(numbers: Sequence[int]) -> str:
    return ".".join(map(str, numbers))
