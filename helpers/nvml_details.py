"""What the environment report and ``perfgate doctor`` ask of NVML beyond what a measurement needs.

Every single answer may be missing (an old driver, a card without ECC, a container without the right): it
is then an Unknown with NVML's own words, and the rest is still told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from helpers.errors import DeviceError
from helpers.nvml import Gpu, Nvml, PyNvml, open_nvml
from helpers.unknown import Unknown

T = TypeVar("T")

# What an NVLink ends at (nvml.h, nvmlIntNvLinkDeviceType_t).
TO_GPU, TO_SWITCH, TO_OTHER, TO_UNTOLD = "gpu", "switch", "other", "untold"
_REMOTE_TYPES = {0: TO_GPU, 2: TO_SWITCH}
_AFFINITY_WORDS = 64  # of 64 CPUs each


@dataclass(frozen=True)
class Link:
    """One active NVLink: what is at its other end (``TO_UNTOLD``: this driver does not say) and its PCI address."""

    remote: str
    bus_id: str = ""


@dataclass(frozen=True)
class GpuDetails:
    """One look at one GPU. ``bus_id`` is a PCI address as sysfs writes it (``0000:3a:00.0``).

    ``ecc`` and ``pending_ecc``: switched on now, after the next reset. ``pages_pending``: memory that a reset will take
    out of use, after errors that were not corrected. ``links`` are active ones only.
    """

    bus_id: str | Unknown
    memory_used_bytes: int | Unknown
    persistence: bool | Unknown
    ecc: bool | Unknown
    pending_ecc: bool | Unknown
    uncorrected_ecc: int | Unknown
    pages_pending: bool | Unknown
    power_limit_watts: int | Unknown
    default_power_limit_watts: int | Unknown
    sm_clock_mhz: int | Unknown
    max_sm_clock_mhz: int | Unknown
    applications_clock_mhz: int | Unknown
    default_applications_clock_mhz: int | Unknown
    throttle_reasons: int | Unknown
    temperature_c: int | Unknown
    compute_prohibited: bool | Unknown
    pcie_width: int | Unknown
    max_pcie_width: int | Unknown
    max_pcie_generation: int | Unknown
    cpus: frozenset[int] | Unknown
    processes: tuple[int, ...] | Unknown
    links: tuple[Link, ...] | Unknown


class DetailedNvml(Nvml, Protocol):
    """NVML for the report. ``gpus`` still raises DeviceError; the other two never do."""

    def details(self, gpu: Gpu) -> GpuDetails: ...

    def common_ancestor(self, one: Gpu, other: Gpu) -> int | Unknown:
        """nvmlGpuTopologyLevel of two GPUs: 0, 10, … 50."""
        ...


def open_details() -> DetailedNvml | str:
    """As ``open_nvml``: the library, or why there is none; DeviceError when it is there and fails."""
    found = open_nvml()
    return found if isinstance(found, str) else PyNvmlDetails(found.library)


class PyNvmlDetails(PyNvml):
    """The adapter to nvidia-ml-py for the report."""

    def details(self, gpu: Gpu) -> GpuDetails:
        nv = self._library
        handle = self._try(nv.nvmlDeviceGetHandleByIndex, gpu.index)
        look = _Look(self, handle)
        sm = nv.NVML_CLOCK_SM
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
            compute_prohibited=look.get(
                "nvmlDeviceGetComputeMode", make=lambda mode: bool(mode == nv.NVML_COMPUTEMODE_PROHIBITED)
            ),
            pcie_width=look.get("nvmlDeviceGetCurrPcieLinkWidth", make=int),
            max_pcie_width=look.get("nvmlDeviceGetMaxPcieLinkWidth", make=int),
            max_pcie_generation=look.get("nvmlDeviceGetMaxPcieLinkGeneration", make=int),
            cpus=look.get("nvmlDeviceGetCpuAffinity", _AFFINITY_WORDS, make=_cpus),
            processes=look.get(
                "nvmlDeviceGetComputeRunningProcesses", make=lambda found: tuple(sorted(int(p.pid) for p in found))
            ),
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
                # Past the card's last link; a card without any is not one that NVML failed on.
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
            # Old drivers have no such question; the address can still be a GPU's of this machine.
            return Link(TO_UNTOLD, bus_id)
        return Link(_REMOTE_TYPES.get(kind, TO_OTHER), bus_id)

    def _try(self, function: Callable[..., Any], *arguments: object) -> Any:
        """The answer, or an Unknown with NVML's words."""
        try:
            return self._ask(function, *arguments)
        except DeviceError as error:
            return Unknown(f"{error.about}: {error.got}")


class _Look:
    """Asks one handle one thing after another; with an unknown handle every answer is unknown."""

    def __init__(self, nvml: PyNvmlDetails, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle

    def get(self, name: str, *arguments: object, make: Callable[[Any], T]) -> T | Unknown:
        if isinstance(self._handle, Unknown):
            return self._handle
        found = self._nvml._try(getattr(self._nvml.library, name), self._handle, *arguments)
        return found if isinstance(found, Unknown) else make(found)


def _pages_pending(look: _Look) -> bool | Unknown:
    """Ampere and later remap rows, the cards before retire pages."""
    rows = look.get("nvmlDeviceGetRemappedRows", make=lambda found: bool(found[2] or found[3]))
    return look.get("nvmlDeviceGetRetiredPagesPendingStatus", make=bool) if isinstance(rows, Unknown) else rows


def sysfs_address(bus_id: str | bytes) -> str:
    """NVML's ``00000000:3A:00.0`` as sysfs writes it, ``0000:3a:00.0``."""
    text = (bus_id.decode() if isinstance(bus_id, bytes) else bus_id).lower()
    domain, _, rest = text.partition(":")
    return f"{domain[-4:]}:{rest}"


def _watts(milliwatts: int) -> int:
    return round(milliwatts / 1000)


def _cpus(words: Any) -> frozenset[int]:
    return frozenset(64 * place + bit for place, word in enumerate(words) for bit in range(64) if int(word) >> bit & 1)
