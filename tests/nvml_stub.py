"""A ``libnvidia-ml.so.1`` of a described machine, which the real nvidia-ml-py and requirements/machine.py load.

A test's own process loads it by ``loaded(nvml_library(folder, MACHINE))``, a command that it starts by the environment
variable ``LD_LIBRARY_PATH`` = the folder. Such a test is marked ``needs_compiler``.
"""

from __future__ import annotations

import ctypes
import importlib
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
GIB = 1024**3
DRIVER_NOT_LOADED, GPU_IS_LOST, RESET_REQUIRED = 9, 15, 16
DEFAULT, EXCLUSIVE_THREAD, PROHIBITED, EXCLUSIVE_PROCESS = 0, 1, 2, 3
# The functions that fail on a card that has fallen off the bus: on some drivers already the first.
LOST, LOST_LATER = {"nvmlDeviceGetHandleByIndex_v2": GPU_IS_LOST, "*": GPU_IS_LOST}, {"nvmlDeviceGetName": GPU_IS_LOST}


@dataclass(frozen=True)
class StubCard:
    """One card, healthy and idle; power caps in watts, clocks in MHz."""

    name: str
    capability: tuple[int, int]
    memory_gib: int
    default_power_cap: int
    default_clock: int
    uuid: str = ""
    # NVML's form, ``00000000:1A:00.0``; by default from the place in the machine.
    bus_id: str = ""
    used_gib: int = 0
    mig: bool = False
    compute_mode: int = DEFAULT
    # Before Ampere memory pages are retired, from Ampere on rows are remapped.
    pages_pending: bool = False
    rows_remapped: int = 0
    rows_pending: bool = False
    rows_failed: bool = False
    uncorrected_ecc: int = 0
    power_cap: int = 0
    sm_clock: int = 0
    applications_clock: int = 0
    temperature: int = 35
    throttle_reasons: int = 0x1
    # The logical CPUs near the card; by default all of the lower half, or of the upper half, of 48.
    cpus: tuple[int, ...] = ()
    processes: tuple[int, ...] = ()
    # By function: NVML's code. ``*`` stands for every function that takes the card.
    failures: Mapping[str, int] = field(default_factory=dict)


V100_16, V100_32 = (StubCard(f"Tesla V100-SXM2-{gib}GB", (7, 0), gib, 300, 1290) for gib in (16, 32))
A100 = StubCard("NVIDIA A100-SXM4-40GB", (8, 0), 40, 400, 1095)
H100 = StubCard("NVIDIA H100 80GB HBM3", (9, 0), 80, 700, 1980)


@dataclass(frozen=True)
class StubMachine:
    """What the library answers; ``init_code`` is that of ``nvmlInit``."""

    cards: tuple[StubCard, ...]
    driver: str = "535.104.05"
    cuda_driver: int = 12020
    init_code: int = 0


def machine_of(card: StubCard, count: int, changed: Mapping[int, Mapping[str, Any]] | None = None) -> StubMachine:
    """``count`` equal cards; ``changed`` holds, by number, what differs."""
    return StubMachine(tuple(replace(card, **(changed or {}).get(number, {})) for number in range(count)))


def uuid_of(number: int) -> str:
    """The UUID of a card whose description names none."""
    return f"GPU-{number:08x}-0000-4000-8000-{number:012x}"


def nvml_library(folder: Path, machine: StubMachine) -> Path:
    """Compile the library into the folder; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "machine.h").write_text(_header(machine), encoding="utf-8")
    library = folder / "libnvidia-ml.so.1"
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["cc", "-shared", "-fPIC", "-I", str(folder), "-o", str(library), str(source)], check=True)
    return library


@contextmanager
def loaded(library: Path) -> Iterator[Any]:
    """The module ``pynvml`` with this library in place of the system's, and afterwards with none."""
    module: Any = importlib.import_module("pynvml")
    module.nvmlLib = ctypes.CDLL(str(library))
    module._nvmlGetFunctionPointer_cache.clear()
    try:
        yield module
    finally:
        module.nvmlLib = None
        module._nvmlGetFunctionPointer_cache.clear()


def _header(machine: StubMachine) -> str:
    lines, cards = [], []
    for number, card in enumerate(machine.cards):
        pids = ", ".join(map(str, card.processes)) or "0"
        failures = "".join(f'{{"{name}", {code}}}, ' for name, code in card.failures.items())
        lines.append(f"static const unsigned processes_{number}[] = {{{pids}}};")
        lines.append(f"static const Failure failures_{number}[] = {{{failures}{{0, 0}}}};")
        cards.append(_row(number, card))
    rows = ",\n    ".join(cards) or "{0}"
    return "\n".join([
        f'#define DRIVER "{machine.driver}"',
        f"#define CUDA_DRIVER {machine.cuda_driver}",
        f"#define INIT_CODE {machine.init_code}",
        f"#define CARD_COUNT {len(machine.cards)}u",
        *lines,
        f"static const Card cards[] = {{\n    {rows}\n}};\n",
    ])  # fmt: skip


def _row(number: int, card: StubCard) -> str:
    clock = card.applications_clock or card.default_clock
    near = card.cpus or tuple(range(24, 48) if number >= 4 else range(24))
    words = [sum(1 << cpu % 64 for cpu in near if cpu // 64 == word) for word in range(16)]
    values = [
        f'"{card.name}"', f'"{card.uuid or uuid_of(number)}"',
        f'"{card.bus_id or f"00000000:{0x10 + number:02X}:00.0"}"', *card.capability, f"{card.memory_gib * GIB}ull",
        f"{card.used_gib * GIB}ull", int(card.mig), card.compute_mode, int(card.pages_pending), card.rows_remapped,
        int(card.rows_pending), int(card.rows_failed), card.uncorrected_ecc,
        1000 * (card.power_cap or card.default_power_cap), 1000 * card.default_power_cap, card.sm_clock or clock, clock,
        card.default_clock, card.temperature, card.throttle_reasons,
        "{" + ", ".join(f"{word}ull" for word in words) + "}",
        f"processes_{number}", len(card.processes), f"failures_{number}",
    ]  # fmt: skip
    return "{" + ", ".join(map(str, values)) + "}"
