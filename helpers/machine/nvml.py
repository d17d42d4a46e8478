"""NVIDIA's management library (NVML) through ``nvidia-ml-py``: the GPUs, their states, and the processes on them.

Some queries have had several entry points over time. The newest one that this driver has is called here; nvidia-ml-py
itself tries only the newest, and raises an exception that is not an NVMLError if the driver lacks it.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar

from helpers.common.unknown import Unknown
from helpers.trainers.contract.errors import DeviceError

T = TypeVar("T")

_REMEDY = "Repair the driver ('nvidia-smi' must work), or set CUDA_VISIBLE_DEVICES= (empty) to run without GPUs"
# The suffixes of the entry points of drivers from 510 on, and from 450 or 455 on. Earlier entry points had no suffix
# and used another structure.
_VERSIONS = ("_v3", "_v2")
AFFINITY_WORDS = 64  # of 64 CPUs each
PROHIBITED, SPLIT = "its compute mode is PROHIBITED", "split by MIG"
COMPUTE, MPS_COMPUTE, GRAPHICS = "Compute", "MPSCompute", "Graphics"
_NOBODY: tuple[int, ...] = ()
_NOT_READ = Unknown("NVML does not say")


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
    """Settings and damage that slow a GPU down."""

    power_limit_watts: int | Unknown = _NOT_READ
    default_power_limit_watts: int | Unknown = _NOT_READ
    applications_clock_mhz: int | Unknown = _NOT_READ
    default_applications_clock_mhz: int | Unknown = _NOT_READ
    # The temperature at which the card slows itself down.
    slowdown_c: int | Unknown = _NOT_READ
    # Whether the next reset will take memory out of use because of uncorrected errors.
    pages_pending: bool | Unknown = _NOT_READ
    # The PCI Express link as it is now: an idle card may lower the generation.
    pcie_generation: int | Unknown = _NOT_READ
    pcie_width: int | Unknown = _NOT_READ
    # Whether each NVLink of the card is active.
    nvlinks: tuple[bool, ...] | Unknown = _NOT_READ


@dataclass(frozen=True)
class GpuDetails(GpuSettings):
    """All facts of one GPU, for the tables and the doctor."""

    state: GpuState | Unknown = _NOT_READ
    memory_used_bytes: int | Unknown = _NOT_READ
    persistence: bool | Unknown = _NOT_READ
    ecc: bool | Unknown = _NOT_READ
    max_sm_clock_mhz: int | Unknown = _NOT_READ
    max_pcie_width: int | Unknown = _NOT_READ
    max_pcie_generation: int | Unknown = _NOT_READ
    cpus: frozenset[int] | Unknown = _NOT_READ
    processes: tuple[int, ...] | Unknown = _NOT_READ


def open_nvml() -> Nvml | str:
    """NVML, or the reason why this machine has none. Raises DeviceError if the library is there but fails."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if getattr(error, "value", None) == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            return "no libnvidia-ml.so.1"
        raise DeviceError("NVML", got=str(error), expected="a working NVIDIA driver", remedy=_REMEDY) from error
    return Nvml(pynvml)


def open_again(open_library: Callable[[], Nvml | str]) -> Nvml:
    """NVML for cards that it listed before. Raises DeviceError if it is gone since."""
    found = open_library()
    if isinstance(found, str):
        raise DeviceError("NVML", got=found, expected="the library that listed the cards", remedy="Check the driver")
    return found


class Nvml:
    """The adapter to nvidia-ml-py; the library stays open until the process ends.

    Every method raises DeviceError if the library fails, but ``settings`` and ``details``: an answer that they do not
    get is an Unknown with NVML's message.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self._drawing_seen: dict[int, int] = {}

    def driver(self) -> str:
        return str(self._ask(self._library.nvmlSystemGetDriverVersion))

    def cuda_driver(self) -> str:
        """The newest CUDA that the driver serves, such as ``12.4``."""
        version = int(self._ask(_cuda_version, self._library))
        return f"{version // 1000}.{version % 1000 // 10}"

    def gpus(self) -> tuple[Gpu, ...]:
        """All cards, also those with a fault."""
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
            memory_clock_mhz=self._optional(0, nv.nvmlDeviceGetClockInfo, handle, nv.NVML_CLOCK_MEM),
        )

    def settings(self, gpu: Gpu) -> GpuSettings:
        nv, ask = self._library, partial(self._read, self._try(self._handle, gpu.index))
        return GpuSettings(
            power_limit_watts=ask("nvmlDeviceGetEnforcedPowerLimit", make=_watts),
            default_power_limit_watts=ask("nvmlDeviceGetPowerManagementDefaultLimit", make=_watts),
            applications_clock_mhz=ask("nvmlDeviceGetApplicationsClock", nv.NVML_CLOCK_SM, make=int),
            default_applications_clock_mhz=ask("nvmlDeviceGetDefaultApplicationsClock", nv.NVML_CLOCK_SM, make=int),
            slowdown_c=ask("nvmlDeviceGetTemperatureThreshold", nv.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN, make=int),
            pages_pending=_pages_pending(ask),
            pcie_generation=ask("nvmlDeviceGetCurrPcieLinkGeneration", make=int),
            pcie_width=ask("nvmlDeviceGetCurrPcieLinkWidth", make=int),
            nvlinks=self._link_states(gpu),
        )

    def details(self, gpu: Gpu) -> GpuDetails:
        nv, settings = self._library, self.settings(gpu)
        ask = partial(self._read, self._try(self._handle, gpu.index))
        return GpuDetails(
            **{item.name: getattr(settings, item.name) for item in fields(settings)},
            state=self._try(self.state, gpu),
            memory_used_bytes=ask("nvmlDeviceGetMemoryInfo", make=lambda memory: int(memory.used)),
            persistence=ask("nvmlDeviceGetPersistenceMode", make=bool),
            ecc=ask("nvmlDeviceGetEccMode", make=lambda modes: bool(modes[0])),
            max_sm_clock_mhz=ask("nvmlDeviceGetMaxClockInfo", nv.NVML_CLOCK_SM, make=int),
            max_pcie_width=ask("nvmlDeviceGetMaxPcieLinkWidth", make=int),
            max_pcie_generation=ask("nvmlDeviceGetMaxPcieLinkGeneration", make=int),
            cpus=ask("nvmlDeviceGetCpuAffinity", AFFINITY_WORDS, make=cpus_of),
            processes=self._try(self.compute_processes, gpu),
        )

    def compute_processes(self, gpu: Gpu) -> tuple[int, ...]:
        """The ids of processes with a compute context on the GPU, also through MPS. In a container they may be ids of
        the host."""
        nv, handle = self._library, self._handle(gpu.index)
        found = self._ask(processes_of(nv, COMPUTE), handle)
        shared = self._optional(_NOBODY, processes_of(nv, MPS_COMPUTE), handle)
        return tuple(sorted({*found, *shared}))

    def drawing_processes(self, gpu: Gpu) -> tuple[int, ...]:
        """The ids of processes with a graphics context that used the GPU since the last call (an idle display server
        does not). If NVML does not report use, all processes with such a context."""
        nv, handle = self._library, self._handle(gpu.index)
        drawing = set(self._optional(_NOBODY, processes_of(nv, GRAPHICS), handle))
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
        """The logical CPUs near the GPU, also those that this process may not use; empty if NVML does not name them."""
        handle = self._handle(gpu.index)
        return cpus_of(self._optional((), self._library.nvmlDeviceGetCpuAffinity, handle, AFFINITY_WORDS))

    def _link_states(self, gpu: Gpu) -> tuple[bool, ...] | Unknown:
        nv = self._library
        # NVML says one of these for a number behind the last link.
        ends = (nv.NVML_ERROR_NOT_SUPPORTED, nv.NVML_ERROR_INVALID_ARGUMENT)

        def read() -> tuple[bool, ...]:
            ask = partial(self._ask, nv.nvmlDeviceGetNvLinkState, self._handle(gpu.index), none_for=ends)
            states = map(ask, range(nv.NVML_NVLINK_MAX_LINKS))
            return tuple(bool(active) for active in takewhile(lambda each: each is not None, states))

        return self._try(read)

    def _gpu(self, index: int) -> Gpu:
        """The card; if one of its facts cannot be had, it has a fault and the facts before that one."""
        nv = self._library
        found = Gpu(index, "", "", 0, (0, 0))
        try:
            handle = self._handle(index)
            found = replace(found, uuid=str(self._ask(nv.nvmlDeviceGetUUID, handle)))
            found = replace(found, name=str(self._ask(nv.nvmlDeviceGetName, handle)))
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

    def _read(self, handle: Any, name: str, *arguments: object, make: Callable[[Any], Any]) -> Any:
        """What ``make`` makes of the answer of the library's function, or an Unknown, as the handle may be."""
        if isinstance(handle, Unknown):
            return handle
        return self._try(lambda: make(self._ask(getattr(self._library, name), handle, *arguments)))

    @staticmethod
    def _try(read: Callable[..., T], *arguments: object) -> T | Unknown:
        """The answer, or an Unknown with NVML's words."""
        try:
            return read(*arguments)
        except DeviceError as error:
            return Unknown(f"{error.about}: {error.got}")

    def _optional(self, absent: T, function: Callable[..., T], *arguments: object) -> T:
        """The answer, or ``absent`` if this card or its driver has none, or tells it others (no ECC memory, no MIG)."""
        nv = self._library
        missing = (nv.NVML_ERROR_NOT_SUPPORTED, nv.NVML_ERROR_FUNCTION_NOT_FOUND, nv.NVML_ERROR_NO_PERMISSION)
        answer: T | None = self._ask(function, *arguments, none_for=missing)
        return absent if answer is None else answer


def _pages_pending(ask: Callable[..., Any]) -> bool | Unknown:
    """Whether memory is to be taken out of use: Ampere and later cards remap rows, earlier cards retire pages."""
    rows: bool | Unknown = ask("nvmlDeviceGetRemappedRows", make=lambda found: bool(found[2] or found[3]))
    return ask("nvmlDeviceGetRetiredPagesPendingStatus", make=bool) if isinstance(rows, Unknown) else rows


def _watts(milliwatts: int) -> int:
    return round(milliwatts / 1000)


def _cuda_version(library: Any) -> int:
    functions = (library.nvmlSystemGetCudaDriverVersion_v2, library.nvmlSystemGetCudaDriverVersion)
    return int(first_there(library, functions))


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
    candidates = [getattr(library, name + version) for version in _VERSIONS]

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
