"""What this machine is, and which set of pinned wheels runs on it; nothing is installed here.

Standard library only, and it must parse on Python 3.6, as bootstrap.py must.
"""

import ctypes
import json
import os
import re
from typing import Callable, List, NamedTuple, Sequence, Tuple

OLDEST, NEWEST = (3, 11), (3, 13)
GPU_NEWEST = (3, 12)
# The chips that the CUDA 11.8 build of Paddle holds machine code for.
GPU_CAPABILITIES = ((6, 1), (8, 6))
# The least of torch 2.13.0's CUDA 13.0 build, and of the set with 2.10.0 for the chips before them
# (requirements/pytorch-gpu-cuda12.txt says how its chips were found).
PYTORCH_OLDEST_CAPABILITY, PYTORCH_CUDA12_CAPABILITIES = (7, 5), ((7, 0), (12, 0))
# The least of tensorflow 2.21.0's CUDA 12 build, whose code for 9.0 is PTX, which newer chips compile for themselves.
TENSORFLOW_OLDEST_CAPABILITY = (6, 0)
# What mxnet-cu112 1.9.1 holds code for, without PTX for newer ones.
MXNET_CAPABILITIES = ((5, 0), (8, 6))
# Loaded by the packages, shipped by none: library -> (Debian's, Fedora's) package.
LIBRARIES = {
    "libstdc++.so.6": ("libstdc++6", "libstdc++"),
    "libgcc_s.so.1": ("libgcc-s1", "libgcc"),
    "libz.so.1": ("zlib1g", "zlib"),
}
# Besides those: of one framework.
FRAMEWORK_LIBRARIES = {
    "mxnet": {"libquadmath.so.0": ("libquadmath0", "libquadmath"), "libgomp.so.1": ("libgomp1", "libgomp")},
}
# The newest Python that a framework's wheels exist for, where it is not the suite's (requirements/mxnet-common.txt).
FRAMEWORK_NEWEST = {"mxnet": (3, 11)}
MEASURE_CPU = "To measure the CPU on purpose: make REQUIREMENTS=cpu perf"
TRAIN_ON_CPU = "To have {0} train on the CPU on purpose: requirements/bootstrap.py --requirements {1}"
# The major version of CUDA of each set for GPUs.
SET_CUDA = {"gpu-cuda11": 11, "pytorch-gpu": 13, "pytorch-gpu-cuda12": 12, "tensorflow-gpu": 12, "mxnet-gpu": 11}
# For each major version of CUDA the least driver; helpers/machine/drivers.py reads it too.
DRIVERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "drivers.json")
# Sets with Paddle's GPU wheel -> what such a set is for, as make calls it, and the way round it.
GPU_WHEEL_SETS = {"gpu-cuda11": ("perf", ". " + MEASURE_CPU), "gpu-wheel-on-cpu": ("test-paddle26", "")}


class SetUpError(Exception):
    """What is missing, and what to install; the whole text is for the reader."""


class Gpu(NamedTuple):
    """One NVIDIA GPU as its driver describes it."""

    name: str
    capability: Tuple[int, int]


def check_python(version: Sequence[int]) -> None:
    """Raise SetUpError unless the pinned wheels exist for this interpreter version."""
    found = tuple(version[:2])
    if not OLDEST <= found <= NEWEST:
        raise SetUpError(
            "this is Python {}, expected {} to {}. Install one of these (Debian 12, Ubuntu 24.04: python3 and "
            "python3-venv; or from python.org) and name it: make PYTHON=/path/to/python3.12 perf".format(
                dotted(version[:3]), dotted(OLDEST), dotted(NEWEST)
            )
        )


def check_platform(system: str, machine: str, libc: str) -> None:
    """Raise SetUpError unless the pinned wheels exist for this kind of machine."""
    if (system, machine, libc) != ("Linux", "x86_64", "glibc"):
        raise SetUpError(
            "this machine is {} on {} with {}; the pinned Paddle and DALI wheels exist for Linux on x86_64 with "
            "glibc. Use such a machine or container (Debian 11, Ubuntu 20.04, RHEL 8 or newer)".format(
                system, machine, libc or "another C library"
            )
        )


def check_libraries(loads: Callable[[str], bool], framework: str = "") -> None:
    """Raise SetUpError with the packages of the shared libraries that ``loads`` cannot load, a framework's own among
    them."""
    own = FRAMEWORK_LIBRARIES.get(framework, {})
    wanted = {**LIBRARIES, **own}
    missing = [name for name in wanted if not loads(name)]
    if missing:
        debian = " ".join(wanted[name][0] for name in missing)
        fedora = " ".join(wanted[name][1] for name in missing)
        raise SetUpError(
            "Paddle, DALI, numpy and the frameworks load {}, which this machine lacks. Install it: Debian, Ubuntu: "
            "apt-get install {}; Fedora, RHEL: dnf install {}".format(", ".join(missing), debian, fedora)
        )


def choose_set(gpus: Sequence[Gpu], version: Sequence[int], driver: Sequence[int] = ()) -> str:
    """The requirement set for these GPUs, this Python and this driver (empty if it is not known); SetUpError where none
    fits."""
    if not gpus:
        return "cpu"
    low, high = GPU_CAPABILITIES
    for gpu in gpus:
        if not low <= gpu.capability <= high:
            raise SetUpError(
                "this machine has an NVIDIA {} of compute capability {}; requirements/gpu-cuda11.txt runs on {} to "
                "{}. Install a Paddle build for that chip by its vendor's instructions, into an environment of its "
                "own, and put that environment's Python under frameworks.paddle.interpreter in perf.yaml; then, or to "
                "measure the CPU on purpose: make REQUIREMENTS=cpu perf".format(
                    gpu.name, dotted(gpu.capability), dotted(low), dotted(high)
                )
            )
    check_gpu_python(
        version, "gpu-cuda11", "this machine's NVIDIA {} needs requirements/gpu-cuda11.txt".format(gpus[0].name)
    )
    return _if_driver("gpu-cuda11", driver, MEASURE_CPU)


def least_driver(cuda: int) -> Tuple[int, ...]:
    """The least driver for a major version of CUDA."""
    with open(DRIVERS, encoding="utf-8") as file:
        return tuple(map(int, json.load(file)["least"][str(cuda)].split(".")))


def why_driver_too_old(chosen: str, driver: Sequence[int]) -> str:
    """Why a set for GPUs does not run with this driver; empty if it does, or if the driver is not known."""
    with open(DRIVERS, encoding="utf-8") as file:
        least = json.load(file)["least"][str(SET_CUDA[chosen])]
    if not driver or tuple(driver) >= tuple(map(int, least.split("."))):
        return ""
    return "this machine's NVIDIA driver is {}; requirements/{}.txt is for CUDA {}, which needs {} or newer".format(
        ".".join("{:02}".format(number) for number in driver), chosen, SET_CUDA[chosen], least
    )


def _if_driver(chosen: str, driver: Sequence[int], way_round: str) -> str:
    too_old = why_driver_too_old(chosen, driver)
    if too_old:
        raise SetUpError("{}. Update the driver. {}".format(too_old, way_round))
    return chosen


def choose_pytorch_set(gpus: Sequence[Gpu], driver: Sequence[int] = ()) -> str:
    """The newest set of PyTorch with code for all of these GPUs that runs with the driver; SetUpError where there is
    none."""
    way_round = TRAIN_ON_CPU.format("PyTorch", "pytorch-cpu")
    low, high = PYTORCH_CUDA12_CAPABILITIES
    older = all(low <= gpu.capability <= high for gpu in gpus)
    if all(gpu.capability >= PYTORCH_OLDEST_CAPABILITY for gpu in gpus):
        if not gpus:
            return "pytorch-cpu"
        if not (older and why_driver_too_old("pytorch-gpu", driver)):
            return _if_driver("pytorch-gpu", driver, way_round)
    if older:
        return _if_driver("pytorch-gpu-cuda12", driver, way_round)
    raise SetUpError(
        "this machine has {}; requirements/pytorch-gpu.txt runs on {} and newer, requirements/pytorch-gpu-cuda12.txt "
        "on {} to {}. Install a PyTorch build for these chips into an environment of its own and put that "
        "environment's Python under frameworks.pytorch.interpreter in perf.yaml. {}".format(
            _cards(gpus), dotted(PYTORCH_OLDEST_CAPABILITY), dotted(low), dotted(high), way_round
        )
    )  # fmt: skip


def choose_tensorflow_set(gpus: Sequence[Gpu], driver: Sequence[int] = ()) -> str:
    """The set of TensorFlow with code for all of these GPUs; SetUpError where there is none."""
    way_round = TRAIN_ON_CPU.format("TensorFlow", "tensorflow-cpu")
    old = sorted({gpu for gpu in gpus if gpu.capability < TENSORFLOW_OLDEST_CAPABILITY})
    if old:
        raise SetUpError(
            "this machine has {}; requirements/tensorflow-gpu.txt runs on {} and newer. Install a TensorFlow build for "
            "these chips into an environment of its own and put that environment's Python under "
            "frameworks.tensorflow.interpreter in perf.yaml. {}".format(
                _cards(old), dotted(TENSORFLOW_OLDEST_CAPABILITY), way_round
            )
        )
    return _if_driver("tensorflow-gpu", driver, way_round) if gpus else "tensorflow-cpu"


def _cards(gpus: Sequence[Gpu]) -> str:
    return " and ".join(
        sorted({"an NVIDIA {} of compute capability {}".format(gpu.name, dotted(gpu.capability)) for gpu in gpus})
    )


def choose_mxnet_set(gpus: Sequence[Gpu], driver: Sequence[int] = ()) -> str:
    """The set of MXNet with code for all of these GPUs; SetUpError where there is none."""
    way_round = TRAIN_ON_CPU.format("MXNet", "mxnet-cpu")
    low, high = MXNET_CAPABILITIES
    for gpu in gpus:
        if not low <= gpu.capability <= high:
            raise SetUpError(
                "this machine has an NVIDIA {} of compute capability {}; requirements/mxnet-gpu.txt runs on {} to {}, "
                "and MXNet is retired: no newer release will. {}".format(
                    gpu.name, dotted(gpu.capability), dotted(low), dotted(high), way_round
                )
            )
    return _if_driver("mxnet-gpu", driver, way_round) if gpus else "mxnet-cpu"


def pythons_up_to(newest: Sequence[int]) -> List[str]:
    """The names of the suite's Pythons that are no newer, the newest first."""
    return ["python{}.{}".format(OLDEST[0], minor) for minor in range(newest[1], OLDEST[1] - 1, -1)]


def too_new(framework: str, newest: Sequence[int], version: Sequence[int]) -> str:
    return (
        "{0}'s wheels exist for Python up to {1}; this is Python {2}, and PATH holds no other. Install python{1} (from "
        "your distribution or python.org; .venv/bin/uv python install {1} makes one too) and call again".format(
            framework, dotted(newest), dotted(version[:3])
        )
    )


def check_gpu_python(version: Sequence[int], chosen: str, why: str) -> None:
    """Raise SetUpError unless the wheels of ``chosen``, of GPU_WHEEL_SETS, exist for this interpreter version."""
    if not OLDEST <= tuple(version[:2]) <= GPU_NEWEST:
        goal, way_round = GPU_WHEEL_SETS[chosen]
        raise SetUpError(
            "{}, whose wheels exist for Python {} to {}; this is Python {}. Install such a Python and name it: "
            "make PYTHON=/path/to/python3.12 {}{}".format(
                why, dotted(OLDEST), dotted(GPU_NEWEST), dotted(version[:3]), goal, way_round
            )
        )


def find_gpus(
    load: Callable[[str], ctypes.CDLL] = ctypes.CDLL,
    driver: str = "/proc/driver/nvidia/gpus",
    way_round: str = MEASURE_CPU,
    tell: Callable[[str], object] = print,
) -> List[Gpu]:
    """The NVIDIA GPUs as NVML lists them; none without NVML's library and without a driver. A card that does not answer
    is told and left out.

    Raises SetUpError where the library, the driver or all of its cards are there and do not answer, because such a
    machine has a GPU that a CPU measurement would silently leave out.
    """
    try:
        nvml = load("libnvidia-ml.so.1")
    except OSError as error:
        if "No such file" not in str(error):
            raise SetUpError("NVML is installed and cannot be loaded: {}. {}".format(error, way_round)) from None
        if os.path.isdir(driver) and os.listdir(driver):
            raise SetUpError(
                "{} lists GPUs, but their library libnvidia-ml.so.1 cannot be found. Install it with the driver (in "
                "a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility). {}".format(driver, way_round)
            ) from None
        return []

    failed = "NVML is installed, but {}. Check 'nvidia-smi' and the driver. {}"
    try:
        _ask(nvml, "nvmlInit_v2")
        try:
            count = ctypes.c_uint()
            _ask(nvml, "nvmlDeviceGetCount_v2", ctypes.byref(count))
            gpus, bad = [], []
            for index in range(count.value):
                try:
                    gpus.append(_gpu(nvml, index))
                except _NoAnswer as error:
                    bad.append("GPU{}: {}".format(index, error))
        finally:
            nvml.nvmlShutdown()
    except _NoAnswer as error:
        raise SetUpError(failed.format(error, way_round)) from None
    if bad and not gpus:
        raise SetUpError(failed.format("no GPU answers: " + "; ".join(bad), way_round))
    for each in bad:
        tell("bootstrap: choosing by the other GPUs, as one does not answer ({})".format(each))
    return gpus


class _NoAnswer(Exception):
    """The function of NVML that failed, and its error."""


def _ask(nvml: ctypes.CDLL, name: str, *arguments: object) -> None:
    code = getattr(nvml, name)(*arguments)
    if code != 0:
        describe = nvml.nvmlErrorString
        describe.restype = ctypes.c_char_p
        text = (describe(code) or b"no description").decode(errors="replace")
        raise _NoAnswer("{} failed with error {} ({})".format(name, code, text))


def _gpu(nvml: ctypes.CDLL, index: int) -> Gpu:
    handle, name = ctypes.c_void_p(), ctypes.create_string_buffer(96)
    major, minor = ctypes.c_int(), ctypes.c_int()
    _ask(nvml, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
    _ask(nvml, "nvmlDeviceGetName", handle, name, ctypes.c_uint(len(name)))
    _ask(nvml, "nvmlDeviceGetCudaComputeCapability", handle, ctypes.byref(major), ctypes.byref(minor))
    # Since Ampere NVML's names begin with the maker's, which the sentences say themselves.
    text = name.value.decode(errors="replace")
    return Gpu(text[len("NVIDIA ") :] if text.startswith("NVIDIA ") else text, (major.value, minor.value))


def find_driver(path: str = "/proc/driver/nvidia/version") -> Tuple[int, ...]:
    """The version of the NVIDIA driver's kernel module, also inside a container; empty where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            first = file.readline()
    except OSError:
        return ()
    # "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023"
    found = re.search(r"\b\d{3,}\.\d+(\.\d+)*\b", first)
    return tuple(map(int, found.group().split("."))) if found else ()


def loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def libc_name() -> str:
    try:
        return "glibc" if os.confstr("CS_GNU_LIBC_VERSION") else ""
    except (AttributeError, OSError, ValueError):
        return ""


def dotted(numbers: Sequence[int]) -> str:
    return ".".join(str(number) for number in numbers)
