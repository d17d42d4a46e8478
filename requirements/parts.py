"""The parts of which each environment is made: which files of pins they are, and which may be missing.

Standard library only, and it must parse on Python 3.6, as bootstrap.py must.
"""

import hashlib
import os
from typing import Dict, Sequence, Tuple  # noqa: F401 - Tuple is in a type comment

import machine

# Sets of the suite: the suite and a Paddle, each with the file of its pins, which begins with suite.txt.
SETS = {"cpu": "cpu.txt", "gpu-cuda11": "gpu-cuda11.txt", "gpu-wheel-on-cpu": "gpu-cuda11.txt"}
# Environments of a single tool, without the suite.
TOOLS = ("fuzz",)
# Environments of a single framework, without the suite: its sets of requirements (the one without a GPU first).
FRAMEWORKS = {
    "pytorch": ("pytorch-cpu", "pytorch-gpu", "pytorch-gpu-cuda12"),
    "tensorflow": ("tensorflow-cpu", "tensorflow-gpu"),
    "mxnet": ("mxnet-cpu", "mxnet-gpu"),
}
# Of such a set: further files that determine the content.
FRAMEWORK_SETS = {
    "pytorch-cpu": ("pytorch-common.txt", "pytorch-cuda.txt", "pytorch-gpu.txt"),
    "pytorch-gpu": ("pytorch-common.txt", "pytorch-cuda.txt"),
    "pytorch-gpu-cuda12": (),
    "tensorflow-cpu": ("tensorflow-common.txt",),
    "tensorflow-gpu": ("tensorflow-common.txt",),
    "mxnet-cpu": ("mxnet-common.txt",),
    "mxnet-gpu": ("mxnet-common.txt",),
}  # type: Dict[str, Tuple[str, ...]]
EXTRAS = ("dev",)
# Parts of every set of the suite that are installed without their dependencies, since only one module or the files are
# used.
ALONE = ("dataset", "otava", "uv")
# A library that Paddle loads. On small systems that lack it, it becomes a part of the environment.
OPENMP_PART, OPENMP_SCRIPT = "libgomp", "provide_libgomp.py"
# CUDA's libraries, and the script that then makes links to them by the names that Paddle opens.
CUDA_PART, LINKS_SCRIPT = "cuda11", "link_libraries.py"
DALI_CUDA11, DALI_CUDA12 = "dali-cuda11", "dali-cuda12"
# Parts without which an environment is complete: such a part -> what it costs when it cannot be had.
OPTIONAL = {
    CUDA_PART: "cases on a GPU run only where the machine itself has CUDA 11, cuDNN 8 and NCCL",
    DALI_CUDA11: "cases with DALI are skipped",
    DALI_CUDA12: "cases with DALI are skipped",
}
# Beside a part, the script that decides its content too.
_SCRIPTS = {OPENMP_PART: OPENMP_SCRIPT, CUDA_PART: LINKS_SCRIPT}


def wanted_parts(folder: str, chosen: str, extras: Sequence[str], driver: Sequence[int] = ()) -> Dict[str, str]:
    """Each part of the environment, in the order of installation -> SHA-256 of everything that determines its
    content. ``driver`` is the NVIDIA driver's version, empty where there is none."""
    if chosen in TOOLS:
        return {chosen: digest(folder, [chosen + ".txt"])}
    if chosen in FRAMEWORK_SETS:
        parts = {chosen: digest(folder, [chosen + ".txt", *FRAMEWORK_SETS[chosen]])}
        return {**parts, DALI_CUDA12: digest(folder, [DALI_CUDA12 + ".txt"])}
    parts = {chosen: digest(folder, ["suite.txt", SETS[chosen]])}
    more = [CUDA_PART] if chosen == "gpu-cuda11" else []
    for part in (*ALONE, *extras, *more, dali_part(chosen, driver)):
        parts[part] = digest(folder, [part + ".txt"] + ([_SCRIPTS[part]] if part in _SCRIPTS else []))
    return parts


def dali_part(chosen: str, driver: Sequence[int]) -> str:
    """DALI for CUDA 12, which serves Paddle's build for CUDA 11 too, unless the driver is known to be older."""
    older = chosen == "gpu-cuda11" and driver and tuple(driver) < machine.least_driver(12)
    return DALI_CUDA11 if older else DALI_CUDA12


def digest(folder: str, names: Sequence[str]) -> str:
    """SHA-256 over the named files, each with its name."""
    total = hashlib.sha256()
    for name in names:
        with open(os.path.join(folder, name), "rb") as file:
            total.update(name.encode() + b"\0" + file.read() + b"\0")
    return total.hexdigest()
