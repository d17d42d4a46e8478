"""Which drivers and cards a build runs on, as far as that is known without importing it."""

from __future__ import annotations

import os
import re
import runpy
from collections.abc import Iterable, Mapping
from pathlib import Path

from helpers.machine.framework_builds import FrameworkBuild
from helpers.machine.nvml import Gpu
from helpers.trainers.contract import ROOT

# The installer's reading of them. requirements/ holds scripts and is no package.
_INSTALLER = runpy.run_path(str(ROOT / "requirements" / "machine.py"))
# The compute capabilities of the oldest and of the newest card.
_Range = tuple[tuple[int, int], tuple[int, int]]
# The cards for which a build was made, for builds that do not state it themselves (requirements/gpu-cuda11.txt).
_BUILT_FOR: dict[tuple[str, str], _Range] = {("paddlepaddle-gpu", "2.6"): ((6, 1), (8, 6))}
# For each toolkit, the oldest and the newest card for which it compiles, by CUDA's release notes; newest first.
_TOOLKITS: tuple[tuple[tuple[int, int], _Range], ...] = (
    ((13, 0), ((7, 5), (12, 1))),
    ((12, 8), ((5, 0), (12, 1))),
    ((12, 0), ((5, 0), (9, 0))),
    ((11, 8), ((3, 5), (9, 0))),
    ((11, 1), ((3, 5), (8, 6))),
    ((11, 0), ((3, 5), (8, 0))),
    ((10, 0), ((3, 0), (7, 5))),
)


def driver_numbers(version: str) -> tuple[int, ...]:
    """``450.80.02`` as numbers, to be compared; empty if it holds none."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def kernel_driver() -> str:
    """The version of the NVIDIA driver's kernel module, also inside a container; empty where there is none."""
    return str(_INSTALLER["find_driver"]())


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


def why_build_runs_on_none(
    build: FrameworkBuild, stated: Mapping[str, str] | str, driver: str, cards: Iterable[Gpu], served: str = ""
) -> str:
    """Why a build with the ``stated`` libraries (BuildFinder.find_libraries) certainly cannot run on one of ``cards``
    with this driver, which serves the CUDA ``served``; empty if it may."""
    if isinstance(stated, str):
        return ""
    cuda, named = stated.get("cuda", ""), f"{build.distribution} {build.version}"
    if too_old := why_driver_too_old(driver, cuda, served):
        return f"{named} cannot run: {too_old}"
    for name, capability in sorted({(card.name, card.compute_capability) for card in cards}):
        why = why_no_kernels(build, cuda, stated.get("archs", ""), capability, certain=True)
        if why:
            return f"{name} is sm_{capability[0]}{capability[1]}, {named} {why}: install a build for this card"
    return ""


def why_no_kernels(
    build: FrameworkBuild, cuda: str, archs: str, card: tuple[int, int], *, certain: bool = False
) -> str:
    """Why a build has no kernels for a card; empty if it has some, or if it is not known.

    Kernels run on cards with the same major and the same or a higher minor number (CUDA's binary compatibility). With
    ``certain`` a card that is newer than the toolkit is passed over, since the driver may compile kernels for it.
    """
    if archs:
        built_for = sorted({(int(word) // 10, int(word) % 10) for word in archs.split()})
        served = any(major == card[0] and minor <= card[1] for major, minor in built_for)
        return "" if served else f"has kernels for {', '.join(f'sm_{major}{minor}' for major, minor in built_for)}"
    line = ".".join(build.version.split(".")[:2])
    exact = _BUILT_FOR.get((build.distribution, line))
    known = exact or _toolkit(cuda)
    if known is None or known[0] <= card <= (known[1][0], 9) or (certain and not exact and card > known[1]):
        return ""
    return f"is for sm_{known[0][0]}{known[0][1]} to sm_{known[1][0]}{known[1][1]}"


def _toolkit(cuda: str) -> _Range | None:
    """The oldest and newest cards for which a CUDA toolkit compiles; None for a toolkit that the suite does not
    know."""
    number = driver_numbers(cuda)[:2]
    return next((cards for since, cards in _TOOLKITS if number and number[0] == since[0] and number >= since), None)
