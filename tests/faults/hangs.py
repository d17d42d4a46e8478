"""Row 3: the trainer makes no progress, which the watchdog sees, or takes too long, which the time limit sees."""

from __future__ import annotations

from tests.faults.fault import Fault, Seen
from tests.faults.handled import infra_error, one_attempt
from tests.faults.ranks import SHORT_LIMITS
from tests.faults.workshop import Workshop

_SILENT = ("hung", "no sign of life for {no_progress_seconds} s")
_LIMITS = {**SHORT_LIMITS, "run_seconds": 8}
_AT_STEP = """
import signal, sys, time

def at_step(spec, rank, phase, number):
    if phase == {phase!r} and number >= {number}:
        print("the last words of rank", rank, file=sys.stderr, flush=True)
        mark()
        {does}
"""
_SLEEPS = "time.sleep(600)"
_DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
# It gives signs of life all the while, and does not end within the time limit.
_CRAWLS = """
import sys, time

def at_start(spec, rank):
    print("the last words of rank", rank, file=sys.stderr, flush=True)
    mark()

def at_step(spec, rank, phase, number):
    time.sleep(1 if number < 5 else 2.5)
"""
_AT_EXIT = """
import atexit, sys, time

def at_start(spec, rank):
    def stay():
        print("the last words of rank", rank, file=sys.stderr, flush=True)
        mark()
        time.sleep(600)
    atexit.register(stay)
"""


def _hangs(
    name: str,
    what: str,
    text: str,
    *expected: str,
    limit: str = "no_progress_seconds",
) -> Fault:
    """A trainer that hangs; ``limit`` is the one of the time limits that sees it."""

    def make(workshop: Workshop) -> Seen:
        limits = one_attempt(workshop, **{limit: _LIMITS[limit]})
        done = workshop.run(fault=text)
        wanted = (each.format(**limits) for each in expected)
        return infra_error(workshop, done, *wanted, rank=0, limit_seconds=limits[limit])

    return Fault(3, name, what, make)


def _at_step(phase: str, does: str, number: int = 2) -> str:
    return _AT_STEP.format(phase=phase, does=does, number=number)


FAULTS = [
    _hangs(
        "hangs in the first step", "sleeps before its first step", _at_step("warm-up", _SLEEPS, 1),
        "never started", "no first step within {start_up_seconds} s", limit="start_up_seconds",
    ),
    _hangs("deaf to SIGTERM", "sleeps in the window and ignores SIGTERM", _at_step("window", _DEAF), *_SILENT),
    _hangs(
        "hangs at its exit", "sleeps with its log complete", _AT_EXIT, "hung",
        "did not exit within {no_progress_seconds} s",
    ),
    _hangs(
        "beyond the time limit", "goes on and on, with life signs", _CRAWLS, "over the time limit",
        "not done after {run_seconds} s",
        limit="run_seconds",
    ),
]  # fmt: skip
