"""Row 2: one of two ranks dies, hangs or never starts, under the real paddle.distributed.launch."""

from __future__ import annotations

import importlib.util

from tests.faults.fault import Fault, Seen
from tests.faults.handled import NO_PADDLE, infra_error, one_attempt
from tests.faults.workshop import TWO_CARDS, Workshop

# The limits of the rows that wait for them.
SHORT_LIMITS = {"start_up_seconds": 8, "no_progress_seconds": 4}
_GUILTY = """
import os, signal, sys, time

def at_step(spec, rank, phase, number):
    if rank == {guilty} and phase == {phase!r} and number >= {number}:
        print("the last words of rank", rank, file=sys.stderr, flush=True)
        mark()
        {does}
"""
_ABSENT = """
import os, signal, sys, time

def at_start(spec, rank):
    if rank == {guilty}:
        print("the last words of rank", rank, file=sys.stderr, flush=True)
        mark()
        {does}
"""
# Which of the two ranks.
_RANK = 1
_KILL = "os.kill(os.getpid(), signal.SIGKILL)"
_KILLED = ("killed by a signal", "SIGKILL")
_STOP = "os.kill(os.getpid(), signal.SIGSTOP)"
_SLEEP = "time.sleep(600)"


def no_launcher() -> str:
    return "" if importlib.util.find_spec("paddle") else NO_PADDLE


def _fault(name: str, what: str, text: str, guilty: int, *expected: str, limit: str = "") -> Fault:
    """A fault of one rank; ``limit`` names the watchdog that sees it."""

    def make(workshop: Workshop) -> Seen:
        limits = one_attempt(workshop, **({limit: SHORT_LIMITS[limit]} if limit else {}))
        done = workshop.run(fault=text, case=TWO_CARDS)
        return infra_error(workshop, done, *expected, rank=guilty, limit_seconds=limits[limit] if limit else 0.0)

    return Fault(2, name, what, make, no_launcher)


def _at_step(does: str) -> str:
    return _GUILTY.format(guilty=_RANK, phase="window", number=2, does=does)


def _at_start(does: str) -> str:
    return _ABSENT.format(guilty=_RANK, does=does)


_WHICH = f"rank {_RANK} of two"
_SILENT, _UNSTARTED = ("hung", "no sign of life"), ("never started", "no first step")
FAULTS = [
    _fault(f"{_WHICH}: SIGKILL", "kills itself", _at_step(_KILL), _RANK, *_KILLED),
    _fault(
        f"{_WHICH}: sleeps in the window", "sleeps in a step", _at_step(_SLEEP), _RANK, *_SILENT,
        limit="no_progress_seconds",
    ),
    _fault(f"{_WHICH}: SIGSTOP", "is stopped in a step", _at_step(_STOP), _RANK, *_SILENT, limit="no_progress_seconds"),
    _fault(
        f"{_WHICH}: sleeps before its start", "never comes to its trainer", _at_start(_SLEEP), _RANK, *_UNSTARTED,
        limit="start_up_seconds",
    ),
]  # fmt: skip
