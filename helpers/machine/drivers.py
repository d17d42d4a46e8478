"""The NVIDIA driver of this machine, and the least one for each major version of CUDA."""

from __future__ import annotations

import os
import re
import runpy
from pathlib import Path

from helpers.trainers.contract import ROOT

# The installer's reading of them. requirements/ holds scripts and is no package.
_INSTALLER = runpy.run_path(str(ROOT / "requirements" / "machine.py"))


def driver_numbers(version: str) -> tuple[int, ...]:
    """``450.80.02`` as numbers, to be compared; empty if it holds none."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def kernel_driver(root: Path = Path("/")) -> str:
    """The version of the NVIDIA driver's kernel module, also inside a container; empty where there is none."""
    return str(_INSTALLER["find_driver"](root / "proc/driver/nvidia/version"))


def least_driver(cuda: str) -> str:
    """The least driver for a build of this CUDA (``11.8``); empty for a major version that the table does not have."""
    try:
        return str(_INSTALLER["least_driver"](cuda.partition(".")[0]))
    except LookupError:
        return ""


def why_driver_too_old(driver: str, cuda: str, served: str = "") -> str:
    """Why a build of this CUDA does not run with this driver, and what to do; empty if it does, or if it is not
    known. ``served`` is the CUDA that NVML states, which is newer with CUDA's forward compatibility."""
    least = least_driver(cuda)
    if driver_numbers(served)[:1] >= driver_numbers(cuda)[:1] or _has_compatibility_libcuda():
        return ""
    if not driver_numbers(driver) or not least or driver_numbers(driver) >= driver_numbers(least):
        return ""
    return (
        f"the NVIDIA driver is {driver}; a build for CUDA {cuda} needs {least} or newer: update the driver, or take a "
        "build for an older CUDA"
    )


def _has_compatibility_libcuda() -> bool:
    """Whether LD_LIBRARY_PATH has the libcuda of a package cuda-compat, with which an older driver may serve a newer
    CUDA."""
    words = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return any("compat" in Path(word).parts and Path(word, "libcuda.so.1").is_file() for word in words)
