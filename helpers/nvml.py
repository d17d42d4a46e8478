"""NVIDIA's management library behind a Protocol: which GPUs there are, how they fare, who uses them.

``PyNvml`` is the adapter to ``nvidia-ml-py``; tests put a stand-in behind the same Protocol.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol, TypeVar

from helpers.errors import DeviceError

T = TypeVar("T")

_REMEDY = "Repair the driver ('nvidia-smi' must work), or set CUDA_VISIBLE_DEVICES= (empty) to run without GPUs"


@dataclass(frozen=True)
class Gpu:
    """One GPU; ``index`` in PCI bus order, as NVML and CUDA_DEVICE_ORDER=PCI_BUS_ID count."""

    index: int
    uuid: str
    name: str
    memory_bytes: int
    compute_capability: tuple[int, int]
    power_limit_watts: int = 0
    mig_enabled: bool = False

    @property
    def id(self) -> str:
        return self.uuid

    def is_model(self, family: str) -> bool:
        """Whether NVML's name names this family: ``a100`` is no ``RTX A1000``."""
        return re.search(rf"(?<![a-z0-9]){re.escape(family.lower())}(?![0-9])", self.name.lower()) is not None


@dataclass(frozen=True)
class GpuState:
    """One look at one GPU; ``throttle_reasons`` are NVML's clocks-event bits, ``uncorrected_ecc`` volatile errors."""

    sm_clock_mhz: int
    temperature_c: int
    power_watts: float
    throttle_reasons: int
    uncorrected_ecc: int
    memory_clock_mhz: int = 0


@dataclass(frozen=True)
class GpuSettings:
    """What holds a GPU back by somebody's will or by damage; None: this card or driver does not say.

    ``pages_pending``: memory that a reset will take out of use, after errors that were not corrected.
    """

    power_limit_watts: int | None = None
    default_power_limit_watts: int | None = None
    applications_clock_mhz: int | None = None
    default_applications_clock_mhz: int | None = None
    slowdown_c: int | None = None
    pages_pending: bool | None = None


class Nvml(Protocol):
    """What the suite asks of NVML. Every method raises DeviceError when the library fails."""

    def driver(self) -> str: ...

    def cuda_driver(self) -> str:
        """The newest CUDA the driver serves, ``12.4``."""
        ...

    def gpus(self) -> tuple[Gpu, ...]: ...

    def state(self, gpu: Gpu) -> GpuState: ...

    def settings(self, gpu: Gpu) -> GpuSettings: ...

    def compute_processes(self, gpu: Gpu) -> tuple[int, ...]:
        """Process ids with a compute context on the GPU, by MPS too (in a container: possibly the host's numbers)."""
        ...

    def drawing_processes(self, gpu: Gpu) -> tuple[int, ...]:
        """Process ids with a graphics context that used the GPU since the last call; an idle display server did not.

        All of them where NVML does not tell who used it.
        """
        ...


def open_nvml() -> PyNvml | str:
    """NVML, or the reason why this machine has none; DeviceError when the library is there and fails."""
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


class PyNvml:
    """The adapter to nvidia-ml-py; the library stays open as long as the process."""

    def __init__(self, library: ModuleType | Any) -> None:
        self._library = library
        self._drawing_seen: dict[int, int] = {}

    @property
    def library(self) -> Any:
        """The module ``pynvml``, for what else is asked of it (helpers/nvml_details.py)."""
        return self._library

    def driver(self) -> str:
        return _word(self._ask(self._library.nvmlSystemGetDriverVersion))

    def cuda_driver(self) -> str:
        version = int(self._ask(self._library.nvmlSystemGetCudaDriverVersion_v2))
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
            memory_clock_mhz=self._told(nv.nvmlDeviceGetClockInfo, handle, nv.NVML_CLOCK_MEM) or 0,
        )

    def settings(self, gpu: Gpu) -> GpuSettings:
        nv, handle = self._library, self._handle(gpu.index)

        def watts(function: Callable[..., int]) -> int | None:
            milliwatts = self._told(function, handle)
            return None if milliwatts is None else round(milliwatts / 1000)

        return GpuSettings(
            power_limit_watts=watts(nv.nvmlDeviceGetEnforcedPowerLimit),
            default_power_limit_watts=watts(nv.nvmlDeviceGetPowerManagementDefaultLimit),
            applications_clock_mhz=self._told(nv.nvmlDeviceGetApplicationsClock, handle, nv.NVML_CLOCK_SM),
            default_applications_clock_mhz=self._told(
                nv.nvmlDeviceGetDefaultApplicationsClock, handle, nv.NVML_CLOCK_SM
            ),
            slowdown_c=self._told(nv.nvmlDeviceGetTemperatureThreshold, handle, nv.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
            pages_pending=self._pages_pending(handle),
        )

    def compute_processes(self, gpu: Gpu) -> tuple[int, ...]:
        nv, handle = self._library, self._handle(gpu.index)
        found = self._ask(nv.nvmlDeviceGetComputeRunningProcesses, handle)
        shared = self._told(nv.nvmlDeviceGetMPSComputeRunningProcesses, handle) or []
        return tuple(sorted({int(process.pid) for process in (*found, *shared)}))

    def drawing_processes(self, gpu: Gpu) -> tuple[int, ...]:
        nv, handle = self._library, self._handle(gpu.index)
        drawing = {int(each.pid) for each in self._told(nv.nvmlDeviceGetGraphicsRunningProcesses, handle) or []}
        if not drawing:
            return ()
        since = self._drawing_seen.get(gpu.index, 0)
        try:
            samples = nv.nvmlDeviceGetProcessUtilization(handle, since)
        except nv.NVMLError as error:
            # Nobody has used the card, or the driver does not tell who has.
            quiet = getattr(error, "value", None) == nv.NVML_ERROR_NOT_FOUND
            return () if quiet else tuple(sorted(drawing))
        self._drawing_seen[gpu.index] = max((int(each.timeStamp) for each in samples), default=since)
        used = {int(each.pid) for each in samples if int(each.smUtil) > 0}
        # The first answer holds what was before anybody asked.
        return tuple(sorted(drawing & used)) if since else ()

    def _pages_pending(self, handle: Any) -> bool | None:
        """Ampere and later remap rows, the cards before retire pages."""
        nv = self._library
        rows = self._told(nv.nvmlDeviceGetRemappedRows, handle)
        if rows is not None:
            _, _, pending, failed = rows
            return bool(pending or failed)
        pages = self._told(nv.nvmlDeviceGetRetiredPagesPendingStatus, handle)
        return None if pages is None else bool(pages)

    def _gpu(self, index: int) -> Gpu:
        nv, handle = self._library, self._handle(index)
        major, minor = self._ask(nv.nvmlDeviceGetCudaComputeCapability, handle)
        mig_mode, _ = self._optional((0, 0), nv.nvmlDeviceGetMigMode, handle)
        return Gpu(
            index=index,
            uuid=_word(self._ask(nv.nvmlDeviceGetUUID, handle)),
            name=_word(self._ask(nv.nvmlDeviceGetName, handle)),
            memory_bytes=int(self._ask(nv.nvmlDeviceGetMemoryInfo, handle).total),
            compute_capability=(int(major), int(minor)),
            power_limit_watts=round(self._optional(0, nv.nvmlDeviceGetEnforcedPowerLimit, handle) / 1000),
            mig_enabled=bool(mig_mode),
        )

    def _handle(self, index: int) -> Any:
        return self._ask(self._library.nvmlDeviceGetHandleByIndex, index)

    def _ask(self, function: Callable[..., Any], *arguments: object) -> Any:
        try:
            return function(*arguments)
        except self._library.NVMLError as error:
            name = getattr(function, "__name__", "a query")
            raise DeviceError(f"NVML {name}", got=str(error), expected="an answer", remedy=_REMEDY) from error

    def _told(self, function: Callable[..., T], *arguments: object) -> T | None:
        """The answer, None where this card, driver or user gets none; a card that is lost is a DeviceError."""
        nv = self._library
        try:
            return function(*arguments)
        except nv.NVMLError as error:
            silent = (
                nv.NVML_ERROR_NOT_SUPPORTED, nv.NVML_ERROR_NO_PERMISSION, nv.NVML_ERROR_FUNCTION_NOT_FOUND,
                nv.NVML_ERROR_INVALID_ARGUMENT,
            )  # fmt: skip
            if getattr(error, "value", None) in silent:
                return None
            raise DeviceError(
                f"NVML {getattr(function, '__name__', 'a query')}", got=str(error), expected="an answer", remedy=_REMEDY
            ) from error

    def _optional(self, absent: T, function: Callable[..., Any], *arguments: object) -> T:
        """The answer, or ``absent`` where this model of card has no such thing (no ECC memory, no MIG)."""
        try:
            answer: T = function(*arguments)
        except self._library.NVMLError as error:
            if getattr(error, "value", None) == self._library.NVML_ERROR_NOT_SUPPORTED:
                return absent
            raise DeviceError(
                f"NVML {getattr(function, '__name__', 'a query')}", got=str(error), expected="an answer", remedy=_REMEDY
            ) from error
        return answer


def _word(value: object) -> str:
    # nvidia-ml-py before 11.515 answers bytes.
    return value.decode() if isinstance(value, bytes) else str(value)
