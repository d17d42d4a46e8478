"""The variables that make a framework fast on the CPU at hand, its precision left as it is.

Measured, with what was tried and left out, in ``docs/cpu-settings.md``. They stand in a CPU case's
settings, and so in its result, like any other setting.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")

# The MKL in Paddle's wheels asks who made the CPU before it asks what it can do, and gives AMD's the
# kernels of an SSE2 machine. This variable names the kernels itself: 7 those for AVX-512, 5 for AVX2.
_MKL_KERNELS = "MKL_DEBUG_CPU_TYPE"
# A training step frees and takes again some 800 MB at batch 4. By glibc's defaults most of that goes back to
# the kernel and is faulted in and cleared page by page at every step; so: no mapping of its own for a large
# block, nothing given back, growth in steps of 256 MiB. Huge pages are left out: while the kernel gathers them,
# single steps of VGG16 take half as long again. An unknown name is ignored by an older glibc.
_HEAP = {
    "glibc.malloc.mmap_max": 0,
    "glibc.malloc.top_pad": 2**28,
    "glibc.malloc.trim_threshold": 2**40,
}
_AVX512 = frozenset({"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"})
_AVX2 = frozenset({"avx2", "fma"})


@dataclass(frozen=True)
class Processor:
    """Who made it (``AuthenticAMD``, ``GenuineIntel``) and its instruction sets, as Linux names them."""

    vendor: str
    instructions: frozenset[str]


def read_processor(cpuinfo: Path = CPUINFO) -> Processor:
    """The processor that ``/proc/cpuinfo`` describes; what it does not say is empty."""
    found = {"vendor_id": "", "flags": ""}
    for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in found:
            found[name.strip()] = value.strip()
    return Processor(found["vendor_id"], frozenset(found["flags"].split()))


def cpu_environment(processor: Processor) -> dict[str, str]:
    """The variables of a CPU case of Paddle on this processor."""
    return {**heap_environment(), **_mkl_kernels(processor)}


def heap_environment() -> dict[str, str]:
    """The variables of glibc's heap, the same for every framework."""
    return {"GLIBC_TUNABLES": ":".join(f"{name}={value}" for name, value in _HEAP.items())}


def _mkl_kernels(processor: Processor) -> dict[str, str]:
    """On Intel's processors MKL chooses best by itself, and a name would hold it back."""
    if processor.vendor != "AuthenticAMD":
        return {}
    if processor.instructions >= _AVX512:
        return {_MKL_KERNELS: "7"}
    return {_MKL_KERNELS: "5"} if processor.instructions >= _AVX2 else {}
