"""NVIDIA's management library (NVML) behind a Protocol: the GPUs, their states, and the processes on them.

``PyNvml`` is the adapter to ``nvidia-ml-py``; tests use a stand-in with the same Protocol. Some queries have had
several entry points over time. The newest one that this driver has is called here; nvidia-ml-py itself tries only the
newest, and raises an exception that is not an NVMLError if the driver lacks it.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Protocol, TypeVar

from helpers.trainers.contract.errors import DeviceError

T = TypeVar("T")

_REMEDY = "Repair the driver ('nvidia-smi' must work), or set CUDA_VISIBLE_DEVICES= (empty) to run without GPUs"
# The suffixes of the entry points of drivers from 510 on, and from 450 or 455 on. Earlier entry points had no suffix
# and used another structure.
_VERSIONS = ("_v3", "_v2")
AFFINITY_WORDS = 64  # of 64 CPUs each
PROHIBITED, SPLIT = "its compute mode is PROHIBITED", "split by MIG"
COMPUTE, MPS_COMPUTE, GRAPHICS = "Compute", "MPSCompute", "Graphics"


@dataclass(frozen=True)
class Gpu:
    """One GPU."""

    # The number in PCI bus order, as used by NVML and by CUDA_DEVICE_ORDER=PCI_BUS_ID.
    index: int
    uuid: str
    name: str
    memory_bytes: int
    compute_capability: tuple[int, int]
    power_limit_watts: int = 0
    # Why no job runs on the card: NVML's error, its compute mode, or MIG, as no figure was measured on a slice. Facts
    # that NVML did not tell are empty.
    fault: str = ""

    @property
    def id(self) -> str:
        return self.uuid

    @property
    def remedy(self) -> str:
        """What to do about its ``fault``."""
        if self.fault == PROHIBITED:
            return f"sudo nvidia-smi -i {self.index} -c 0"
        if self.fault == SPLIT:
            return f"sudo nvidia-smi -i {self.index} -mig 0"
        return (
            f"Read its Xid in dmesg; sudo nvidia-smi -i {self.index} --gpu-reset, else reboot; replace the card if it "
            "comes back"
        )

    def is_model(self, family: str) -> bool:
        """Whether the GPU is of this family by NVML's name: an ``RTX A1000`` is not an ``a100``."""
        return re.search(rf"(?<![a-z0-9]){re.escape(family.lower())}(?![0-9])", self.name.lower()) is not None


@dataclass(frozen=True)
class GpuState:
    """The state of one GPU at one look."""

    sm_clock_mhz: int
    temperature_c: int
    power_watts: float
    # The bits of NVML's clocks-event reasons.
    throttle_reasons: int
    # Uncorrected ECC errors since the driver was loaded.
    uncorrected_ecc: int
    memory_clock_mhz: int = 0


@dataclass(frozen=True)
class GpuSettings:
    """Settings and damage that slow a GPU down. A field is None if this card or driver does not report it."""

    power_limit_watts: int | None = None
    default_power_limit_watts: int | None = None
    applications_clock_mhz: int | None = None
    default_applications_clock_mhz: int | None = None
    # The temperature at which the card slows itself down.
    slowdown_c: int | None = None
    # Whether the next reset will take memory out of use because of uncorrected errors.
    pages_pending: bool | None = None
    # The PCI Express link as it is now: an idle card may lower the generation.
    pcie_generation: int | None = None
    pcie_width: int | None = None
    # How many NVLinks the card has, and how many of them are active.
    nvlinks: int | None = None
    nvlinks_active: int | None = None


class Nvml(Protocol):
    """The part of NVML that the suite uses. Every method raises DeviceError if the library fails."""

    def driver(self) -> str: ...

    def cuda_driver(self) -> str:
        """The newest CUDA that the driver serves, such as ``12.4``."""
        ...

    def gpus(self) -> tuple[Gpu, ...]:
        """All cards, also those with a fault."""
        ...

    def state(self, gpu: Gpu) -> GpuState: ...

    def settings(self, gpu: Gpu) -> GpuSettings: ...

    def compute_processes(self, gpu: Gpu) -> tuple[int, ...]:
        """The ids of processes with a compute context on the GPU, also through MPS. In a container they may be ids of
        the host."""
        ...

    def drawing_processes(self, gpu: Gpu) -> tuple[int, ...]:
        """The ids of processes with a graphics context that used the GPU since the last call (an idle display server
        does not). If NVML does not report use, all processes with such a context.
        """
        ...

    def near_cpus(self, gpu: Gpu) -> frozenset[int]:
        """The logical CPUs near the GPU, also those that this process may not use; empty if NVML does not name them."""
        ...


def open_nvml() -> PyNvml | str:
    """NVML, or the reason why this machine has none. Raises DeviceError if the library is there but fails."""
    try:
        import pynvml
    except ModuleNotFoundError:
        return "nvidia-ml-py is not installed"
    return open_pynvml(pynvml)


def open_pynvml(library: ModuleType | Any) -> PyNvml | str:
    """``open_nvml`` on a given module."""
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        if getattr(error, "value", None) == library.NVML_ERROR_LIBRARY_NOT_FOUND:
            return "no libnvidia-ml.so.1"
        raise DeviceError("NVML", got=str(error), expected="a working NVIDIA driver", remedy=_REMEDY) from error
    return PyNvml(library)


def open_again(open_library: Callable[[], Nvml | str]) -> Nvml:
    """NVML for cards that it listed before. Raises DeviceError if it is gone since."""
    found = open_library()
    if isinstance(found, str):
        raise DeviceError("NVML", got=found, expected="the library that listed the cards", remedy="Check the driver")
    return found


class PyNvml:
    """The adapter to nvidia-ml-py; the library stays open until the process ends."""

    def __init__(self, library: ModuleType | Any) -> None:
        self._library = library
        self._drawing_seen: dict[int, int] = {}

    @property
    def library(self) -> Any:
        """The module ``pynvml``, for the queries of helpers/machine/nvml_details.py."""
        return self._library

    def driver(self) -> str:
        return _word(self._ask(self._library.nvmlSystemGetDriverVersion))

    def cuda_driver(self) -> str:
        version = int(self._ask(_cuda_version, self._library))
        return f"{version // 1000}.{version % 1000 // 10}"

    def gpus(self) -> tuple[Gpu, ...]:
        return tuple(self._gpu(index) for index in range(self._ask(self._library.nvmlDeviceGetCount)))

    def state(self, gpu: Gpu) -> GpuState:
        nv, handle = self._library, self._handle(gpu.index)
        ecc_arguments = (nv.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nv.NVML_VOLATILE_ECC)
        return GpuState(
            sm_clock_mhz=self._ask(nv.nvmlDeviceGetClockInfo, handle, nv.NVML_CLOCK_SM),
            temperature_c=self._ask(nv.nvmlDeviceGetTemperature, handle, nv.NVML_TEMPERATURE_GPU),
            power_watts=self._optional(0, nv.nvmlDeviceGetPowerUsage, handle) / 1000,
            throttle_reasons=self._ask(nv.nvmlDeviceGetCurrentClocksThrottleReasons, handle),
            uncorrected_ecc=self._optional(0, nv.nvmlDeviceGetTotalEccErrors, handle, *ecc_arguments),
            memory_clock_mhz=self._answer_or_none(nv.nvmlDeviceGetClockInfo, handle, nv.NVML_CLOCK_MEM) or 0,
        )

    def settings(self, gpu: Gpu) -> GpuSettings:
        nv, handle = self._library, self._handle(gpu.index)

        def watts(function: Callable[..., int]) -> int | None:
            milliwatts = self._answer_or_none(function, handle)
            return None if milliwatts is None else round(milliwatts / 1000)

        links = self._link_states(handle)
        return GpuSettings(
            power_limit_watts=watts(nv.nvmlDeviceGetEnforcedPowerLimit),
            default_power_limit_watts=watts(nv.nvmlDeviceGetPowerManagementDefaultLimit),
            applications_clock_mhz=self._answer_or_none(nv.nvmlDeviceGetApplicationsClock, handle, nv.NVML_CLOCK_SM),
            default_applications_clock_mhz=self._answer_or_none(
                nv.nvmlDeviceGetDefaultApplicationsClock, handle, nv.NVML_CLOCK_SM
            ),
            slowdown_c=self._answer_or_none(
                nv.nvmlDeviceGetTemperatureThreshold, handle, nv.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
            ),
            pages_pending=self._pages_pending(handle),
            pcie_generation=self._answer_or_none(nv.nvmlDeviceGetCurrPcieLinkGeneration, handle),
            pcie_width=self._answer_or_none(nv.nvmlDeviceGetCurrPcieLinkWidth, handle),
            nvlinks=None if links is None else len(links),
            nvlinks_active=None if links is None else sum(links),
        )

    def compute_processes(self, gpu: Gpu) -> tuple[int, ...]:
        nv, handle = self._library, self._handle(gpu.index)
        found = self._ask(processes_of(nv, COMPUTE), handle)
        shared = self._answer_or_none(processes_of(nv, MPS_COMPUTE), handle) or ()
        return tuple(sorted({*found, *shared}))

    def drawing_processes(self, gpu: Gpu) -> tuple[int, ...]:
        nv, handle = self._library, self._handle(gpu.index)
        drawing = set(self._answer_or_none(processes_of(nv, GRAPHICS), handle) or ())
        if not drawing:
            return ()
        since = self._drawing_seen.get(gpu.index, 0)
        try:
            samples = nv.nvmlDeviceGetProcessUtilization(handle, since)
        except nv.NVMLError as error:
            # Either nobody has used the card, or the driver does not say who has.
            quiet = getattr(error, "value", None) == nv.NVML_ERROR_NOT_FOUND
            return () if quiet else tuple(sorted(drawing))
        self._drawing_seen[gpu.index] = max((int(each.timeStamp) for each in samples), default=since)
        used = {int(each.pid) for each in samples if int(each.smUtil) > 0}
        # The first answer includes use before the first call, so it is ignored.
        return tuple(sorted(drawing & used)) if since else ()

    def near_cpus(self, gpu: Gpu) -> frozenset[int]:
        handle = self._handle(gpu.index)
        return cpus_of(self._answer_or_none(self._library.nvmlDeviceGetCpuAffinity, handle, AFFINITY_WORDS) or ())

    def _link_states(self, handle: Any) -> list[bool] | None:
        """Whether each NVLink is active; empty for a card without NVLinks, None if NVML does not say."""
        nv = self._library
        # NVML says one of these for a number behind the last link.
        ends, refusals = (
            (nv.NVML_ERROR_NOT_SUPPORTED, nv.NVML_ERROR_INVALID_ARGUMENT),
            (nv.NVML_ERROR_NO_PERMISSION, nv.NVML_ERROR_FUNCTION_NOT_FOUND),
        )
        found: list[bool] = []
        for number in range(nv.NVML_NVLINK_MAX_LINKS):
            try:
                active = self._ask(nv.nvmlDeviceGetNvLinkState, handle, number, none_for=ends)
            except DeviceError as error:
                if getattr(error.__cause__, "value", None) in refusals:
                    return None
                raise
            if active is None:
                break
            found.append(bool(active))
        return found

    def _pages_pending(self, handle: Any) -> bool | None:
        """Whether memory is to be taken out of use: Ampere and later cards remap rows, earlier cards retire pages."""
        nv = self._library
        rows = self._answer_or_none(nv.nvmlDeviceGetRemappedRows, handle)
        if rows is not None:
            _, _, pending, failed = rows
            return bool(pending or failed)
        pages = self._answer_or_none(nv.nvmlDeviceGetRetiredPagesPendingStatus, handle)
        return None if pages is None else bool(pages)

    def _gpu(self, index: int) -> Gpu:
        """The card; if one of its facts cannot be had, it has a fault and the facts before that one."""
        nv = self._library
        found = Gpu(index, "", "", 0, (0, 0))
        try:
            handle = self._handle(index)
            found = replace(found, uuid=_word(self._ask(nv.nvmlDeviceGetUUID, handle)))
            found = replace(found, name=_word(self._ask(nv.nvmlDeviceGetName, handle)))
            major, minor = self._ask(nv.nvmlDeviceGetCudaComputeCapability, handle)
            mig_mode, _ = self._optional((0, 0), nv.nvmlDeviceGetMigMode, handle)
            mode = self._optional(0, nv.nvmlDeviceGetComputeMode, handle)
            return replace(
                found,
                memory_bytes=int(self._ask(nv.nvmlDeviceGetMemoryInfo, handle).total),
                compute_capability=(int(major), int(minor)),
                power_limit_watts=round(self._optional(0, nv.nvmlDeviceGetEnforcedPowerLimit, handle) / 1000),
                fault=SPLIT if mig_mode else PROHIBITED if mode == nv.NVML_COMPUTEMODE_PROHIBITED else "",
            )
        except DeviceError as error:
            return replace(found, fault=f"{error.about}: {error.got}")

    def _handle(self, index: int) -> Any:
        return self._ask(self._library.nvmlDeviceGetHandleByIndex, index)

    def _ask(self, function: Callable[..., Any], *arguments: object, none_for: Collection[int] = ()) -> Any:
        """The answer, or None if NVML's error is one of ``none_for``; raises DeviceError for any other error."""
        try:
            return function(*arguments)
        except self._library.NVMLError as error:
            if getattr(error, "value", None) in none_for:
                return None
            name = getattr(function, "__name__", "a query")
            raise DeviceError(f"NVML {name}", got=str(error), expected="an answer", remedy=_REMEDY) from error

    def _answer_or_none(self, function: Callable[..., T], *arguments: object) -> T | None:
        """The answer, or None if this card, driver or user gets none; raises DeviceError for a lost card."""
        nv = self._library
        refusals = (
            nv.NVML_ERROR_NOT_SUPPORTED, nv.NVML_ERROR_NO_PERMISSION, nv.NVML_ERROR_FUNCTION_NOT_FOUND,
            nv.NVML_ERROR_INVALID_ARGUMENT,
        )  # fmt: skip
        answer: T | None = self._ask(function, *arguments, none_for=refusals)
        return answer

    def _optional(self, absent: T, function: Callable[..., T], *arguments: object) -> T:
        """The answer, or ``absent`` if this card or its driver does not support the query (no ECC memory, no MIG)."""
        missing = (self._library.NVML_ERROR_NOT_SUPPORTED, self._library.NVML_ERROR_FUNCTION_NOT_FOUND)
        answer: T | None = self._ask(function, *arguments, none_for=missing)
        return absent if answer is None else answer


def _cuda_version(library: Any) -> int:
    functions = (library.nvmlSystemGetCudaDriverVersion_v2, library.nvmlSystemGetCudaDriverVersion)
    return int(first_there(library, functions))


def _word(value: object) -> str:
    # nvidia-ml-py before 11.515 answers bytes.
    return value.decode() if isinstance(value, bytes) else str(value)


def cpus_of(words: Iterable[int]) -> frozenset[int]:
    """The CPUs in NVML's mask, whose words have 64 bits each."""
    return frozenset(64 * place + bit for place, word in enumerate(words) for bit in range(64) if int(word) >> bit & 1)


class _FirstProcessInfo(ctypes.Structure):
    """nvml.h, nvmlProcessInfo_v1_t."""

    _fields_ = (("pid", ctypes.c_uint), ("used_gpu_memory", ctypes.c_ulonglong))


def processes_of(library: Any, kind: str) -> Callable[[Any], tuple[int, ...]]:
    """A function that takes a card's handle and returns the sorted ids of the processes with a context of ``kind`` on
    the card.

    It raises the library's NVMLError; this is "function not found" if the driver has no such list.
    """
    name = f"nvmlDeviceGet{kind}RunningProcesses"
    # An old nvidia-ml-py lacks the newer functions.
    newer = [getattr(library, name + version, None) for version in _VERSIONS]
    candidates: list[Callable[[Any], Iterable[Any]]] = [each for each in newer if each is not None]

    def ask(handle: Any) -> tuple[int, ...]:
        found = first_there(library, (*candidates, lambda card: _first_list(library, name, card)), handle)
        return tuple(sorted({int(process.pid) for process in found}))

    ask.__name__ = name
    return ask


def first_there(library: Any, functions: Iterable[Callable[..., Any]], *arguments: object) -> Any:
    """The answer of the first of ``functions`` (newest first) that this driver has. Raises NVMLError if it has none."""
    missing: Exception | None = None
    for function in functions:
        try:
            return function(*arguments)
        except library.NVMLError as error:
            if getattr(error, "value", None) != library.NVML_ERROR_FUNCTION_NOT_FOUND:
                raise
            missing = error
    raise missing or library.NVMLError(library.NVML_ERROR_FUNCTION_NOT_FOUND)


def _first_list(library: Any, name: str, handle: Any) -> list[_FirstProcessInfo]:
    """The processes, by the entry point without a suffix, for which nvidia-ml-py has no function."""
    function = getattr(library.nvmlLib, name, None)
    if function is None:
        raise library.NVMLError(library.NVML_ERROR_FUNCTION_NOT_FOUND)
    count = ctypes.c_uint(0)
    code = function(handle, ctypes.byref(count), None)
    while code == library.NVML_ERROR_INSUFFICIENT_SIZE:
        # Leaves room for processes that start between the two calls.
        count.value = count.value * 2 + 5
        found = (_FirstProcessInfo * count.value)()
        code = function(handle, ctypes.byref(count), found)
        if code == library.NVML_SUCCESS:
            return list(found[: count.value])
    if code != library.NVML_SUCCESS:
        raise library.NVMLError(code)
    return []
