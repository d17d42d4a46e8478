"""Row 1: the trainer dies, in warm-up or in the window."""

from __future__ import annotations

from dataclasses import dataclass

from tests.faults.control_group import memory_group, why_no_memory_group
from tests.faults.fault import Fault, Seen, expect
from tests.faults.handled import infra_error, measured, one_attempt
from tests.faults.workshop import Workshop

_AT_STEP = """
import ctypes, os, resource, signal, sys, time
from pathlib import Path

def at_step(spec, rank, phase, number):
    if phase != {phase!r} or number < 2 {once}:
        return
    print("the last words of rank", rank, file=sys.stderr, flush=True)
    mark()
{does}
"""
# The fault is made in the first attempt alone.
_ONCE = """or not made()"""
_MADE = """
def made():
    try:
        Path(os.environ["PERFGATE_FAULT_FILE"]).with_name("made").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
"""
# Paddle's own message (paddle/phi/core/memory/allocation/cuda_allocator.cc), here of a card that is not there.
_CUDA_MESSAGE = (
    "ResourceExhaustedError: \\n\\nOut of memory error on GPU 0. Cannot allocate 1.531250GB memory on GPU 0, "
    "15.201172GB memory has been allocated and available memory is only 577.500000MB."
)


@dataclass(frozen=True)
class _Way:
    """One way to die. ``does`` are the lines that end the trainer; ``expected`` are the failure's class and other texts
    that the reason must have."""

    name: str
    what: str
    does: str
    expected: tuple[str, ...]


_WAYS = (
    _Way(
        "SIGKILL",
        "kills itself by SIGKILL",
        "os.kill(os.getpid(), signal.SIGKILL)",
        ("killed by a signal", "SIGKILL"),
    ),
    _Way("SIGSEGV", "reads from address 0", "ctypes.string_at(0)", ("native crash", "SIGSEGV")),
    _Way(
        "CUDA out of memory, raised",
        "raises what Paddle raises when a card is full",
        f"raise MemoryError('{_CUDA_MESSAGE}')",
        ("out of GPU memory", "Cannot allocate 1.531250GB"),
    ),
)
# More than a suite and a trainer need before the fault, and less than the fault asks for.
_GROUP_MIB = 1024
_EATS = """
import mmap
kept = []
while True:
    kept.append(mmap.mmap(-1, 2**26, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000))  # MAP_POPULATE
    mark()
"""


def script(phase: str, does: str, once: bool = False) -> str:
    """A fault that strikes at the second step or a later one of the phase; at the first attempt alone if ``once``."""
    lines = "\n".join(f"    {line}" for line in does.strip().splitlines())
    text = _AT_STEP.format(phase=phase, once=_ONCE if once else "", does=lines)
    return text + (_MADE if once else "")


def _dies(way: _Way, phase: str) -> Fault:
    def make(workshop: Workshop) -> Seen:
        one_attempt(workshop)
        done = workshop.run(fault=script(phase, way.does))
        return infra_error(workshop, done, *way.expected)

    return Fault(1, f"{way.name} in {phase}", f"at a step of the {phase} the trainer {way.what}", make)


def _starved(phase: str) -> Fault:
    def make(workshop: Workshop) -> Seen:
        one_attempt(workshop)
        with memory_group(_GROUP_MIB) as group:
            done = workshop.run(fault=script(phase, _EATS), prefix=group.prefix)
            kills = group.kills()
        never = expect((kills > 0, "the kernel has ended nothing"))
        return infra_error(workshop, done, "killed by the kernel for want of memory", "SIGKILL", also=never)

    what = f"at a step of the {phase} the trainer takes more than its memory control group has"
    return Fault(1, f"the kernel's OOM kill in {phase}", what, make, why_no_memory_group)


def _once(workshop: Workshop) -> Seen:
    """The retry passes; the failed attempt stays on disk, in the history and in the report."""
    done = workshop.run(fault=script("window", "os.kill(os.getpid(), signal.SIGKILL)", once=True))
    kept = list((workshop.folder / "runs").glob("night/*/r*/result.json"))
    return measured(
        workshop,
        done,
        (len(kept) == 2, f"{len(kept)} attempts kept"),
        ("SIGKILL" in done.output, f"the failed attempt is not shown: {done.output[-600:]}"),
        ("SIGKILL" in str(done.cases), f"the failed attempt is not in the results: {done.cases}"),
    )


FAULTS = [
    *(_dies(way, phase) for way, phase in zip(_WAYS, ("window", "warm-up", "window"), strict=True)),
    _starved("window"),
    Fault(1, "SIGKILL once, then the retry", "the trainer dies in the first attempt and not in the second", _once),
]
