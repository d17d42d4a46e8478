"""The fastest variables for the processor at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.plan.recipes.common import Processor, cpu_environment, read_processor

AVX2 = frozenset({"sse2", "fma", "avx", "avx2"})
AVX512 = AVX2 | {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}


@pytest.mark.parametrize(
    ("vendor", "instructions", "kernels"),
    [
        ("AuthenticAMD", AVX512, "7"),
        ("AuthenticAMD", AVX2, "5"),
        # Half of AVX-512 is none: the kernels would end in an illegal instruction.
        ("AuthenticAMD", AVX512 - {"avx512dq"}, "5"),
        ("AuthenticAMD", AVX2 - {"fma"}, None),
        ("GenuineIntel", AVX512, None),
        ("", frozenset(), None),
    ],
)
def test_mkl_is_told_the_kernels_of_an_amd_processor_alone(
    vendor: str, instructions: frozenset[str], kernels: str | None
) -> None:
    assert cpu_environment(Processor(vendor, instructions)).get("MKL_DEBUG_CPU_TYPE") == kernels


@pytest.mark.parametrize("vendor", ["AuthenticAMD", "GenuineIntel"])
def test_the_heap_keeps_its_memory_on_every_processor(vendor: str) -> None:
    told = cpu_environment(Processor(vendor, AVX512))["GLIBC_TUNABLES"]
    assert dict(each.split("=") for each in told.split(":")) == {
        "glibc.malloc.mmap_max": "0",
        "glibc.malloc.top_pad": str(256 * 1024 * 1024),
        "glibc.malloc.trim_threshold": str(2**40),
    }


def test_the_processor_is_read_from_its_first_description(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu avx2 fma\nbugs\t\t: spectre_v1\n\n")
    assert read_processor(cpuinfo) == Processor("AuthenticAMD", frozenset({"fpu", "avx2", "fma"}))
