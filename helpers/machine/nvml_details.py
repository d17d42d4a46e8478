"""Further queries to NVML, for the environment report and ``perfgate doctor``.

Any answer may be missing (an old driver, a card without ECC, a container without the permission). It is then an Unknown
with NVML's message, and the other queries go on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from helpers.machine.nvml import AFFINITY_WORDS, COMPUTE, Gpu, Nvml, PyNvml, cpus_of, open_nvml, processes_of
from helpers.machine.unknown import Unknown
from helpers.trainers.contract.errors import DeviceError

T = TypeVar("T")

# The device at the other end of an NVLink (nvml.h, nvmlIntNvLinkDeviceType_t).
TO_GPU, TO_SWITCH, TO_OTHER, TO_UNKNOWN = "gpu", "switch", "other", "unknown"
_REMOTE_TYPES = {0: TO_GPU, 2: TO_SWITCH}


@dataclass(frozen=True)
class Link:
    """One active NVLink."""

    # The device at its other end: TO_GPU, TO_SWITCH, TO_OTHER, or TO_UNKNOWN if this driver does not report it.
    remote: str
    # The PCI address of its other end.
    bus_id: str = ""


@dataclass(frozen=True)
class GpuDetails:
    """The facts of one GPU for the report."""

    # The PCI address as sysfs writes it: ``0000:3a:00.0``.
    bus_id: str | Unknown
    memory_used_bytes: int | Unknown
    persistence: bool | Unknown
    # Whether ECC is on now.
    ecc: bool | Unknown
    # Whether ECC will be on after the next reset.
    pending_ecc: bool | Unknown
    uncorrected_ecc: int | Unknown
    # Whether the next reset will take memory out of use because of uncorrected errors.
    pages_pending: bool | Unknown
    power_limit_watts: int | Unknown
    default_power_limit_watts: int | Unknown
    sm_clock_mhz: int | Unknown
    max_sm_clock_mhz: int | Unknown
    applications_clock_mhz: int | Unknown
    default_applications_clock_mhz: int | Unknown
    throttle_reasons: int | Unknown
    temperature_c: int | Unknown
    # Whether its compute mode admits one process at a time.
    exclusive: bool | Unknown
    pcie_width: int | Unknown
    max_pcie_width: int | Unknown
    max_pcie_generation: int | Unknown
    cpus: frozenset[int] | Unknown
    processes: tuple[int, ...] | Unknown
    # Only active links.
    links: tuple[Link, ...] | Unknown


class DetailedNvml(Nvml, Protocol):
    """NVML for the report. ``gpus`` raises DeviceError; the two methods below never do."""

    def details(self, gpu: Gpu) -> GpuDetails: ...

    def common_ancestor(self, one: Gpu, other: Gpu) -> int | Unknown:
        """The nvmlGpuTopologyLevel of two GPUs: 0, 10, … 50."""
        ...


def open_details() -> DetailedNvml | str:
    """NVML, or why there is none. Raises DeviceError if it is there but fails, as ``open_nvml`` does."""
    found = open_nvml()
    return found if isinstance(found, str) else PyNvmlDetails(found.library)


class PyNvmlDetails(PyNvml):
    """The adapter to nvidia-ml-py for the report."""

    def details(self, gpu: Gpu) -> GpuDetails:
        nv = self._library
        handle = self._try(nv.nvmlDeviceGetHandleByIndex, gpu.index)
        look = _Look(self, handle)
        sm = nv.NVML_CLOCK_SM
        exclusive = (nv.NVML_COMPUTEMODE_EXCLUSIVE_THREAD, nv.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
        return GpuDetails(
            bus_id=look.get("nvmlDeviceGetPciInfo", make=lambda info: sysfs_address(info.busId)),
            memory_used_bytes=look.get("nvmlDeviceGetMemoryInfo", make=lambda memory: int(memory.used)),
            persistence=look.get("nvmlDeviceGetPersistenceMode", make=bool),
            ecc=look.get("nvmlDeviceGetEccMode", make=lambda modes: bool(modes[0])),
            pending_ecc=look.get("nvmlDeviceGetEccMode", make=lambda modes: bool(modes[1])),
            uncorrected_ecc=look.get(
                "nvmlDeviceGetTotalEccErrors", nv.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nv.NVML_VOLATILE_ECC, make=int
            ),
            pages_pending=_pages_pending(look),
            power_limit_watts=look.get("nvmlDeviceGetEnforcedPowerLimit", make=_watts),
            default_power_limit_watts=look.get("nvmlDeviceGetPowerManagementDefaultLimit", make=_watts),
            sm_clock_mhz=look.get("nvmlDeviceGetClockInfo", sm, make=int),
            max_sm_clock_mhz=look.get("nvmlDeviceGetMaxClockInfo", sm, make=int),
            applications_clock_mhz=look.get("nvmlDeviceGetApplicationsClock", sm, make=int),
            default_applications_clock_mhz=look.get("nvmlDeviceGetDefaultApplicationsClock", sm, make=int),
            throttle_reasons=look.get("nvmlDeviceGetCurrentClocksThrottleReasons", make=int),
            temperature_c=look.get("nvmlDeviceGetTemperature", nv.NVML_TEMPERATURE_GPU, make=int),
            exclusive=look.get("nvmlDeviceGetComputeMode", make=lambda mode: mode in exclusive),
            pcie_width=look.get("nvmlDeviceGetCurrPcieLinkWidth", make=int),
            max_pcie_width=look.get("nvmlDeviceGetMaxPcieLinkWidth", make=int),
            max_pcie_generation=look.get("nvmlDeviceGetMaxPcieLinkGeneration", make=int),
            cpus=look.get("nvmlDeviceGetCpuAffinity", AFFINITY_WORDS, make=cpus_of),
            processes=look.ask(processes_of(nv, COMPUTE), make=tuple),
            links=self._links(handle),
        )

    def common_ancestor(self, one: Gpu, other: Gpu) -> int | Unknown:
        nv = self._library
        handles = [self._try(nv.nvmlDeviceGetHandleByIndex, gpu.index) for gpu in (one, other)]
        unknown = next((handle for handle in handles if isinstance(handle, Unknown)), None)
        answer: int | Unknown = unknown or self._try(nv.nvmlDeviceGetTopologyCommonAncestor, *handles)
        return answer

    def _links(self, handle: Any) -> tuple[Link, ...] | Unknown:
        if isinstance(handle, Unknown):
            return handle
        nv = self._library
        found = []
        for number in range(nv.NVML_NVLINK_MAX_LINKS):
            try:
                active = nv.nvmlDeviceGetNvLinkState(handle, number)
            except nv.NVMLError as error:
                # There is no link with this number; a card without links is not an error.
                if getattr(error, "value", None) in (nv.NVML_ERROR_NOT_SUPPORTED, nv.NVML_ERROR_INVALID_ARGUMENT):
                    break
                return Unknown(f"nvmlDeviceGetNvLinkState: {error}")
            if active:
                found.append(self._link(handle, number))
        return tuple(found)

    def _link(self, handle: Any, number: int) -> Link:
        nv = self._library
        address = self._try(nv.nvmlDeviceGetNvLinkRemotePciInfo, handle, number)
        bus_id = "" if isinstance(address, Unknown) else sysfs_address(address.busId)
        kind = self._try(nv.nvmlDeviceGetNvLinkRemoteDeviceType, handle, number)
        if isinstance(kind, Unknown):
            # Old drivers lack this query. The address may still be that of a GPU of this machine.
            return Link(TO_UNKNOWN, bus_id)
        return Link(_REMOTE_TYPES.get(kind, TO_OTHER), bus_id)

    def _try(self, function: Callable[..., Any], *arguments: object) -> Any:
        """The answer, or an Unknown with NVML's words."""
        try:
            return self._ask(function, *arguments)
        except DeviceError as error:
            return Unknown(f"{error.about}: {error.got}")


class _Look:
    """Sends queries for one card. If its handle is unknown, every answer is unknown."""

    def __init__(self, nvml: PyNvmlDetails, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle

    def get(self, name: str, *arguments: object, make: Callable[[Any], T]) -> T | Unknown:
        return self.ask(getattr(self._nvml.library, name), *arguments, make=make)

    def ask(self, function: Callable[..., Any], *arguments: object, make: Callable[[Any], T]) -> T | Unknown:
        if isinstance(self._handle, Unknown):
            return self._handle
        found = self._nvml._try(function, self._handle, *arguments)
        return found if isinstance(found, Unknown) else make(found)


def _pages_pending(look: _Look) -> bool | Unknown:
    """Whether memory is to be taken out of use: Ampere and later cards remap rows, earlier cards retire pages."""
    rows = look.get("nvmlDeviceGetRemappedRows", make=lambda found: bool(found[2] or found[3]))
    return look.get("nvmlDeviceGetRetiredPagesPendingStatus", make=bool) if isinstance(rows, Unknown) else rows


def sysfs_address(bus_id: str | bytes) -> str:
    """NVML's ``00000000:3A:00.0`` as sysfs writes it, ``0000:3a:00.0``."""
    text = (bus_id.decode() if isinstance(bus_id, bytes) else bus_id).lower()
    domain, _, rest = text.partition(":")
    return f"{domain[-4:]}:{rest}"


def _watts(milliwatts: int) -> int:
    return round(milliwatts / 1000)
