"""Row 2: one of two ranks dies, hangs or never starts, under the real paddle.distributed.launch."""

from __future__ import annotations

import importlib.util

from tests.faults.fault import Fault, Seen
from tests.faults.handled import NO_PADDLE, infra_error, one_attempt
from tests.faults.workshop import TWO_CARDS, Workshop

# The limits of the rows that wait for them.
SHORT_LIMITS = {"start_up_seconds": 8, "no_progress_seconds": 4}
_IN_THE_WINDOW = """
import os, signal, sys, time

def at_step(spec, rank, phase, number):
    if rank == 1 and phase == "window" and number >= 2:
        print("the last words of rank", rank, file=sys.stderr, flush=True)
        mark()
        {does}
"""
_NEVER_STARTS = """
import sys, time

def at_start(spec, rank):
    if rank == 1:
        print("the last words of rank", rank, file=sys.stderr, flush=True)
        mark()
        time.sleep(600)
"""


def no_launcher() -> str:
    return "" if importlib.util.find_spec("paddle") else NO_PADDLE


def _fault(name: str, what: str, text: str, *expected: str, limit: str = "") -> Fault:
    """A fault of rank 1 of two; ``limit`` names the time limit that shows it."""

    def make(workshop: Workshop) -> Seen:
        limits = one_attempt(workshop, **({limit: SHORT_LIMITS[limit]} if limit else {}))
        done = workshop.run(fault=text, case=TWO_CARDS)
        return infra_error(workshop, done, *expected, rank=1, limit_seconds=limits[limit] if limit else 0.0)

    return Fault(2, f"rank 1 of two: {name}", what, make, no_launcher)


def _does(what: str) -> str:
    return _IN_THE_WINDOW.format(does=what)


FAULTS = [
    _fault(
        "SIGKILL", "kills itself", _does("os.kill(os.getpid(), signal.SIGKILL)"), "killed by a signal", "SIGKILL"
    ),
    _fault(
        "SIGSTOP", "is stopped in a step", _does("os.kill(os.getpid(), signal.SIGSTOP)"), "hung", "no sign of life",
        limit="no_progress_seconds",
    ),
    _fault(
        "sleeps before its start", "never comes to its trainer", _NEVER_STARTS, "never started", "no first step",
        limit="start_up_seconds",
    ),
]  # fmt: skip
