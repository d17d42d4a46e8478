"""The stub of libnvidia-ml.so.1 answers what its machine's description says, to this process and to another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from helpers.machine.nvml import open_pynvml
from helpers.machine.nvml_details import PyNvmlDetails
from tests.nvml_stub import A100, V100_16, loaded, machine_of, needs_compiler, nvml_library, uuid_of

pytestmark = needs_compiler
ROOT = Path(__file__).parents[1]


def test_the_suite_s_adapters_read_the_described_cards(tmp_path: Path) -> None:
    library = nvml_library(tmp_path, machine_of(V100_16, 8, {5: {"processes": (41, 42), "power_cap": 250}}))
    with loaded(library) as pynvml:
        nvml = open_pynvml(pynvml)
        assert not isinstance(nvml, str)
        gpus = nvml.gpus()
        details = PyNvmlDetails(pynvml).details(gpus[5])
        assert (nvml.driver(), nvml.cuda_driver(), nvml.compute_processes(gpus[5])) == ("535.104.05", "12.2", (41, 42))
    assert [gpu.uuid for gpu in gpus] == [uuid_of(number) for number in range(8)]
    assert (gpus[5].name, gpus[5].compute_capability) == ("Tesla V100-SXM2-16GB", (7, 0))
    assert (details.bus_id, details.power_limit_watts, details.cpus) == ("0000:15:00.0", 250, frozenset(range(24, 48)))
    assert (details.pages_pending, details.processes, details.links) == (False, (41, 42), ())


def test_a_process_of_its_own_finds_it_by_the_library_path(tmp_path: Path) -> None:
    nvml_library(tmp_path, machine_of(A100, 16, {3: {"mig": True}}))
    code = "from helpers.machine.devices import discover; print(discover().describe())"
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "15 x NVIDIA A100-SXM4-40GB; left out: GPU3 (split by MIG)" in told
