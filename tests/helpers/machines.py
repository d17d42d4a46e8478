"""Machines for tests of the environment report: a DGX-1-like V100 node, an A100 node with NVSwitch, and none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from helpers.machine.devices import CpuCard, Machine
from helpers.machine.host import Host, HostState, Space
from helpers.machine.nvml import Gpu, GpuDetails, GpuSettings, GpuState, Nvml

GIB = 1024**3
HOST = Host(
    "node7", "0123456789abcdef", "Ubuntu 16.04", "4.4", "Intel(R) Xeon(R) Gold 6271C CPU @ 2.60GHz", 48, 502 * GIB
)
CPU_MACHINE = Machine(HOST, (CpuCard(0, (0,)), CpuCard(1, (1,))), gpu_note="no libnvidia-ml.so.1")

# The V100 machine of the source documents.
TOPOLOGY = """\
\tGPU0\tGPU1\tmlx5_0\tCPU Affinity
GPU0\t X \tNV2\tNODE\t0-23
GPU1\tNV2\t X \tNODE\t0-23
mlx5_0\tNODE\tNODE\t X

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def v100s() -> tuple[Gpu, ...]:
    return tuple(Gpu(n, f"GPU-{n}", "Tesla V100-SXM2-32GB", 32 * GIB, (7, 0), 300) for n in range(8))


def a100s() -> tuple[Gpu, ...]:
    return tuple(Gpu(n, f"GPU-{n}", "NVIDIA A100-SXM4-40GB", 40 * GIB, (8, 0), 400) for n in range(8))


HEALTHY_STATE = GpuState(1290, 35, 60.0, 0x1, 0, 877)
HEALTHY = GpuDetails(
    memory_used_bytes=3 * 1024**2, persistence=True, ecc=True, slowdown_c=90,
    pages_pending=False, power_limit_watts=300, default_power_limit_watts=300, max_sm_clock_mhz=1530,
    applications_clock_mhz=1290, default_applications_clock_mhz=1290, state=HEALTHY_STATE,
    pcie_generation=3, pcie_width=16, max_pcie_width=16, max_pcie_generation=3,
    cpus=frozenset(range(24)), processes=(), nvlinks=(True,) * 6,
)  # fmt: skip


def details_of_all() -> dict[str, GpuDetails]:
    return {f"GPU-{n}": HEALTHY for n in range(8)}


@dataclass
class StandInNvml(Nvml):
    """NVML of a machine with these GPUs, which nobody uses."""

    all_gpus: tuple[Gpu, ...]
    all_details: Mapping[str, GpuDetails]
    asked: list[str] = field(default_factory=list)

    def driver(self) -> str:
        return "525.60.11"

    def cuda_driver(self) -> str:
        return "12.0"

    def gpus(self) -> tuple[Gpu, ...]:
        return self.all_gpus

    def state(self, gpu: Gpu) -> GpuState:
        return GpuState(1290, 35, 60.0, 0, 0)

    def settings(self, gpu: Gpu) -> GpuSettings:
        return GpuSettings(300, 300, 1290, 1290, False)

    def compute_processes(self, gpu: Gpu) -> tuple[int, ...]:
        return ()

    def near_cpus(self, gpu: Gpu) -> frozenset[int]:
        return frozenset()

    def drawing_processes(self, gpu: Gpu) -> tuple[int, ...]:
        return ()

    def details(self, gpu: Gpu) -> GpuDetails:
        self.asked.append(gpu.uuid)
        return self.all_details[gpu.uuid]


def gpu_machine(gpus: tuple[Gpu, ...]) -> Machine:
    return replace(CPU_MACHINE, gpus=gpus, driver="525.60.11", cuda_driver="12.0", gpu_note="")


def host_state(**values: Any) -> HostState:
    """A quiet bare machine with nothing wrong."""
    usual: dict[str, Any] = {
        "allowed_cpus": frozenset(range(48)), "siblings": {cpu: frozenset({cpu}) for cpu in range(48)},
        "numa_nodes": {0: frozenset(range(48))}, "governors": frozenset({"performance"}),
        "load_1m": 0.0, "quota_cores": None,
        "clock_source": "tsc", "hypervisor": False, "container": "",
        "memory_available_bytes": 400 * GIB, "memory_limit_bytes": None, "swap_used_bytes": 0,
        "huge_pages": "madvise", "numa_balancing": False,
        "shared_memory": Space(64 * GIB, 64 * GIB), "open_files": 65536, "locked_bytes": -1,
        "processes": 65536, "free_processes": None,
    }  # fmt: skip
    return HostState(**{**usual, **values})


def write(root: Path, files: Mapping[str, str]) -> Path:
    """Files of a ``/proc`` and ``/sys`` under ``root``."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root
